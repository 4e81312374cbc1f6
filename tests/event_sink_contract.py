"""What every chronicle promises those who tell, run against Kafka (integration) and the twin (unit).

A test module subclasses `EventSinkContract` and gives the fixture `world`: a chronicle whose topic is away
at first, and keeps at most three events meanwhile.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Protocol

from shared.model.events import MAX_EVENT_BYTES, Event


class Chronicle(Protocol):
    """Those who tell know `tell` alone; the rest is for those who watch."""

    dropped: int

    @property
    def waiting(self) -> int: ...

    def tell(self, event: Event) -> None: ...


class ChronicleWorld(ABC):
    """A chronicle and the topic behind it."""

    event_sink: Chronicle

    @abstractmethod
    async def come_back(self) -> None:
        """Lets the topic be written to."""

    @abstractmethod
    async def written(self, count: int) -> Sequence[Event]:
        """All events of the topic, once there are `count`."""


def numbered(stream: int) -> Event:
    """An event that can be told from the others."""
    return Event(at=1_000 + stream, group="default", kind="claim", member="m1", stream=stream, epoch=1)


class EventSinkContract:
    """Told in order, written in order; bounded while nothing can be written."""

    async def test_events_are_written_in_the_order_in_which_they_were_told(
        self, world: ChronicleWorld
    ) -> None:
        """Also when many are told at once."""
        await world.come_back()
        world.event_sink.tell(numbered(0))
        await world.written(1)

        for stream in range(1, 4):
            world.event_sink.tell(numbered(stream))

        assert await world.written(4) == [numbered(stream) for stream in range(4)]
        assert (world.event_sink.waiting, world.event_sink.dropped) == (0, 0)

    async def test_every_field_arrives(self, world: ChronicleWorld) -> None:
        """What was told is what is read."""
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

        world.event_sink.tell(event)

        assert await world.written(1) == [event]

    async def test_what_cannot_be_written_is_dropped(self, world: ChronicleWorld) -> None:
        """Nobody who tells is told off; the others are written, and the loss is counted."""
        await world.come_back()

        for why in ("x" * MAX_EVENT_BYTES, "\ud800", "fine"):
            world.event_sink.tell(Event(at=1, group="default", kind="leave", why=why))

        assert [event.why for event in await world.written(1)] == ["fine"]
        assert world.event_sink.dropped == 2

    async def test_while_the_topic_is_away_the_newest_events_wait(self, world: ChronicleWorld) -> None:
        """The oldest go, are counted, and the rest is written when it is back."""
        for stream in range(5):
            world.event_sink.tell(numbered(stream))
        assert (world.event_sink.waiting, world.event_sink.dropped) == (3, 2)

        await world.come_back()

        assert await world.written(3) == [numbered(stream) for stream in (2, 3, 4)]
        assert (world.event_sink.waiting, world.event_sink.dropped) == (0, 2)
