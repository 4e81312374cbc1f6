"""Operations on real servers: control's commands reach real members, and it follows them to the end."""

from __future__ import annotations

import contextlib
import random
from collections.abc import AsyncIterator
from pathlib import Path

from services.control.adapters.processes.client import http_client
from services.control.adapters.processes.kept_connections import KeptConnections
from services.control.adapters.processes.signed_requests import HttpDrain, SignedRequests
from services.control.adapters.processes.statuses import HttpMembers, HttpProducers
from services.control.adapters.topics.offsets import KafkaOffsets
from services.control.adapters.znodes.cluster import ZooKeeperCluster
from services.control.adapters.znodes.operations import ZooKeeperOperations
from services.control.adapters.znodes.pause import ZooKeeperPause
from services.control.adapters.znodes.pins import ZooKeeperPins
from services.control.core.causes import Cause
from services.control.core.operations.operation import Operation
from services.control.core.operations.wishes import Wish
from services.control.live.acts.actions import Actions
from services.control.live.acts.effects import Effects
from services.control.live.acts.operations import Operations
from services.control.live.view.cluster_view import ClusterView
from shared.zookeeper.connection import ZooKeeper
from shared.zookeeper.secret import ensure_secrets
from tests.e2e.visits import Visits
from tests.integration.consumers import Group, group
from tests.integration.test_consumer_moves import judged
from tests.waiting import until


class Control:
    """Control's operations on a real cluster, without its HTTP API."""

    def __init__(self, view: ClusterView, operations: Operations) -> None:
        self._view = view
        self.operations = operations

    async def start(self, wish: Wish) -> Operation:
        """Waits for a fresh view in which every member answers, then starts the operation."""

        async def is_seen() -> bool:
            await self._view.step()
            answers = self._view.served().observed.answers
            return bool(answers.statuses) and not answers.silent

        await until(is_seen, lambda: f"{self._view.complaints()}")
        return await self.operations.start(wish, Cause(who="ann"))

    async def ended(self, operation: Operation) -> Operation:
        """Waits for the operation's end, and returns it as it ended."""

        async def has_ended() -> bool:
            await self._view.step()
            await self.operations.step()
            return self.operations.operation_of(operation.id).has_ended

        await until(has_ended, lambda: f"{self.operations.operation_of(operation.id)}")
        return self.operations.operation_of(operation.id)


@contextlib.asynccontextmanager
async def control(found: Group, zookeeper: str) -> AsyncIterator[Control]:
    """Control connected to the group's servers."""
    where = found.fleet.where
    async with contextlib.AsyncExitStack() as stack:
        znodes = await stack.enter_async_context(ZooKeeper(zookeeper, 6.0))
        offsets = await stack.enter_async_context(KafkaOffsets(where.kafka, where.names))
        http = await stack.enter_async_context(http_client())
        asked = await stack.enter_async_context(KeptConnections())
        cluster = ZooKeeperCluster(znodes, where.names)
        members, pins = HttpMembers(asked.get), ZooKeeperPins(znodes, where.names)
        signed = SignedRequests(http, lambda: ensure_secrets(znodes, where.names, ""), where.names.namespace)
        drain = HttpDrain(signed)
        producers = HttpProducers(asked.get)
        view = ClusterView(
            cluster, offsets, members, producers, where.names, refresh_s=0.1, status_window_s=20.0
        )
        store, actions = ZooKeeperOperations(znodes, where.names), Actions(lambda event: None)
        effects = Effects(view, pins, drain, ZooKeeperPause(znodes, where.names))
        operations = Operations(view, effects, store, actions, timeout_s=60.0, look_every_s=0.1)
        yield Control(view, operations)


