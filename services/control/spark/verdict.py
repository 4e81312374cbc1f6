"""Compares the delivered sessions of one key with those that the audit's fold expects.

Pure. Missing: a session that a record below the stream's committed position closed, but that was not
delivered. A session that only silence makes due may be open or delivered. Extra: a delivered session that the
fold neither closed nor permits to close, and every further copy of a session except in `at_least_once`.
Different: any field but `epoch` and `closed_at`, or any byte of any fragment.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from services.control.spark.fold import Cut, Expected, KeyFold, Line, Mark
from shared.model.group import GroupSettings
from shared.model.sessions import session_id


class Delivered(NamedTuple):
    """A record of the sessions topic: its fields, and a digest of 16 bytes for each of its fragments.

    `fields` is None if the record is unreadable for the reason `why`. `has_own_key`: the record's key is the
    session's.
    """

    fields: Mapping[str, Any] | None
    digests: Sequence[bytes]
    has_own_key: bool = True
    why: str = ""


class Finding(NamedTuple):
    """One difference between the log and what was delivered."""

    kind: Literal["missing", "extra", "different"]
    id: str
    stream: int
    key: str
    detail: str


@dataclass(slots=True, kw_only=True)
class Tally:
    """Sums over keys.

    `expected`: sessions that had to be delivered, or rightly were. `open`: not due, or closed above the
    position. `not_judged`: retention removed what the judgement needs, or it stood in an earlier log.
    """

    expected: int = 0
    judged: int = 0
    open: int = 0
    not_judged: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamFacts:
    """The facts of a stream that the judgement of its keys needs.

    `position`: committed, 0 without a head. `log`: number of the stream's log. `start`: the first offset that
    is left. `markers`: ascending. `w`, `a`: at the end of the log.
    """

    stream: int
    position: int
    log: int = 0
    start: int = 0
    markers: Sequence[Mark] = ()
    cut: Cut | None = None
    w: int = -1
    a: int = -1


class KeyVerdict:
    """The verdict on one key: deliver what was delivered, feed the fragments in offset order, finish."""

    def __init__(
        self, group: str, key: str, settings: GroupSettings, facts: StreamFacts, tally: Tally
    ) -> None:
        self.key = key
        self._group = group
        self._facts = facts
        self._tally = tally
        self._may_repeat = settings.delivery == "at_least_once"
        self._fold = KeyFold(settings, facts.markers, facts.cut)
        self._delivered: dict[str, list[Delivered]] = {}

    def __repr__(self) -> str:
        return f"<KeyVerdict of {self.key!r}, {len(self._delivered)} delivered are unmatched>"

    def deliver(self, delivered: Delivered) -> list[Finding]:
        """Adds a delivered session of the key. Call it for all of them before the first fragment."""
        if delivered.fields is None:
            return [self._finding("extra", "", f"cannot be read: {delivered.why}")]
        if delivered.fields["log"] < self._facts.log:
            self._tally.not_judged += 1  # the stream was started over, and the log it stood in is gone
            return []
        self._delivered.setdefault(delivered.fields["id"], []).append(delivered)
        return []

    def feed(self, line: Line) -> list[Finding]:
        """Folds a fragment, and judges the sessions that it closed."""
        closed = self._fold.feed(line)
        return [finding for session in closed for finding in self._judge(session)] if closed else []

    def finish(self) -> list[Finding]:
        """Judges the rest: the last sessions, and the deliveries that match no session."""
        sessions = self._fold.finish(self._facts.w, self._facts.a)
        findings = [finding for session in sessions for finding in self._judge(session)]
        for name, copies in self._delivered.items():
            for copy in copies:
                assert copy.fields is not None
                first = copy.fields["first_offset"]
                if first < self._facts.start or self._fold.is_unsure(first):
                    self._tally.not_judged += 1
                else:
                    self._tally.judged += 1
                    findings.append(self._finding("extra", name, f"no session begins at offset {first}"))
        return findings

    def _judge(self, session: Expected) -> list[Finding]:
        facts = self._facts
        name = session_id(self._group, facts.stream, self.key, session.first_offset, facts.log)
        copies = self._delivered.pop(name, [])
        if not session.is_sure:
            self._tally.not_judged += 1
            return []
        if copies:
            return self._judge_copies(name, session, copies)
        if session.closed_by is None or session.closed_by >= self._facts.position:
            self._tally.open += 1
            return []
        self._tally.expected += 1
        self._tally.judged += 1
        span = f"{session.first_offset} … {session.last_offset}"
        closing = f"closed ({session.reason}) by the record at {session.closed_by}"
        return [self._finding("missing", name, f"offsets {span}, {closing}")]

    def _judge_copies(self, name: str, session: Expected, copies: list[Delivered]) -> list[Finding]:
        self._tally.judged += len(copies)
        if session.closed_by is None and not session.is_due:
            return [self._finding("extra", name, "delivered, but nothing in the log ends it")] * len(copies)
        self._tally.expected += 1
        findings = []
        for number, copy in enumerate(copies):
            if number > 0 and not self._may_repeat:
                findings.append(self._finding("extra", name, f"delivered {len(copies)} times"))
            elif faults := self._differences(name, session, copy):
                findings.append(self._finding("different", name, "; ".join(faults)))
        return findings

    def _differences(self, name: str, session: Expected, copy: Delivered) -> list[str]:
        wanted = {
            "id": name,
            "group": self._group,
            "key": self.key,
            "stream": self._facts.stream,
            "log": self._facts.log,
            "first_offset": session.first_offset,
            "last_offset": session.last_offset,
            "first_time": session.first_t,
            "last_time": session.last_t,
            "opened_at": session.appended,
            "fragments": len(session.digests),
            "bytes": session.size,
            "reason": session.reason,
        }
        assert copy.fields is not None
        faults = [
            f"{field} is {copy.fields[field]!r} instead of {value!r}"
            for field, value in wanted.items()
            if copy.fields[field] != value
        ]
        if not copy.has_own_key:
            faults.append("the record's key is not the session's")
        if len(copy.digests) != len(session.digests):
            faults.append(f"data holds {len(copy.digests)} fragments instead of {len(session.digests)}")
        else:
            pairs = zip(copy.digests, session.digests, strict=True)
            wrong = [number for number, (is_, should_be) in enumerate(pairs) if is_ != should_be]
            if wrong:
                faults.append(f"{len(wrong)} fragments differ, the first is number {wrong[0]}")
        return faults

    def _finding(self, kind: Literal["missing", "extra", "different"], name: str, detail: str) -> Finding:
        return Finding(kind, name, self._facts.stream, self.key, detail)
