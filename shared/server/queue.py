"""The requests of one connection that are not answered: one is running, the others wait for its answer.

What waits counts as in flight (`Inflight`): a single read may bring thousands of requests, and their bodies.
Used by `connection.py`.
"""

from __future__ import annotations

from collections import deque

from shared.server.exchange import Exchange
from shared.service.inflight import Inflight

MAX_WAITING = 64
"""Requests that wait, 2 KB each."""


class RequestQueue:
    """`latest` is the one whose body may be arriving, answered or not; None before the first."""

    def __init__(self, inflight: Inflight) -> None:
        self._inflight = inflight
        self.running: Exchange | None = None
        self.waiting: deque[Exchange] = deque()
        self.latest: Exchange | None = None
        self.is_held = False
        """Nothing is started: the client does not read its answers."""

    def __repr__(self) -> str:
        return f"<RequestQueue: {self.running}, {len(self.waiting)} waiting>"

    @property
    def last(self) -> Exchange | None:
        """The one that is answered last; None if all are answered."""
        return self.waiting[-1] if self.waiting else self.running

    @property
    def is_full(self) -> bool:
        """Whether no more requests may wait."""
        return len(self.waiting) >= MAX_WAITING

    @property
    def can_start(self) -> bool:
        """Whether one waits that may run now."""
        return bool(self.waiting) and self.running is None and not self.is_held

    def add(self, exchange: Exchange, starts: bool) -> bool:
        """Starts the request if it may and it is its turn; False if it must wait, and has no room to."""
        self.latest = exchange
        if starts and self.running is None and not self.waiting and not self.is_held:
            self.running = exchange
            exchange.start()
            return True
        self.waiting.append(exchange)
        return self._has_room(1, 0)

    def add_body(self, data: bytes) -> bool:
        """Adds to the latest request's body; False if that waits, and its body has no room to."""
        latest = self.latest
        assert latest is not None
        if latest.is_answered:
            return True
        latest.body.append(data)
        latest.size += len(data)
        return not self.waiting or self._has_room(0, len(data))

    def end_body(self) -> None:
        """The latest request is complete."""
        latest = self.latest
        assert latest is not None
        latest.is_whole = True
        if latest is self.running:
            latest.arrived()

    def take_body(self) -> None:
        """Has the latest request take what has arrived of its body, if it is running."""
        latest = self.latest
        if latest is not None and latest is self.running:
            latest.arrived()

    def replace_latest(self, exchange: Exchange) -> None:
        """Puts a request without a body in place of the latest one, which waits."""
        self._inflight.add_waiting(0, -self.waiting[-1].size)
        self.latest = self.waiting[-1] = exchange

    def start_next(self) -> bool:
        """Runs the next request that waits, if there is one that can start; whether there was."""
        if not self.can_start:
            return False
        first = self.waiting.popleft()
        self._inflight.add_waiting(-1, -first.size)
        self.running = first
        first.start()
        return True

    def lose(self) -> None:
        """The client is gone: none of them starts or is answered any more."""
        self.is_held = True
        self.latest = None
        while self.waiting:
            lost = self.waiting.popleft()
            self._inflight.add_waiting(-1, -lost.size)
            lost.lose()
        if self.running is not None:
            lost, self.running = self.running, None
            lost.lose()

    def _has_room(self, requests: int, count: int) -> bool:
        self._inflight.add_waiting(requests, count)
        return self._inflight.has_room_to_wait()
