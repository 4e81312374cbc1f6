"""What is remembered of the topic `baton.events`: the newest events, and what they say of each stream.

Pure. The feed adds records in the order of their offsets, which are the events' ids; the lists of
`GET /events` and the pasts of the streams are read from here. Records that are no events are counted.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from services.control.core.ownership_history import OwnershipHistory
from shared.errors import InvalidInput
from shared.model.events import Event, encode_event, parse_event

KEPT = 10_000
"""Events that are kept: some MB. What is older stands in the topic, for Kafka's own tools."""


@dataclass(frozen=True, slots=True)
class StoredEvent:
    """One event with its id, and both as JSON."""

    id: int
    event: Event
    row: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Which events are asked for; None and an empty set are all. `member` may also be giver or taker."""

    group: str | None = None
    stream: int | None = None
    kinds: frozenset[str] = frozenset()
    member: str | None = None

    def takes(self, event: Event) -> bool:
        """Whether the event is one of them."""
        return (
            self.group in (None, event.group)
            and self.stream in (None, event.stream)
            and (not self.kinds or event.kind in self.kinds)
            and self.member in (None, event.member, event.source, event.target)
        )


class RecentEvents:
    """The newest `kept` events; `begin` says from which id on there are any, then `add` them in order.

    `floor <= id < next_id` for every kept event; none is missing in between but those that are no events.
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
        """Forgets everything: what comes next is the first event that there is, at id `first` or above."""
        self._ring.clear()
        self.ownership_history.forget()
        self.floor = self.next_id = first

    def add(self, event_id: int, raw: bytes | None) -> None:
        """Takes in the record with the next (or any higher) offset."""
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
        self.ownership_history.remember(event)

    def newest(self, limit: int, wanted: Wanted) -> list[StoredEvent]:
        """The newest `limit` of the wanted events, in their order."""
        found: list[StoredEvent] = []
        for told in reversed(self._ring):
            if len(found) == limit:
                break
            if wanted.takes(told.event):
                found.append(told)
        return found[::-1]

    def after(self, event_id: int, limit: int, wanted: Wanted) -> list[StoredEvent]:
        """The first `limit` of the wanted events above that id, in their order."""
        found = [told for told in self._down_to(event_id) if wanted.takes(told.event)]
        return found[::-1][:limit]

    def is_known_after(self, event_id: int) -> bool:
        """Whether all that came after that id is kept; False for an id that has not been given yet."""
        return self.floor <= event_id + 1 <= self.next_id

    def _down_to(self, event_id: int) -> Iterator[StoredEvent]:
        for told in reversed(self._ring):
            if told.id <= event_id:
                return
            yield told
