"""Compares delivered sessions with the truth of a log that was made up.

Pure. A fragment's id names its line, so each delivered session is written as the truth writes sessions and
compared as a whole; each fragment's data must be its line, byte by byte. Missing: never delivered. Extra:
not in the truth, or delivered again. Different: delivered with the same first line, but otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec

from cli.generating import TrueSession, Visits
from cli.importing.fragments import fragment_id, log_digest
from shared.model.sessions import Session

MOST_EXAMPLES = 5


class _Fragment(msgspec.Struct):
    id: str
    data: msgspec.Raw


_decode = msgspec.json.Decoder(_Fragment).decode


@dataclass(slots=True)
class Findings:
    """What differs from the truth, with the first examples."""

    missing: int = 0
    extra: int = 0
    different: int = 0
    examples: list[str] = field(default_factory=list)

    @property
    def is_exact(self) -> bool:
        """Whether nothing differs."""
        return not (self.missing or self.extra or self.different)


class TruthCheck:
    """Takes every delivered session once, then says what differs from the truth.

    `name` is the log's name as the import gave it: it is part of the fragments' ids.
    """

    def __init__(self, visits: Visits, name: str) -> None:
        self._lines = [msgspec.json.encode(line) for line in visits.lines]
        self._digest = log_digest(name)
        self._left = {session.lines[0]: session for session in visits.truth}
        self._findings = Findings()

    def __repr__(self) -> str:
        return f"<TruthCheck, {len(self._left)} sessions left>"

    def see(self, session: Session) -> None:
        """Takes one delivered session."""
        numbers = [self._line_of(bytes(raw)) for raw in session.data]
        lines = sorted(number for number in numbers if number is not None)
        expected = self._left.pop(lines[0], None) if lines else None
        if expected is None:
            self._findings.extra += 1
            self._note(f"extra: a session of {session.key!r} from offset {session.first_offset}")
        elif None in numbers or expected != _as_truth(session, lines):
            self._findings.different += 1
            self._note(f"different: {expected.key!r} from line {expected.lines[0]}")

    def finish(self) -> Findings:
        """What differs, once every delivered session was seen."""
        for session in self._left.values():
            self._note(f"missing: {session.key!r} from line {session.lines[0]}")
        self._findings.missing = len(self._left)
        return self._findings

    def _line_of(self, raw: bytes) -> int | None:
        """The number of the fragment's line; None when it is not that line as it was read."""
        try:
            fragment = _decode(raw)
            number = int(fragment.id.split("-")[1])
            line = self._lines[number - 1] if number > 0 else b""
        except (msgspec.DecodeError, ValueError, IndexError):
            return None
        is_line = bytes(fragment.data) == line and fragment.id == fragment_id(self._digest, number, line)
        return number if is_line else None

    def _note(self, sentence: str) -> None:
        if len(self._findings.examples) < MOST_EXAMPLES:
            self._findings.examples.append(sentence)


def _as_truth(session: Session, lines: list[int]) -> TrueSession | None:
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
