"""Control over a cluster that exists only in memory: as many streams and members as wanted, always in motion.

The service, its view and its pages are the real ones; only what it reads is made up. Run it with
`python -m bench.simulated_control PORT [STREAMS MEMBERS CHANGES_PER_S]` to look at the console.
"""

from __future__ import annotations

import asyncio
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from services.control.core.observed import (
    Answers,
    Cluster,
    Group,
    MemberStatus,
    Offsets,
    Plan,
    Rates,
    StreamStatus,
)
from services.control.live.feed import EventFeed
from shared.model.balance import plan
from shared.model.cluster import ClaimNode, MemberNode, PauseNode, ProducerNode, StreamNode, View
from shared.model.events import Event, encode_event
from shared.model.group import GroupSettings
from shared.model.head import Counts, Head
from shared.model.names import DEFAULT_GROUP
from shared.model.routing import initial_table

REFRESH_S = 0.5
MOVES_PER_S = 0.5
COMMIT_EVERY = 3


class SimulatedCluster:
    """All sources of control. Each reading of the offsets moves `changes_per_s` × REFRESH_S streams on."""

    def __init__(
        self, streams: int, members: int, changes_per_s: float, feed: EventFeed, seed: int = 1
    ) -> None:
        self._random = random.Random(seed)
        self._streams = streams
        self._table = initial_table(streams).encode().decode()
        self._members = [f"edge-{n:02d}" for n in range(members)]
        self._changes = round(changes_per_s * REFRESH_S)
        self._feed = feed
        self._owner = [self._members[n % members] for n in range(streams)]
        self._epoch = [1] * streams
        self._end = [self._random.randrange(1_000, 90_000) for _ in range(streams)]
        self._position = [end - self._random.randrange(60) for end in self._end]
        self._open = [self._random.randrange(400, 1_200) for _ in range(streams)]
        self._seq = [1] * streams
        self._slow = {streams * 2 // 3, streams // 5}
        self._since = time.time_ns() // 1_000_000
        self._event = 0
        self._rounds = 0
        self._pins = {streams // 2: self._owner[streams // 2]}
        self._draining: set[str] = set()
        self._pause: PauseNode | None = None

    def __repr__(self) -> str:
        return f"<SimulatedCluster of {self._streams} streams on {len(self._members)} members>"

    async def read_cluster(self) -> Cluster:
        """As ZooKeeper would tell it."""
        view = self._view()
        return Cluster(
            count=self._streams,
            stream_table=self._table,
            groups={DEFAULT_GROUP: Group(settings=GroupSettings(), view=view)},
            producers={"web-1": ProducerNode(address="http://10.0.4.2:8000", pid=7, since=self._since)},
        )

    async def change(self, group: str, change: Callable[[Mapping[int, str]], dict[int, str]]) -> None:
        """Changes the pins, as a `PinStore`."""
        self._pins = change(self._pins)

    async def drain(self, group: str, member: str, address: str, why: str) -> None:
        """Lets a member hand over its streams, one in each reading, as a `MemberDrain`."""
        self._draining.add(member)

    async def undrain(self, group: str, member: str, address: str, why: str) -> None:
        """Lets it take streams again."""
        self._draining.discard(member)

    async def pause(self, group: str, pause: PauseNode) -> None:
        """Pauses the group, as a `PauseStore`."""
        self._pause = pause

    async def resume(self, group: str) -> None:
        """Ends the pause."""
        self._pause = None

    def _view(self) -> View:
        return View(
            count=self._streams,
            members={
                name: MemberNode(
                    address=f"http://10.0.4.{n + 10}:8010",
                    pid=100 + n,
                    since=self._since,
                    state="draining" if name in self._draining else "active",
                )
                for n, name in enumerate(self._members)
            },
            claims={n: ClaimNode(member=self._owner[n], epoch=self._epoch[n]) for n in range(self._streams)},
            nodes={n: StreamNode(epoch=self._epoch[n], owner=self._owner[n]) for n in range(self._streams)},
            pins=self._pins,
            pause=self._pause,
        )

    async def read_offsets(self, count: int, groups: Iterable[str]) -> Offsets:
        """As Kafka would tell it; the world moves on."""
        self._step()
        heads = {
            n: Head(
                epoch=self._epoch[n],
                seq=self._seq[n],
                position=self._position[n],
                safe_offset=max(0, self._position[n] - 900),
                counts=Counts(fragments=self._position[n], bytes=self._position[n] * 200, sessions=n),
            )
            for n in range(count)
        }
        return Offsets(
            first=dict.fromkeys(range(count), 0), end=dict(enumerate(self._end)), heads={DEFAULT_GROUP: heads}
        )

    async def read_members(self, members: Mapping[tuple[str, str], MemberNode]) -> Answers:
        """As the members would tell it."""
        owned: dict[str, list[int]] = {name: [] for name in self._members}
        for stream, owner in enumerate(self._owner):
            owned[owner].append(stream)
        statuses = {
            (DEFAULT_GROUP, name): MemberStatus(
                id=name,
                group=DEFAULT_GROUP,
                since=self._since,
                lease_ms=4_400,
                rates=Rates(fragments_per_s=50 + n, bytes_per_s=1e4, sessions_per_s=4 + n / 10),
                streams=[
                    StreamStatus(
                        stream=stream,
                        epoch=self._epoch[stream],
                        state="running",
                        position=self._position[stream],
                        open_sessions=self._open[stream],
                        state_bytes=self._open[stream] * 5_300,
                    )
                    for stream in owned[name]
                ],
            )
            for n, name in enumerate(self._members)
        }
        quota = {name: len(streams) for name, streams in owned.items()}
        return Answers(statuses=statuses, plans={DEFAULT_GROUP: (self._members[0], Plan(quota=quota))})

    def _step(self) -> None:
        self._rounds += 1
        chance = self._random
        for stream in chance.sample(range(self._streams), min(self._changes, self._streams)):
            self._end[stream] += chance.randrange(1, 40)
            self._open[stream] = max(1, self._open[stream] + chance.randrange(-9, 10))
            if stream not in self._slow and chance.random() < 0.8:
                self._position[stream] = max(self._position[stream], self._end[stream] - chance.randrange(40))
                self._seq[stream] += 1
        for stream in self._slow:
            self._end[stream] += 400
            if self._rounds % COMMIT_EVERY == 0:
                self._position[stream] += 300
                self._seq[stream] += 1
        if len(self._members) > 1 and chance.random() < MOVES_PER_S * REFRESH_S:
            self._carry_out()

    def _carry_out(self) -> None:
        """Moves a stream to where the plan wants it, if there is one elsewhere."""
        owner = plan(self._view()).owner
        for stream, target in owner.items():
            if self._owner[stream] != target:
                self._move(stream, target)
                return
        for member in self._draining - set(self._owner):
            self._members.remove(member)
            self._draining.remove(member)
        stream = self._random.randrange(self._streams)
        others = [
            name for name in self._members if name not in self._draining and name != self._owner[stream]
        ]
        if others:
            self._move(stream, self._random.choice(others))

    def _move(self, stream: int, target: str) -> None:
        source = self._owner[stream]
        self._owner[stream] = target
        self._epoch[stream] += 1
        event = Event(
            at=time.time_ns() // 1_000_000,
            group=DEFAULT_GROUP,
            kind="handover",
            stream=stream,
            epoch=self._epoch[stream],
            source=source,
            target=target,
            why=f"pinned to {target}",
            sessions=self._open[stream],
            bytes=self._open[stream] * 5_300,
            copy_ms=round(self._random.uniform(20, 60), 1),
            pause_ms=round(self._random.lognormvariate(3.8, 0.4), 1),
            warm=True,
        )
        self._feed.receive([(self._event, encode_event(event))])
        self._event += 1


class Source:
    """One reading of the cluster, as a source of control's view."""

    def __init__(self, read: object) -> None:
        self.read = read


async def serve(port: int, streams: int = 24, members: int = 3, changes_per_s: float = 40.0) -> None:
    """Serves control on loopback until it is cancelled."""
    import uvicorn

    from bench.simulated_lookup import SimulatedOwners, SimulatedRecords, write_lake
    from bench.simulated_runs import SimulatedRunner
    from services.control.adapters.zookeeper_operations import ZooKeeperOperations
    from services.control.core.schedules import Schedule
    from services.control.http.console.routes import wall_ms
    from services.control.live.actions import Actions
    from services.control.live.cluster_view import ClusterView
    from services.control.live.effects import Effects
    from services.control.live.garbage import keep_collections_short
    from services.control.live.history import History
    from services.control.live.operations import Operations
    from shared.model.names import Names
    from tests.fakes.coordinator import InMemoryZooKeeper, ZnodeStore
    from tests.unit.control.sources import InMemoryProducers
    from tests.unit.control.test_app import app_on

    feed = EventFeed()
    feed.begin(0)
    world = SimulatedCluster(streams, members, changes_per_s, feed)
    feed.mark_current()
    view = ClusterView(
        Source(world.read_cluster),  # type: ignore[arg-type]
        Source(world.read_offsets),  # type: ignore[arg-type]
        Source(world.read_members),  # type: ignore[arg-type]
        InMemoryProducers(),
        Names(),
        refresh_s=REFRESH_S,
        status_window_s=20,
        ownership_history=feed.recent_events.ownership_history,
    )
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
    schedules = [Schedule(jobs=("lake", "reports"), every_s=900), Schedule(jobs=("audit",), every_s=21_600)]
    with tempfile.TemporaryDirectory() as lake:
        write_lake(Path(lake), streams)
        app = app_on(
            view,
            feed,
            SimulatedRunner(),
            lake=lake,
            owners=SimulatedOwners(),
            records=SimulatedRecords(),
            operations=operations,
            actions=actions,
            schedules=schedules,
            now_ms=wall_ms,
            history=history,
            paint_s=REFRESH_S,
        )
        keep_collections_short()
        config = uvicorn.Config(app, "127.0.0.1", port, log_level="warning", lifespan="off", loop="uvloop")
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(view.run())
            tasks.create_task(operations.run())
            tasks.create_task(history.run())
            await uvicorn.Server(config).serve()


def main(arguments: Sequence[str]) -> int:
    """Serves until Ctrl-C."""
    asyncio.run(serve(*map(int, arguments)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
