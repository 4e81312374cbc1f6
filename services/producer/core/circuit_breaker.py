"""Which streams Kafka does not take fragments for while it takes others', and when one is tried again.

Pure. A stream without a leader, without a topic, or whose topic refuses what is sent would cost all others
the Kafka client that they share, again and again. So after each failure its fragments are refused at once for
a while, which grows; then one request is let through to try it. Used by `kafka/sink.py`.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class _Ailment:
    why: str
    pause_s: float
    until_s: float
    is_on_trial: bool = False


class CircuitBreaker:
    """The first pause is `first_s`, each further one twice as long, none longer than `most_s`, or than
    `costly_s` where a failure costs all streams something.

    Who tries a stream may take `try_s`; until then all others are refused.
    """

    def __init__(
        self, *, first_s: float = 1.0, most_s: float = 10.0, costly_s: float = 60.0, try_s: float = 10.0
    ) -> None:
        self._first_s, self._most_s, self._costly_s, self._try_s = first_s, most_s, costly_s, try_s
        self._ailments: dict[int, _Ailment] = {}

    def __bool__(self) -> bool:
        return bool(self._ailments)

    def __repr__(self) -> str:
        return f"<CircuitBreaker {sorted(self._ailments)}>"

    def has(self, stream: int) -> bool:
        """Whether the stream is in trouble, refused or on trial."""
        return stream in self._ailments

    def told(self) -> list[str]:
        """What ails each of them, in a sentence."""
        return [f"stream {stream}: {self._ailments[stream].why}" for stream in sorted(self._ailments)]

    def refusal(self, stream: int, now_s: float) -> str:
        """Why a request's fragments of the stream are refused at once; empty: they may be sent."""
        ailment = self._ailments.get(stream)
        return ailment.why if ailment is not None and now_s < ailment.until_s else ""

    def sent(self, stream: int, now_s: float) -> None:
        """Fragments are being sent, which tries a stream in trouble."""
        ailment = self._ailments.get(stream)
        if ailment is not None:
            ailment.is_on_trial, ailment.until_s = True, now_s + self._try_s

    def fail(self, stream: int, why: str, now_s: float, *, is_costly: bool = False) -> None:
        """Fragments of the stream were sent in vain."""
        before = self._ailments.get(stream)
        pause_s = self._first_s if before is None else before.pause_s
        if before is not None and before.is_on_trial:
            pause_s = min(2 * pause_s, self._costly_s if is_costly else self._most_s)
        self._ailments[stream] = _Ailment(why, pause_s, now_s + pause_s)

    def heal(self, stream: int) -> None:
        """Kafka has taken fragments of the stream."""
        self._ailments.pop(stream, None)

    def forget_trials(self, now_s: float) -> None:
        """The client is gone that tried some: they may be tried again."""
        for ailment in self._ailments.values():
            if ailment.is_on_trial:
                ailment.is_on_trial, ailment.until_s = False, now_s