async def test_a_pin_moves_a_stream_and_a_rebalance_moves_it_back(
    kafka: str, zookeeper: str, namespace: str, tmp_path: Path
) -> None:
    """Fragments keep arriving, and every session is delivered once."""
    visits = Visits(random.Random(3))
    async with group(kafka, zookeeper, namespace, tmp_path, streams=3) as found:
        found.fleet.environment["BATON_REST_S"] = "0.1"
        a, b = await found.join("a"), await found.join("b")
        await found.until(lambda: sorted([*a.running, *b.running]) == [0, 1, 2] and bool(b.running))
        rich, poor = (a, b) if len(a.running) == 2 else (b, a)
        stream, to = rich.running[0], poor.member.coordinator.member
        other = rich.running[1]
        async with control(found, zookeeper) as operators:
            await found.fleet.write(visits, 500)

            moving = await operators.start(Wish(kind="move", group="default", stream=stream, to=to))
            moved = await operators.ended(moving)
            after_move = sorted(poor.running)
            await found.fleet.write(visits, 500)
            more = await operators.start(Wish(kind="move", group="default", stream=other, to=to))
            pinned = await operators.ended(more)
            all_there = sorted(poor.running)
            back = await operators.ended(await operators.start(Wish(kind="rebalance", group="default")))

        assert (moved.state, moved.total) == ("done", 1), moved
        assert stream in after_move
        assert (pinned.state, pinned.why) == ("done", ""), pinned
        assert {stream, other} <= set(all_there)
        assert back.state == "done", back
        assert sorted([len(a.running), len(b.running)]) == [1, 2]
        await found.fleet.write(visits, 500)
        await found.fleet.close_all()
        await found.end()
        assert await judged(found) == []


async def test_a_drained_member_hands_everything_over_and_leaves(
    kafka: str, zookeeper: str, namespace: str, tmp_path: Path
) -> None:
    """Control sends it a signed `POST /drain` and removes its pins."""
    visits = Visits(random.Random(4))
    async with group(kafka, zookeeper, namespace, tmp_path, streams=4) as found:
        found.fleet.environment["BATON_REST_S"] = "0.1"
        a, b = await found.join("a"), await found.join("b")
        await found.until(lambda: len(a.running) == len(b.running) == 2)
        async with control(found, zookeeper) as operators:
            pin = Wish(kind="move", group="default", stream=a.running[0], to="a")
            await operators.ended(await operators.start(pin))
            await found.fleet.write(visits, 500)

            drained = await operators.ended(
                await operators.start(Wish(kind="drain", group="default", member="a"))
            )
            view = await b.member.coordinator.view()

        assert (drained.state, drained.done, drained.total) == ("done", 2, 2), drained
        assert b.running == [0, 1, 2, 3]
        assert (sorted(view.members), view.pins) == (["b"], {})
        await found.fleet.close_all()
        await found.end()
        assert await judged(found) == []


async def test_a_paused_group_reads_nothing_until_it_is_resumed_by_another_control(
    kafka: str, zookeeper: str, namespace: str, tmp_path: Path
) -> None:
    """Who paused it, and why, stands in ZooKeeper, and so do the operations: the next control shows both."""
    visits = Visits(random.Random(5))
    async with group(kafka, zookeeper, namespace, tmp_path, streams=2) as found:
        a = await found.join("a")
        await found.until(lambda: a.running == [0, 1])
        await found.fleet.write(visits, 200)
        async with control(found, zookeeper) as operators:
            pause = await operators.ended(await operators.start(Wish(kind="pause", group="default")))
        before = {worker.stream: worker.position for worker in a.member.workers}
        await found.fleet.write(visits, 200)
        async with control(found, zookeeper) as operators:
            while_paused = {worker.stream: worker.position for worker in a.member.workers}
            resume = await operators.start(Wish(kind="resume", group="default"))
            kept = operators.operations.operation_of(pause.id)
            resumed = await operators.ended(resume)

        assert (pause.state, kept, resumed.state) == ("done", pause, "done")
        assert while_paused == before
        await found.fleet.close_all()
        await found.end()
        assert await judged(found) == []
