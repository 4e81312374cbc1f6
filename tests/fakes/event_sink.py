"""The topic of events in memory, under the same contract as `KafkaEventSink`."""

from __future__ import annotations

from collections import deque

from shared.errors import InvalidInput
from shared.model.events import Event, encode_event


class InMemoryEventSink:
    """Keeps emitted events in `events`; while `is_away`, the newest `capacity` of them wait."""

    def __init__(self, capacity: int = 10_000) -> None:
        self.events: list[Event] = []
        self.is_away = False
        self.dropped = 0
        self._capacity = capacity
        self._waiting: deque[Event] = deque()

    def __repr__(self) -> str:
        return f"<InMemoryEventSink of {len(self.events)}, {self.waiting} waiting>"

    @property
    def waiting(self) -> int:
        """How many events are not written yet."""
        return len(self._waiting)

    def emit(self, event: Event) -> None:
        """Writes the event, or queues it."""
        try:
            encode_event(event)
        except InvalidInput:
            self.dropped += 1
            return
        self._waiting.append(event)
        if self.is_away and len(self._waiting) > self._capacity:
            self._waiting.popleft()
            self.dropped += 1
        self.flush()

    def flush(self) -> None:
        """Writes what waits, unless the topic is away."""
        while self._waiting and not self.is_away:
            self.events.append(self._waiting.popleft())
