"""Compares delivered sessions with those of a generated log.

Pure. A fragment's id names its line, so a delivered session is converted to a session of the truth and the
two are compared as a whole; each fragment's data must equal its line byte by byte. Missing: never delivered.
Extra: not in the truth, or delivered again. Different: has the first line of a true session, but differs.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec

from cli.importing.parsing.fragments import fragment_id, log_digest
from cli.visits.generator import TrueSession, Visits
from shared.model.sessions import Session

MOST_EXAMPLES = 5


class _Fragment(msgspec.Struct):
    id: str
    data: msgspec.Raw


_decode = msgspec.json.Decoder(_Fragment).decode


@dataclass(slots=True)
class Findings:
    """The differences from the truth, with the first examples."""

    missing: int = 0
    extra: int = 0
    different: int = 0
    examples: list[str] = field(default_factory=list)

    @property
    def is_exact(self) -> bool:
        """Whether nothing differs."""
        return not (self.missing or self.extra or self.different)


class TruthCheck:
    """Compares every delivered session with the truth, then reports the differences.

    `name` and `origin` identify the log in the fragments' ids; a demo has no ledger, so it has no origin.
    """

    def __init__(self, visits: Visits, name: str, origin: str = "") -> None:
        self._lines = [msgspec.json.encode(line) for line in visits.lines]
        self._digest = log_digest(name, origin)
        # keyed by the first line: it identifies a session even if the rest differs
        self._left = {session.lines[0]: session for session in visits.truth}
        self._findings = Findings()

    def __repr__(self) -> str:
        return f"<TruthCheck, {len(self._left)} sessions left>"

    def add(self, session: Session) -> None:
        """Compares one delivered session."""
        numbers = [self._line_of(bytes(raw)) for raw in session.data]
        lines = sorted(number for number in numbers if number is not None)
        # popped, so that a second delivery finds nothing and counts as extra
        expected = self._left.pop(lines[0], None) if lines else None
        if expected is None:
            self._findings.extra += 1
            self._note(f"extra: a session of {session.key!r} from offset {session.first_offset}")
        elif None in numbers or expected != _as_truth(session, lines):
            self._findings.different += 1
            self._note(f"different: {expected.key!r} from line {expected.lines[0]}")

    def finish(self) -> Findings:
        """The differences, after every delivered session was added."""
        for session in self._left.values():
            self._note(f"missing: {session.key!r} from line {session.lines[0]}")
        self._findings.missing = len(self._left)
        return self._findings

    def _line_of(self, raw: bytes) -> int | None:
        """The number of the fragment's line; None when its data or id do not match that line."""
        try:
            fragment = _decode(raw)
            number = int(fragment.id.split("-")[1])
            # 0 would index the last line from behind
            line = self._lines[number - 1] if number > 0 else b""
        except (msgspec.DecodeError, ValueError, IndexError):
            return None
        is_line = bytes(fragment.data) == line and fragment.id == fragment_id(self._digest, number, line)
        return number if is_line else None

    def _note(self, sentence: str) -> None:
        if len(self._findings.examples) < MOST_EXAMPLES:
            self._findings.examples.append(sentence)


def _as_truth(session: Session, lines: list[int]) -> TrueSession | None:
    # the generator stays below every limit, so no true session ends this way
    if session.reason == "limit":
        return None
    return TrueSession(
        key=session.key,
        first_time=session.first_time,
        last_time=session.last_time,
        fragments=session.fragments,
        reason=session.reason,
        lines=lines,
    )
