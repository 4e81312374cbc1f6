"""Compares the delivered sessions of one key with those that the audit's fold expects.

Pure. Both come in the order of their first offsets, so one pass joins them, and a key of any length needs no
more memory than its longest session. Missing: a session that a record below the stream's committed position
closed, but that was not delivered. Overdue: one that silence had ended there, but that was not delivered,
unless its owner is still delivering in parts what silence ended (`silent_to` in the head). Extra: a
delivered session that the fold neither closed nor permits to close, and every further copy of a session
except in `at_least_once`. Different: any field but `epoch`, or any byte of any fragment. `closed_at` must lie
between the last fragment and what closed the session, because silence may have closed it earlier.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from services.control.spark.audit.fold import NOT_LATE, Cut, Expected, KeyFold, Late, Line
from services.control.spark.audit.markers import Markers
from shared.model.group import GroupSettings
from shared.model.sessions import session_id

NOTHING_REMOVED = -1
ALL_REMOVED = 2**63 - 1


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
    """One difference, which counts `n` times."""

    kind: str
    id: str
    stream: int
    key: str
    detail: str
    n: int = 1


@dataclass(slots=True, kw_only=True)
class Tally:
    """Sums over keys.

    `expected`: sessions that had to be delivered, or were rightly delivered. `open`: not due at the position,
    nor closed below it. `not_judged`: retention removed what the judgement needs, or the log is an earlier
    one, or the session is `under_way`: silence had ended it, but its owner had not come to it yet.
    `duplicates`: further copies that the delivery permits. `lines`: fragments that were folded.
    """

    expected: int = 0
    judged: int = 0
    delivered: int = 0
    duplicates: int = 0
    open: int = 0
    not_judged: int = 0
    under_way: int = 0
    lines: int = 0
    lake_judged: int = 0
    lake_not_judged: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamFacts:
    """The facts of a stream that the judgement of its keys needs.

    `position`: committed, 0 without a head. `log`: number of the stream's log. `start`: the first offset that
    is left. How late it was: `silent` where all that silence had ended is delivered, `committed` at the
    position, `end` at the end of the log. `removed_until`: a session whose last fragment was not appended
    later (ms) may be missing only because retention has removed it from the sessions topic.
    """

    stream: int
    position: int
    log: int = 0
    start: int = 0
    markers: Markers = field(default_factory=Markers)
    cut: Cut | None = None
    silent: Late = NOT_LATE
    committed: Late = NOT_LATE
    end: Late = NOT_LATE
    removed_until: int = NOTHING_REMOVED


class KeyVerdict:
    """The verdict on one key of one stream. Deliver and feed in the order of offsets, then finish.

    Deliver a session before you feed the fragment at its `first_offset`.
    """

    def __init__(
        self, group: str, key: str, settings: GroupSettings, facts: StreamFacts, tally: Tally
    ) -> None:
        self.key = key
        self._group = group
        self._facts = facts
        self._tally = tally
        self._may_repeat = settings.delivery == "at_least_once"
        self._fold = KeyFold(settings, facts.markers, facts.cut)
        self._copies: dict[int, list[Delivered]] = {}
        """By first offset, those that are not judged yet: it happens when a session of the key closes."""

    def __repr__(self) -> str:
        return f"<KeyVerdict of {self.key!r}, delivered sessions are waiting at {sorted(self._copies)}>"

    def deliver(self, delivered: Delivered) -> list[Finding]:
        """Adds a delivered session of the key."""
        if delivered.fields is None:
            return [self._finding("extra", "", f"cannot be read: {delivered.why}")]
        first = delivered.fields["first_offset"]
        # of an earlier log: the stream was started over, and the log that the session came from is gone
        if delivered.fields["log"] < self._facts.log or first < self._facts.start:
            self._tally.not_judged += 1
            return []
        self._copies.setdefault(first, []).append(delivered)
        return []

    def feed(self, line: Line) -> list[Finding]:
        """Folds a fragment, and judges the sessions that it closed."""
        self._tally.lines += 1
        closed = self._fold.feed(line)
        if not closed:
            return []
        findings = []
        for session in closed:
            findings += self._judge(session)
        passed = [at for at in self._copies if at <= line.offset and at != self._fold.opens_at]
        for at in passed:
            findings += self._judge_extra(self._copies.pop(at))
        return findings

    def finish(self) -> list[Finding]:
        """Judges the rest: the last sessions, and the deliveries that match no session."""
        findings = []
        for session in self._fold.finish():
            findings += self._judge(session)
        for copies in self._copies.values():
            findings += self._judge_extra(copies)
        return findings

    def _judge_extra(self, copies: Sequence[Delivered]) -> list[Finding]:
        """Delivered sessions at an offset where none begins."""
        findings = []
        for copy in copies:
            assert copy.fields is not None
            first = copy.fields["first_offset"]
            if self._fold.is_unsure(first):
                self._tally.not_judged += 1
            else:
                self._tally.judged += 1
                detail = f"no session of this id begins at offset {first}"
                findings.append(self._finding("extra", copy.fields["id"], detail))
        return findings

    def _judge(self, session: Expected) -> list[Finding]:
        facts = self._facts
        name = session_id(self._group, facts.stream, self.key, session.first_offset, facts.log)
        copies: list[Delivered] = []
        others: list[Delivered] = []
        for one in self._copies.pop(session.first_offset, ()):
            assert one.fields is not None
            (copies if one.fields["id"] == name else others).append(one)
        findings = self._judge_extra(others)
        if not session.is_sure:
            self._tally.not_judged += 1
        elif copies:
            findings += self._judge_copies(name, session, copies)
        else:
            findings += self._judge_undelivered(name, session)
        return findings

    def _judge_undelivered(self, name: str, session: Expected) -> list[Finding]:
        facts, tally = self._facts, self._tally
        if session.closed_by is not None and session.closed_by < facts.position:
            kind, why = "missing", f"closed ({session.reason}) by the record at {session.closed_by}"
        elif self._fold.is_due(session, facts.silent, surely=True):
            kind, why = "overdue", f"ended by silence below the position {facts.position}"
        elif self._fold.is_due(session, facts.committed):
            tally.not_judged += 1
            tally.under_way += self._fold.is_due(session, facts.committed, surely=True)
            return []
        else:
            tally.open += 1
            return []
        if session.last_a <= facts.removed_until:
            tally.not_judged += 1
            return []
        tally.expected += 1
        tally.judged += 1
        return [self._finding(kind, name, f"offsets {session.first_offset} … {session.last_offset}, {why}")]

    def _judge_copies(self, name: str, session: Expected, copies: list[Delivered]) -> list[Finding]:
        self._tally.judged += len(copies)
        if session.closed_by is None and not self._fold.is_due(session, self._facts.end):
            return [self._finding("extra", name, "delivered, but nothing in the log ends it")] * len(copies)
        self._tally.expected += 1
        findings = []
        for number, copy in enumerate(copies):
            if number > 0 and not self._may_repeat:
                findings.append(self._finding("extra", name, f"delivered {len(copies)} times"))
                continue
            self._tally.duplicates += number > 0
            if faults := self._differences(name, session, copy):
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
        faults = []
        if not wanted.items() <= copy.fields.items():
            faults += [
                f"{field} is {copy.fields[field]!r} instead of {value!r}"
                for field, value in wanted.items()
                if copy.fields[field] != value
            ]
        if not self._has_closed_at(session, copy.fields["closed_at"]):
            faults.append(f"it cannot have closed at {copy.fields['closed_at']}")
        if not copy.has_own_key:
            faults.append("the record's key is not the session's")
        if len(copy.digests) != len(session.digests):
            faults.append(f"data holds {len(copy.digests)} fragments instead of {len(session.digests)}")
        elif copy.digests != session.digests:
            pairs = zip(copy.digests, session.digests, strict=True)
            wrong = [number for number, (is_, should_be) in enumerate(pairs) if is_ != should_be]
            faults.append(f"{len(wrong)} fragments differ, the first is number {wrong[0]}")
        return faults

    def _has_closed_at(self, session: Expected, closed_at: int) -> bool:
        """Whether A can have had this value when the session closed."""
        if closed_at < session.last_a:
            return False
        if self._facts.cut is not None:
            return True  # a removed record may have raised A
        a = self._facts.end.a if session.closed_a is None else session.closed_a
        return closed_at == a if session.reason in ("end", "limit") else closed_at <= a

    def _finding(self, kind: str, name: str, detail: str) -> Finding:
        return Finding(kind, name, self._facts.stream, self.key, detail)
