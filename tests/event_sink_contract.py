"""What every event sink guarantees, run against Kafka (integration) and the in-memory twin (unit).

A test module subclasses `EventSinkContract` and provides the fixture `world`: an event sink whose topic is
unavailable at first, and which keeps at most three events until then.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Protocol

from shared.model.events import MAX_EVENT_BYTES, Event


class EventSink(Protocol):
    """Members only call `emit`; the rest is for tests and operators."""

    dropped: int

    @property
    def waiting(self) -> int: ...

    def emit(self, event: Event) -> None: ...


class EventSinkWorld(ABC):
    """An event sink and the topic behind it."""

    event_sink: EventSink

    @abstractmethod
    async def come_back(self) -> None:
        """Makes the topic writable."""

    @abstractmethod
    async def written(self, count: int) -> Sequence[Event]:
        """Waits until the topic has `count` events, and returns all of them."""


def numbered(stream: int) -> Event:
    """An event that is recognised by its stream."""
    return Event(at=1_000 + stream, group="default", kind="claim", member="m1", stream=stream, epoch=1)


class EventSinkContract:
    """Events are written in order; while they cannot be written, a bounded number waits."""

    async def test_events_are_written_in_order(self, world: EventSinkWorld) -> None:
        """Even if many are emitted at once."""
        await world.come_back()
        world.event_sink.emit(numbered(0))
        await world.written(1)

        for stream in range(1, 4):
            world.event_sink.emit(numbered(stream))

        assert await world.written(4) == [numbered(stream) for stream in range(4)]
        assert (world.event_sink.waiting, world.event_sink.dropped) == (0, 0)

    async def test_every_field_arrives(self, world: EventSinkWorld) -> None:
        """A reader gets the event exactly as it was emitted."""
        event = Event(
            at=5,
            group="fraud",
            kind="handover",
            member="m2",
            stream=7,
            epoch=3,
            source="m1",
            target="m2",
            why="drain – „m1“",
            sessions=12,
            bytes=3456,
            copy_ms=7.5,
            pause_ms=31.25,
            warm=False,
        )
        await world.come_back()

        world.event_sink.emit(event)

        assert await world.written(1) == [event]

    async def test_an_unwritable_event_is_dropped(self, world: EventSinkWorld) -> None:
        """`emit` does not raise; the other events are written, and the loss is counted."""
        await world.come_back()

        for why in ("x" * MAX_EVENT_BYTES, "\ud800", "fine"):
            world.event_sink.emit(Event(at=1, group="default", kind="leave", why=why))

        assert [event.why for event in await world.written(1)] == ["fine"]
        assert world.event_sink.dropped == 2

    async def test_the_newest_events_wait_while_the_topic_is_unavailable(self, world: EventSinkWorld) -> None:
        """The oldest are dropped and counted; the rest are written once the topic is back."""
        for stream in range(5):
            world.event_sink.emit(numbered(stream))
        assert (world.event_sink.waiting, world.event_sink.dropped) == (3, 2)

        await world.come_back()

        assert await world.written(3) == [numbered(stream) for stream in (2, 3, 4)]
        assert (world.event_sink.waiting, world.event_sink.dropped) == (0, 2)
