"""A group whose members hand over streams: which moved, how, and which records were read more than once."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable

from shared.model.events import Event, Kind
from tests.fakes.event_sink import InMemoryEventSink
from tests.unit.consumer.group_world import GroupWorld, Joined
from tests.unit.consumer.stream_world import LONG, HangingLog


class ObservedEventSink(InMemoryEventSink):
    """Calls `after[kind]`, once, when an event of this kind is reported."""

    def __init__(self) -> None:
        super().__init__()
        self.after: dict[str, Callable[[], None]] = {}

    def emit(self, event: Event) -> None:
        super().emit(event)
        self.after.pop(event.kind, lambda: None)()


class HandoverWorld(GroupWorld):
    """A group of `count` streams; `logs`: every member's access to the broker, also of dead ones."""

    def __init__(self, count: int) -> None:
        super().__init__(LONG, count)
        self.event_sink = self.observed = ObservedEventSink()
        self.logs: list[HangingLog] = []
        self.dead: dict[str, Joined] = {}

    async def join(self, name: str) -> Joined:
        """Starts a member."""
        joined = await super().join(name)
        self.logs.append(joined.log)
        return joined

    def fill(self) -> None:
        """More of an open session in every stream, and a whole one."""
        for stream in range(self.count):
            self.emit("open", stream=stream)
            self.emit("other", stream=stream)
            self.emit("whole", stream=stream, end=True)

    async def all_closed(self) -> None:
        """Returns when every session has been delivered."""
        self.fill()
        self.close_all(self.count)
        await self.committed()

    async def finish(self) -> None:
        """Closes every session, checks that each was delivered once, and stops all members."""
        await self.all_closed()
        assert self.rows() == self.expected()
        await self.end()

    async def finish_without_replay(self) -> None:
        """As `finish`; also checks that until now no record was read more than once."""
        assert self.read_again() == set()
        await self.finish()

    def events(self, kind: Kind) -> list[Event]:
        """The reported events of one kind."""
        return [event for event in self.event_sink.events if event.kind == kind]

    def read_again(self) -> set[tuple[int, int]]:
        """Streams and offsets of the records that were read more than once, by any members."""
        times = Counter(record for log in self.logs for record in log.read)
        return {record for record, count in times.items() if count > 1}

    def epochs(self) -> dict[int, int]:
        """Stream → the epoch in which it is run; without those that are frozen."""
        workers = [worker for one in self.members.values() for worker in one.member.workers]
        return {worker.stream: worker.epoch for worker in workers if not worker.frozen.is_set()}

    def owners(self) -> dict[int, str]:
        """Stream → the member that runs it."""
        return {worker.stream: name for name, one in self.members.items() for worker in one.member.workers}

    def strike_down(self, name: str) -> None:
        """Ends a member at this very moment; its ZooKeeper session lives on until `bury`."""
        one = self.dead[name] = self.members.pop(name)
        one.task.cancel()
        self.peers.hint_stores.pop(f"http://{name}", None)
        one.coordinator.zookeeper.disconnect()

    async def bury(self) -> None:
        """Ends the ZooKeeper sessions of the members that were struck down."""
        for one in self.dead.values():
            await asyncio.wait([one.task])
            self.store.expire(one.session_id)

    def at_next(self, what: str, act: Callable[[], None]) -> None:
        """Acts when the next message of this name has taken effect, before its answer."""

        def after(sent: str) -> None:
            if sent == what:
                self.peers.after = lambda sent: None
                act()

        self.peers.after = after


async def sharing(count: int, *names: str) -> HandoverWorld:
    """A group whose members share `count` streams; in each of these a session is open and one is closed."""
    world = HandoverWorld(count)
    for name in names:
        await world.join(name)
    await world.settled()
    world.fill()
    await world.committed()
    return world
