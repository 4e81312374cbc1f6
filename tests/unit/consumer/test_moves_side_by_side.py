"""Copies travel side by side, one stream per recipient stands still: whole members in virtual time.

Every call costs what it costs on real servers: time on the wire, and work of the two members' cores.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import pytest

from services.consumer.core.handover.turns import MOST_AT_ONCE, TURN_LIMIT_S
from services.consumer.stream.worker import StreamWorker
from tests.fakes.virtual_time import until, virtual_time
from tests.unit.consumer.group_world import Joined
from tests.unit.consumer.handover_world import HandoverWorld

T = TypeVar("T")

WIRE_S = 0.002
"""A request to ZooKeeper or another member, there and back."""
FENCE_S = 0.005
"""Kafka's answer to a new owner."""
COPY_S = 0.003
"""What a copy of some hundred KB costs the core at each end."""
LOOK_S = 1.5e-6
"""What a stream of the group costs a core at each end of a look: a plan of 1,000 takes 3 ms."""
STEP_S = 0.001
"""What everything else costs a core."""


class Core:
    """A member's core: it does one thing at a time."""

    def __init__(self) -> None:
        self._free = asyncio.Lock()

    async def work(self, seconds: float) -> None:
        async with self._free:
            await asyncio.sleep(seconds)


class CostlyWorld(HandoverWorld):
    """A group in which moves cost time; notes when each stream stands still, and where it goes."""

    def __init__(self, count: int) -> None:
        super().__init__(count)
        self.cores: dict[str, Core] = {}
        self.still: dict[int, float] = {}
        """Streams that stand still now, and since when."""
        self.most_still = 0
        self.copies = self.most_copies = 0

    async def join(self, name: str) -> Joined:
        joined = await super().join(name)
        core = self.cores[name] = Core()
        for what in ("claim", "release", "adopt"):
            _slow(joined.coordinator, what, self._costing(core, core, WIRE_S, STEP_S))
        peers: Any = joined.member.effect_runner._peers
        offer = peers.offer

        async def copied(address: str, *message: Any) -> None:
            self.copies += 1
            self.most_copies = max(self.most_copies, self.copies)
            try:
                await self._cost(core, self.cores[address.removeprefix("http://")], WIRE_S, COPY_S)
                await offer(address, *message)
            finally:
                self.copies -= 1

        peers.offer = copied
        complete = peers.complete

        async def completed(address: str, *message: Any) -> None:
            await self._cost(core, self.cores[address.removeprefix("http://")], WIRE_S, STEP_S)
            await complete(address, *message)

        peers.complete = completed
        _slow(joined.member, "step", self._costing(core, core, 0.0, self.count * LOOK_S))

        async def fence() -> None:
            await self._cost(core, core, FENCE_S, STEP_S)

        joined.log.before_open = fence
        return joined

    async def _cost(self, one: Core, other: Core, wire_s: float, core_s: float) -> None:
        await one.work(core_s)
        await asyncio.sleep(wire_s)
        await other.work(core_s)

    def _costing(self, one: Core, other: Core, wire_s: float, core_s: float) -> Callable[[], Awaitable[None]]:
        return lambda: self._cost(one, other, wire_s, core_s)

    def watch_standstills(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """From now on notes what stands still: from a donor's stop to the recipient's opening."""
        loop = asyncio.get_running_loop()
        freeze, is_open = StreamWorker.freeze, StreamWorker._open

        def freezing(worker: StreamWorker) -> None:
            self.still.setdefault(worker.stream, loop.time())
            self.most_still = max(self.most_still, len(self.still))
            freeze(worker)

        async def opening(worker: StreamWorker, how: Any) -> Any:
            found = await is_open(worker, how)
            self.still.pop(worker.stream, None)
            return found

        monkeypatch.setattr(StreamWorker, "freeze", freezing)
        monkeypatch.setattr(StreamWorker, "_open", opening)

    def pauses_ms(self) -> list[int]:
        """Of all handovers so far."""
        return sorted(int(event.pause_ms or 0) for event in self.events("handover"))


def _slow(owner: Any, name: str, cost: Callable[[], Awaitable[None]]) -> None:
    act = getattr(owner, name)

    async def slowly(*arguments: Any) -> Any:
        await cost()
        return await act(*arguments)

    setattr(owner, name, slowly)


async def costly(count: int, *names: str) -> CostlyWorld:
    """A group whose members share `count` streams."""
    world = CostlyWorld(count)
    for name in names:
        await world.join(name)
    await until(lambda: sum(len(one.running) for one in world.members.values()) == count, within_s=60)
    return world


@virtual_time
async def test_in_a_drain_one_stream_at_a_time_stands_still(monkeypatch: pytest.MonkeyPatch) -> None:
    """The copies of the others travel meanwhile, and none is replayed."""
    world = await costly(24, "a", "b")
    await asyncio.sleep(12)
    world.fill()
    await world.committed()
    world.watch_standstills(monkeypatch)

    await world.stop("a")
    await world.settled()
    await asyncio.sleep(1)

    assert (world.most_still, world.most_copies) == (1, 8)
    moved = [event for event in world.events("handover") if event.why == "draining"]
    assert len(moved) == 12
    assert all(event.warm for event in moved)
    assert max(event.pause_ms or 0 for event in moved) < 60
    await world.finish_without_replay()


@virtual_time
async def test_of_several_donors_one_stream_at_a_time_stands_still(monkeypatch: pytest.MonkeyPatch) -> None:
    """A new member gets streams of all others: it decides whose turn it is."""
    world = await costly(24, "a", "b", "c")
    await asyncio.sleep(12)
    world.fill()
    await world.committed()
    world.watch_standstills(monkeypatch)

    await world.join("d")
    await world.settled()
    await asyncio.sleep(1)

    assert world.most_still == 1
    moved = [event for event in world.events("handover") if event.target == "d"]
    assert {event.source for event in moved} == {"a", "b", "c"}
    assert all(event.warm for event in moved)
    await world.finish_without_replay()


@virtual_time
async def test_a_donor_that_dies_in_its_turn_delays_the_others_by_a_second(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Their streams run on meanwhile."""
    world = await costly(12, "a", "b", "c")
    await asyncio.sleep(12)
    world.watch_standstills(monkeypatch)
    loop = asyncio.get_running_loop()
    world.at_next("offer", lambda: world.strike_down("a"))
    stopped = loop.time()

    leaving = world.members["a"].member
    leaving.departure.drain("asked")
    await until(lambda: "a" in world.dead)
    world.members["b"].member.departure.drain("asked")
    await until(lambda: len(world.members["c"].running) >= 8, within_s=10)

    assert loop.time() - stopped < TURN_LIMIT_S + 1
    await world.bury()
    await until(lambda: len(world.members["c"].running) == 12, within_s=10)


@virtual_time
async def test_a_thousand_streams_drain_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Within `BATON_RELEASE_S`, to a single recipient, without a replay."""
    world = await costly(1000, "a")
    await world.join("b")
    world.watch_standstills(monkeypatch)
    took_s = await world.stop("a")

    await until(lambda: len(world.members["b"].running) == 1000, within_s=30)
    assert took_s < world.pace.drain_s
    assert world.most_still <= MOST_AT_ONCE
    await asyncio.sleep(1)
    print(took_s, world.most_still, max(world.pauses_ms()))
    moved = world.events("handover")
    assert len(moved) == 1000
    assert all(event.warm for event in moved)
