"""Accepts each signed request once: a bounded memory of the nonces of valid envelopes.

A nonce is remembered until its envelope is too old to be valid. Only signed nonces get here, so only members
and control can fill the memory. When it is full it accepts nothing more until the oldest expire: better a
replay of a stream than of a request. A new process refuses what was signed before it started, since its
predecessor may have accepted that already. Used by `routes.py`.
"""

from __future__ import annotations

import heapq

from shared.errors import Unauthorized, Unavailable
from shared.service.signing import ACCEPTED_MS, Envelope

MAX_NONCES = 50_000
"""About 6 MB. A member that starts 60 handovers a second sends 14,400 nonces in two minutes, the longest that
one is remembered."""


class Nonces:
    """The nonces accepted so far; `since_ms`: when this process started, by its wall clock."""

    def __init__(self, since_ms: int, most: int = MAX_NONCES) -> None:
        self._forgotten_ms = since_ms
        """Everything signed up to here counts as accepted, also if the clock is set back."""
        self._most = most
        self._known: set[str] = set()
        self._by_time: list[tuple[int, str]] = []

    def __repr__(self) -> str:
        return f"<Nonces: {len(self._known)}, all up to {self._forgotten_ms}>"

    def accept(self, envelope: Envelope, now_ms: int) -> None:
        """Remembers the nonce of an envelope that is otherwise valid.

        Raises Unauthorized if it was accepted before, or was signed before this process started; Unavailable
        when the memory is full.
        """
        while self._by_time and self._by_time[0][0] < now_ms - ACCEPTED_MS:
            self._forgotten_ms, nonce = heapq.heappop(self._by_time)
            self._known.discard(nonce)
        if envelope.nonce in self._known:
            raise Unauthorized("the request was accepted before: it is a replay")
        if envelope.at_ms <= self._forgotten_ms:
            raise Unauthorized("signed before this member started, or too long ago: do the clocks agree?")
        if len(self._known) >= self._most:
            raise Unavailable("too many requests within a minute")
        self._known.add(envelope.nonce)
        heapq.heappush(self._by_time, (envelope.at_ms, envelope.nonce))
