"""One circuit breaker per stream, so that requests do not wait for a broken stream, again and again.

A request may hold fragments of several streams, and is answered when the outcome of all is known. If one
stream's topic is missing, has no leader, or does not acknowledge, all such requests would wait as long as
Kafka may take. Hence a failure opens the stream's circuit: its fragments are rejected at once, for a pause
that grows with every failed trial. After the pause, one request is sent as a trial, and the circuit is
half-open. If the trial succeeds, the circuit closes; if it fails, the circuit opens again.

Pure; the caller passes the time. Used by `kafka/sink.py`. Source: M. Nygard, "Release It!".
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class _Circuit:
    """A circuit that is open, or half-open while a trial is under way; a closed one is not stored."""

    reason: str
    pause_s: float
    rejects_until_s: float
    is_half_open: bool = False


class CircuitBreaker:
    """The circuits of all streams.

    The first pause is `first_pause_s`. Each failed trial doubles it, up to `max_pause_s`. A trial ends
    without a result after `trial_s`; until then all other requests are rejected.
    """

    def __init__(
        self,
        *,
        first_pause_s: float = 1.0,
        max_pause_s: float = 10.0,
        trial_s: float,
    ) -> None:
        self._first_pause_s = first_pause_s
        self._max_pause_s = max_pause_s
        self._trial_s = trial_s
        self._circuits: dict[int, _Circuit] = {}

    def __repr__(self) -> str:
        return f"<CircuitBreaker: not closed {sorted(self._circuits)}>"

    @property
    def is_any_open(self) -> bool:
        """Whether the circuit of any stream is open or half-open."""
        return bool(self._circuits)

    def is_closed(self, stream: int) -> bool:
        """Whether the stream works, as far as is known."""
        return stream not in self._circuits

    def rejection(self, stream: int, now_s: float) -> str:
        """Why a request for the stream is rejected now; empty if it may be sent."""
        circuit = self._circuits.get(stream)
        return circuit.reason if circuit is not None and now_s < circuit.rejects_until_s else ""

    def remarks(self) -> list[str]:
        """One sentence for each stream whose circuit is not closed."""
        return [f"stream {stream}: {self._circuits[stream].reason}" for stream in sorted(self._circuits)]

    def record_attempt(self, stream: int, now_s: float) -> None:
        """A request for the stream is being sent: the trial, if its circuit is not closed."""
        circuit = self._circuits.get(stream)
        if circuit is not None:
            circuit.is_half_open, circuit.rejects_until_s = True, now_s + self._trial_s

    def record_failure(self, stream: int, reason: str, now_s: float) -> None:
        """Opens the circuit; only a failed trial makes the pause longer."""
        before = self._circuits.get(stream)
        # several batches may have been in flight when the first one failed: only a trial is evidence anew
        pause_s = self._first_pause_s if before is None else before.pause_s
        if before is not None and before.is_half_open:
            pause_s = min(2 * pause_s, self._max_pause_s)
        self._circuits[stream] = _Circuit(reason, pause_s, now_s + pause_s)

    def record_success(self, stream: int) -> None:
        """Closes the circuit: Kafka acknowledged fragments of the stream."""
        self._circuits.pop(stream, None)
