"""The newest events of the topic `baton.events`, in a bounded ring, and the ownership history they add up to.

Pure. The feed adds records in the order of their offsets, which are the events' ids. `GET /events` lists them
from here. Records that are not events are counted and skipped.
"""

from __future__ import annotations

import itertools
from collections import deque
from dataclasses import dataclass

from services.control.core.events.ownership_history import OwnershipHistory
from shared.errors import InvalidInput
from shared.model.events import Event, encode_event, parse_event

KEPT = 10_000
"""Events that are kept: a few MB. Older ones are in the topic, for Kafka's own tools."""


@dataclass(frozen=True, slots=True)
class StoredEvent:
    """One event with its id, and both as JSON."""

    id: int
    event: Event
    row: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class EventFilter:
    """Which events to return; None and an empty set match all. `member` may also be donor or recipient."""

    group: str | None = None
    stream: int | None = None
    kinds: frozenset[str] = frozenset()
    member: str | None = None

    def matches(self, event: Event) -> bool:
        """Whether the event passes every part of the filter."""
        return (
            self.group in (None, event.group)
            and self.stream in (None, event.stream)
            and (not self.kinds or event.kind in self.kinds)
            and self.member in (None, event.member, event.source, event.target)
        )


class RecentEvents:
    """The newest `kept` events. `begin` sets the first id of the topic, `add` takes records in order.

    `floor <= id < next_id` for every kept event; only records that are not events are missing in between.
    """

    def __init__(self, kept: int = KEPT) -> None:
        self._kept = kept
        self._ring: deque[StoredEvent] = deque()
        self.ownership_history = OwnershipHistory()
        self.floor = 0
        self.next_id = 0
        self.unreadable = 0

    def __repr__(self) -> str:
        return f"<RecentEvents of {len(self._ring)} events before {self.next_id}>"

    def begin(self, first: int) -> None:
        """Drops everything: the topic's first record has the id `first` or a higher one."""
        self._ring.clear()
        self.ownership_history.forget()
        self.floor = self.next_id = first

    def add(self, event_id: int, raw: bytes | None) -> None:
        """Keeps the event of the record, whose offset is the next one or a higher one."""
        self.next_id = event_id + 1
        try:
            event = parse_event(raw or b"")
            row = b'{"id":%d,%b' % (event_id, encode_event(event)[1:])
        except InvalidInput:
            self.unreadable += 1
            return
        self._ring.append(StoredEvent(event_id, event, row))
        if len(self._ring) > self._kept:
            self.floor = self._ring.popleft().id + 1
        self.ownership_history.add(event)

    def newest(self, limit: int, event_filter: EventFilter) -> list[StoredEvent]:
        """The newest `limit` events that match, oldest first."""
        matching = (stored for stored in reversed(self._ring) if event_filter.matches(stored.event))
        return list(itertools.islice(matching, limit))[::-1]

    def before(self, event_id: int, limit: int, event_filter: EventFilter) -> list[StoredEvent]:
        """The last `limit` events below that id that match, oldest first."""
        older = (stored for stored in reversed(self._ring) if stored.id < event_id)
        return list(itertools.islice(filter(lambda one: event_filter.matches(one.event), older), limit))[::-1]

    def after(self, event_id: int, limit: int, event_filter: EventFilter) -> list[StoredEvent]:
        """The first `limit` events above that id that match, oldest first."""
        # from the newest down, since followers are nearly always at the end of the ring
        newer = itertools.takewhile(lambda stored: stored.id > event_id, reversed(self._ring))
        return [stored for stored in newer if event_filter.matches(stored.event)][::-1][:limit]

    @property
    def oldest(self) -> int | None:
        """The id of the oldest kept event; None without any."""
        return self._ring[0].id if self._ring else None

    def has_group(self, group: str) -> bool:
        """Whether a kept event is of this group, which may no longer exist."""
        return any(stored.event.group == group for stored in self._ring)

    def is_known_after(self, event_id: int) -> bool:
        """Whether every event after that id is kept; False for an id that lies in the future.

        A follower uses this to notice that events are gone.
        """
        return self.floor <= event_id + 1 <= self.next_id
