"""A group whose members hand streams over: what moved, how, and which records were read more than once."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable

from shared.model.events import Event, Kind
from tests.fakes.event_sink import InMemoryEventSink
from tests.unit.consumer.group_world import GroupWorld, Joined
from tests.unit.consumer.stream_world import LONG, HangingLog


class Heard(InMemoryEventSink):
    """Calls `after[kind]`, once, when such an event was told."""

    def __init__(self) -> None:
        super().__init__()
        self.after: dict[str, Callable[[], None]] = {}

    def emit(self, event: Event) -> None:
        super().emit(event)
        self.after.pop(event.kind, lambda: None)()


class HandoverWorld(GroupWorld):
    """A group of `count` streams; `logs` are all members' ways to the broker, dead ones' too."""

    def __init__(self, count: int) -> None:
        super().__init__(LONG, count)
        self.event_sink = self.heard = Heard()
        self.logs: list[HangingLog] = []
        self.dead: dict[str, Joined] = {}

    async def join(self, name: str) -> Joined:
        """A member that has begun to take part."""
        joined = await super().join(name)
        self.logs.append(joined.log)
        return joined

    async def with_open_sessions(self, *names: str) -> None:
        """These members have joined and share the streams; in each a session is open and one is closed."""
        for name in names:
            await self.join(name)
        await self.settled()
        self.fill()
        await self.committed()

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

    def events(self, kind: Kind) -> list[Event]:
        """What was told, of one kind."""
        return [event for event in self.event_sink.events if event.kind == kind]

    def read_again(self) -> set[tuple[int, int]]:
        """Streams and offsets of the records that were read more than once, by whomever."""
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
        """Ends a member this very moment; its ZooKeeper session lives on (see `bury`)."""
        one = self.dead[name] = self.members.pop(name)
        one.task.cancel()
        self.peers.hint_stores.pop(f"http://{name}", None)
        one.coordinator.zookeeper.disconnect()

    async def bury(self) -> None:
        """The ZooKeeper sessions of those that were struck down end."""
        for one in self.dead.values():
            await asyncio.wait([one.task])
            self.store.expire(one.session_id)

    def at_next(self, what: str, act: Callable[[], None]) -> None:
        """Does something when the next message of that name has taken effect, before its answer."""

        def after(sent: str) -> None:
            if sent == what:
                self.peers.after = lambda sent: None
                act()

        self.peers.after = after
