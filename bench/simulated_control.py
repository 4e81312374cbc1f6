"""Control over a simulated cluster (`bench/simulated_cluster.py`).

The service, its view, its look-out for problems and its pages are the real ones, and it asks members over
HTTP; only what it reads is made up. Run it with
`python -m bench.simulated_control PORT [STREAMS MEMBERS CHANGES_PER_S]` to look at the console.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from bench.simulated_cluster import REFRESH_S, SimulatedCluster
from services.control.live.feed.feed import EventFeed
from services.control.live.view.cluster_view import ClusterView
from services.control.ports import MemberSource
from shared.model.names import Names
from tests.unit.control.sources import InMemoryProducers


class Source:
    """One reading of the cluster, as a source of control's view."""

    def __init__(self, read: object) -> None:
        self.read = read


def view_on(world: SimulatedCluster, feed: EventFeed, members: MemberSource | None = None) -> ClusterView:
    """Control's view of the world; the feed's events are its ownership history."""
    return ClusterView(
        Source(world.read_cluster),  # type: ignore[arg-type]
        Source(world.read_offsets),  # type: ignore[arg-type]
        members or Source(world.read_members),  # type: ignore[arg-type]
        InMemoryProducers(),
        Names(),
        refresh_s=REFRESH_S,
        status_window_s=20,
        ownership_history=feed.recent_events.ownership_history,
    )


async def serve(port: int, streams: int = 24, members: int = 3, changes_per_s: float = 40.0) -> None:
    """Serves control on loopback until it is cancelled."""
    import uvicorn

    from bench.simulated_lookup import SimulatedOwners, SimulatedRecords, write_lake
    from bench.simulated_members import polled
    from bench.simulated_runs import SimulatedRunner
    from services.control.adapters.processes.kept_connections import KeptConnections
    from services.control.adapters.processes.statuses import HttpMembers
    from services.control.adapters.znodes.operations import ZooKeeperOperations
    from services.control.core.runs.schedules import Schedule
    from services.control.http.console.pages.routes import wall_ms
    from services.control.live.acts.actions import Actions
    from services.control.live.acts.effects import Effects
    from services.control.live.acts.operations import Operations
    from services.control.live.garbage import keep_collections_short
    from services.control.live.view.history import History
    from services.control.live.view.problems import Problems
    from tests.fakes.coordinator import InMemoryZooKeeper, ZnodeStore
    from tests.unit.control.http.test_app import app_on

    feed = EventFeed()
    world = SimulatedCluster(streams, members, changes_per_s, feed)
    async with KeptConnections() as asked, polled(world, HttpMembers(asked.get)) as faces:
        view = view_on(world, feed, faces)
        await view.step()
        actions = Actions(lambda _: None)
        operations = Operations(
            view,
            Effects(view, world, world, world),
            ZooKeeperOperations(InMemoryZooKeeper(ZnodeStore()), Names()),
            actions,
            timeout_s=120,
            look_every_s=REFRESH_S,
        )
        history = History(view, list, lambda _: None, writer="simulated")
        runner = SimulatedRunner()
        problems = Problems(view, runner, list)
        schedules = [
            Schedule(jobs=("lake", "reports"), every_s=900),
            Schedule(jobs=("audit",), every_s=21_600),
        ]
        with tempfile.TemporaryDirectory() as lake:
            write_lake(Path(lake), streams)
            app = app_on(
                view,
                feed,
                runner,
                lake=lake,
                owners=SimulatedOwners(),
                records=SimulatedRecords(),
                operations=operations,
                actions=actions,
                schedules=schedules,
                now_ms=wall_ms,
                history=history,
                problems=problems,
                paint_s=REFRESH_S,
            )
            keep_collections_short()
            config = uvicorn.Config(app, "127.0.0.1", port, log_level="warning", lifespan="off")
            async with asyncio.TaskGroup() as tasks:
                for part in (view, operations, history, problems):
                    tasks.create_task(part.run())
                await uvicorn.Server(config).serve()


def main(arguments: Sequence[str]) -> int:
    """Serves until Ctrl-C."""
    import uvloop

    uvloop.run(serve(*map(int, arguments)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
