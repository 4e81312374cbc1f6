"""Sessions as a function of the log: folds a stream's records, in offset order, into sessions.

This file decides where a session begins and ends (design section 4; the rule numbers below are those of
`docs/protocol.md`). It reads no clock: `a` is the broker's append time of a record, `t` its event time cut to
`a + future_ms`, A and W the highest of each so far. `Stream` (core/commits/stream.py) drives it, the audit
checks it by a second implementation, and closing late or early never changes what a session holds, since any
later fragment of a session that is due would split it.
"""

from __future__ import annotations

import bisect
from collections import OrderedDict
from collections.abc import Collection, Iterable, Sequence

from msgspec import UNSET

from services.consumer.core.sessions.record import Record, hash_id
from services.consumer.core.sessions.state import NO_IDS, Closed, Covered, OpenSession, is_droppable
from shared.model.fragments import FragmentRejected, parse_fragment, parse_marker, time_of
from shared.model.group import GroupSettings
from shared.model.head import NOTHING
from shared.model.sessions import Reason

REMEMBERED_IDS = 2_500
"""Newest ids that a key remembers of its last closed session: as many as a request may carry."""


class Assembler:
    """The open sessions of one stream, and what is needed to go on.

    Invariants: `open` is ordered by the sessions' last fragments, so sessions due by silence stand in
    front (w and last_a never fall in that order); `position` is the next offset to read; below
    `replay_until` nothing closes and nothing is counted. `covered` is ordered by offset. Since the last
    commit, `changed` were covered, and sessions of `unparked` closed that the checkpoint holds.
    """

    def __init__(
        self, settings: GroupSettings, *, position: int = 0, w: int = NOTHING, a: int = NOTHING
    ) -> None:
        self.settings = settings
        self.position = position
        self.replay_until = position
        self.w = w
        self.a = a
        self.open: OrderedDict[str, OpenSession] = OrderedDict()
        self.covered: dict[str, Covered] = {}
        self.changed: dict[str, Covered] = {}
        self.unparked: set[str] = set()
        self.state_bytes = self.bytes_read = 0
        self.fragments = self.bytes = self.repeats = self.markers = self.ticks = self.unreadable = 0
        self.last_unreadable: tuple[int, str] | None = None

    def __repr__(self) -> str:
        return (
            f"<Assembler at {self.position}, W {self.w}, A {self.a}, "
            f"{len(self.open)} open, {len(self.covered)} covered>"
        )

    @property
    def is_replaying(self) -> bool:
        """Whether records below the checkpoint's position are still to come."""
        return self.position < self.replay_until

    def restore(self, *, covered: dict[str, Covered], parked: Iterable[OpenSession], position: int) -> None:
        """Takes over a checkpoint: records from `self.position` up to `position` will be replayed."""
        self.covered = covered
        for session in parked:
            self.open[session.key] = session
            self.state_bytes += session.bytes
        self._order_open()
        self.replay_until = max(position, self.position)

    def adopt(
        self,
        *,
        position: int,
        w: int,
        a: int,
        sessions: OrderedDict[str, OpenSession],
        covered: dict[str, Covered],
        state_bytes: int,
    ) -> None:
        """Takes over what another owner had folded up to `position`, all of it committed."""
        self.position = self.replay_until = position
        self.w, self.a = w, a
        self.open, self.covered, self.state_bytes = sessions, covered, state_bytes

    def feed(self, records: Sequence[Record]) -> list[Closed]:
        """Folds the records, which follow `position` in offset order; the sessions they closed."""
        if not self.is_replaying:
            return self._fold(records, replaying=False)
        cut = bisect.bisect_left(records, self.replay_until, key=lambda record: record.offset)
        self._fold(records[:cut], replaying=True)
        if cut < len(records):
            self.position = max(self.position, self.replay_until)
        if not self.is_replaying:
            self._order_open()
        return self._fold(records[cut:], replaying=False)

    def advance(self, position: int) -> None:
        """The next offset to read is `position`: what lies below it is not there to be read."""
        was_replaying = self.is_replaying
        self.position = max(position, self.position)
        if was_replaying and not self.is_replaying:
            self._order_open()

    def _order_open(self) -> None:
        """Parked sessions and replayed ones are ordered by their last fragments, as in one fold."""
        self.open = OrderedDict(sorted(self.open.items(), key=lambda item: item[1].last_offset))

    def _fold(self, records: Sequence[Record], *, replaying: bool) -> list[Closed]:
        """The rules. One long loop with local names, because it is the hot path: about 2 µs a
        fragment beyond its parsing (`bench/sessionize.py`). While replaying nothing closes or counts.
        """
        closed: list[Closed] = []
        settings, sessions, covered = self.settings, self.open, self.covered
        gap, future, idle = settings.gap_ms, settings.future_ms, settings.idle_ms
        silence = gap + settings.lateness_ms
        max_fragments, max_bytes = settings.max_session_fragments, settings.max_session_bytes
        max_span = settings.max_session_span_ms
        w, a = self.w, self.a
        fragments = size_sum = joined = 0
        for record in records:
            offset, appended, a_before = record.offset, record.timestamp, a
            raw = record.value or b""
            if appended > a:  # rule 1
                a = appended
            if record.key is None:
                if not replaying:
                    self._mark(raw, offset, a, closed)
                continue
            try:
                fragment = parse_fragment(raw)
                time = None if fragment.time is UNSET else time_of(fragment)
                key = fragment.key
                if key.encode() != record.key:
                    raise FragmentRejected("key", "the record's key is not the fragment's")
            except FragmentRejected as error:
                if not replaying:
                    self._set_aside(offset, error.detail)
                continue
            t = appended if time is None else time if time <= appended + future else appended + future
            size = len(raw)
            fragments += 1
            size_sum += size
            session = sessions.get(key)
            if replaying:
                if self._is_accounted(key, session, offset):
                    w = t if t > w else w
                    continue
            elif session is not None and (
                t - session.last_t > gap or w - session.w > silence or a - session.last_a > idle
            ):  # rule 3
                closed.append(self._close(session, "gap", offset - 1, a))
                session = None

            hashed = None
            if fragment.id is not UNSET:  # rule 4
                hashed = hash_id(fragment.id)
                if self._is_repeat(key, session, hashed, offset, a):
                    if not replaying:
                        self.repeats += 1
                    w = t if t > w else w
                    continue

            if (
                session is not None
                and not replaying
                and (
                    len(session.data) >= max_fragments
                    or session.bytes + size > max_bytes
                    or (t if t > session.last_t else session.last_t)
                    - (t if t < session.low_t else session.low_t)
                    > max_span
                )
            ):  # rule 5
                closed.append(self._close(session, "limit", offset - 1, a))
                session = None

            if session is None:  # rule 6
                session = sessions[key] = OpenSession(key, offset, appended, t, w, a_before)
                if key in covered:
                    session.ids = self._remembered(key, a)
            else:
                sessions.move_to_end(key)
                if t > session.last_t:
                    session.last_t = t
                elif t < session.low_t:
                    session.low_t = t
                if session.pin < 0:
                    session.pin, session.pin_w, session.pin_a = offset, w, a_before
                session.last_offset = offset
            if t > w:
                w = t
            session.w = w
            session.last_a = a
            session.data.append(raw)
            session.bytes += size
            joined += size
            if hashed is not None:
                session.remember(hashed)
            if fragment.end and not replaying:
                closed.append(self._close(session, "end", offset, a))
        self.w, self.a = w, a
        self.state_bytes += joined
        self.bytes_read += size_sum
        if records:
            self.position = records[-1].offset + 1
        if not replaying:
            self.fragments += fragments
            self.bytes += size_sum
        return closed

    def close_due(self) -> list[Closed]:
        """Closes the sessions that are due by silence; nothing while replaying."""
        if self.is_replaying:
            return []
        silence = self.settings.gap_ms + self.settings.lateness_ms
        due = []
        for session in self.open.values():
            if not (self.w - session.w > silence or self.a - session.last_a > self.settings.idle_ms):
                break
            due.append(session)
        return [self._close(session, "gap", self.position - 1, self.a) for session in due]

    def drop_covered(self, safe_offset: int, safe_a: int) -> None:
        """Forgets covered keys that no replay from `safe_offset` (A before it: `safe_a`) can need; what was
        covered since the last commit need not even be written, unless it ends a parked session.
        """
        for key in self.forget_covered(safe_offset, safe_a):
            if key not in self.unparked:
                self.changed.pop(key, None)

    def forget_covered(self, safe_offset: int, safe_a: int, keep: Collection[str] = ()) -> list[str]:
        """Forgets those keys, but for what is to be kept; which they were."""
        dropped = []
        for key, entry in self.covered.items():
            if key in keep or not is_droppable(entry, safe_offset, safe_a, self.settings.repeat_ms):
                break
            dropped.append(key)
        for key in dropped:
            del self.covered[key]
        return dropped

    def _close(self, session: OpenSession, reason: Reason, covered_through: int, a: int) -> Closed:
        del self.open[session.key]
        self.state_bytes -= session.bytes
        if session.parked:
            self.unparked.add(session.key)
        ids = session.ids or NO_IDS
        if len(ids) > REMEMBERED_IDS:
            ids = dict.fromkeys(list(ids)[-REMEMBERED_IDS:])
        self._cover(session.key, Covered(offset=covered_through, last_a=session.last_a, ids=ids))
        return Closed(session=session, reason=reason, closed_at=a)

    def _cover(self, key: str, entry: Covered) -> None:
        self.covered.pop(key, None)
        self.covered[key] = self.changed[key] = entry

    def _is_accounted(self, key: str, session: OpenSession | None, offset: int) -> bool:
        """Whether a replayed record is covered, or stands in the checkpoint as parked."""
        entry = self.covered.get(key)
        if entry is not None and offset <= entry.offset:
            return True
        return session is not None and offset <= session.last_offset

    def _is_repeat(self, key: str, session: OpenSession | None, hashed: int, offset: int, a: int) -> bool:
        if session is not None:
            return session.ids is not None and hashed in session.ids
        entry = self.covered.get(key)
        if entry is None or hashed not in entry.ids or a > entry.last_a + self.settings.repeat_ms:
            return False
        self._cover(key, Covered(offset=offset, last_a=entry.last_a, ids=entry.ids))
        return True

    def _remembered(self, key: str, a: int) -> dict[int, None] | None:
        """What a session of the key takes over at its opening."""
        entry = self.covered[key]
        if not entry.ids or a > entry.last_a + self.settings.repeat_ms:
            return None
        return dict(entry.ids)

    def _mark(self, raw: bytes, offset: int, a: int, closed: list[Closed]) -> None:
        """A record without a key: rule 2, or a tick, or nothing readable."""
        try:
            marker = parse_marker(raw)
        except FragmentRejected as error:
            self._set_aside(offset, error.detail)
            return
        if marker.time is None:
            self.ticks += 1
            return
        self.markers += 1
        due = [session for session in self.open.values() if session.last_t <= marker.time]
        closed.extend(self._close(session, "gap", offset, a) for session in due)

    def _set_aside(self, offset: int, why: str) -> None:
        self.unreadable += 1
        self.last_unreadable = offset, why
