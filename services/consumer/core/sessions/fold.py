"""The rules that turn a log into sessions: the heart of Baton, whose result all other code protects.

A stream is a log of records in offset order. Most records are *fragments*: a piece of some key's
activity. A record without a key is a *marker* ("all event time up to t has been sent") or a *tick* ("it
is at least this late"). To fold the log means to read it once, first record to last, and keep one open
session per key:

    fragments of one key     ●──●────●─●             ●───●──■          ●───●
    its sessions            └─────────────┘         └────────┘        └─ ─ ─ ─
                             silence: `gap`          `end`: true       still open

A session's life:

    first fragment ──► open ──┬── a fragment joins ───────► open
                              ├── silence, or a marker ───► closed, reason `gap`
                              ├── a limit is reached ─────► closed, reason `limit`
                              └── a fragment says `end` ──► closed, reason `end`

There are two clocks, and neither is ours. Clients choose a fragment's event time, `t`. The broker stamps
its append time, `a`. `W` is the highest t so far, and `A` is the highest a. Both are needed: by W an
imported log of last year closes its sessions as fast as it is read; by A sessions close while the clients'
clocks stand still. A member's own clock has no say. So sessions depend on the log alone: anyone who folds
it finds the same ones, in batches of any size, after any crash. That is why a successor may replay, an
auditor may recompute, and a handover can be checked.

For each record, in this order:

1. A rises to the record's append time. A record that cannot be read is set aside and has no other effect.
2. A marker closes every open session whose newest event time is at or before the marker's. A tick does
   nothing beyond rule 1: it lets time pass on a stream to which nobody writes.
3. A fragment that comes after silence first closes its key's open session. Silence means one of three
   things. The fragment's t is more than `gap` after the session's newest. Or W has risen by more than
   `gap + lateness` since the session's last fragment. Or A has risen by more than `idle`. A fragment that
   is only late, its t below the session's newest, joins: lateness widens the limit for W, not the one for t.
4. A repeated id is dropped: one that the open session has, or that the key remembers from a session that
   closed (`remembered.py`). Only W rises.
5. If the fragment would take the session past a limit (fragments, bytes, time span), it closes it first.
6. The fragment joins the open session, or opens one. W rises. If it says `end`, it closes the session
   with it. In a group that follows another one, a fragment that is covered opens nothing: it stands in a
   session of the followed group (`seam.py`). Only W rises.

Sessions that silence has ended may be closed now or later (`close_silent`). Any later fragment of the key
would split them by rule 3, so the moment at which we look does not change what they hold. `open` is
in order of last fragments, and W and A never fall along the log. So the silent sessions are always the
first ones in `open`.

A single record may close more sessions than one commit can carry: a marker, or the first record after an
outage. So closing stops when `room` is used up, and goes on after the commit. Silence can wait anyway. A
fragment closes two sessions at most, and the fold stops after it. A marker is folded again until it finds
nothing more to close, and only then does the position pass it: a replay closes nothing, so a successor must
still read the marker. That is safe because a marker that is folded twice closes nothing twice.

*Replaying* rebuilds what an earlier owner had open, from the log below the position that it committed.
Nothing closes or counts there. Fragments that are covered or parked are skipped; every other one belongs
to a session that was open at that position (`assembly.py`). `docs/protocol.md` states these rules as a
contract, `tests/reference.py` follows them as slowly and plainly as possible, and
`services/control/spark/audit/fold.py` is the audit's second opinion.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import islice, takewhile

from msgspec import UNSET

from services.consumer.core.sessions.covered import CoveredKeys
from services.consumer.core.sessions.marker_search import CLOSED_AT_ONCE, due_by
from services.consumer.core.sessions.open_table import OpenTable
from services.consumer.core.sessions.record import Record, hash_id
from services.consumer.core.sessions.state import Closed, OpenSession
from shared.model.fragments import Fragment, FragmentRejected, parse_fragment, parse_marker, time_of
from shared.model.group import GroupSettings
from shared.model.head import NOTHING
from shared.model.sessions import Reason

Rebuild = Callable[[Fragment, int, bytes, Record, int], None]
"""Takes a fragment that is replayed, with its t, its bytes, its record, and A before it."""


class Fold:
    """The open sessions of a stream and what the rules need beside them.

    `open`: key → session, in order of the sessions' last fragments (`open_table.py`). `pinned`: those of
    them that a replay must rebuild, in order of their pins. `w`, `a`: W and A (ms). `state_bytes`: size of
    the open sessions' fragments. `room`: how many bytes of sessions may still be closed. The counters leave
    out what is replayed.
    """

    def __init__(self, settings: GroupSettings, *, w: int = NOTHING, a: int = NOTHING) -> None:
        self.w = w
        self.a = a
        self.open = OpenTable()
        self.pinned: dict[str, OpenSession] = {}
        self.room: float = math.inf
        self._marker: tuple[int, Iterator[OpenSession | None]] | None = None
        self.covered = CoveredKeys(settings.repeat_ms)
        self.state_bytes = self._bytes_read_before = 0
        self.fragments = self.bytes = self.dropped = self.skipped = 0
        self.markers = self.ticks = self.unreadable = 0
        self.last_unreadable: tuple[int, str] | None = None
        self._settings = settings
        self._future = settings.future_ms
        self._set_thresholds()

    @property
    def bytes_read(self) -> int:
        """Size of all fragments that were read, replayed ones and those of an earlier owner included."""
        return self._bytes_read_before + self.bytes

    @property
    def repeats(self) -> int:
        """How many fragments were dropped by rule 4; the others that were dropped are covered."""
        return self.dropped - self.skipped

    @property
    def is_within_record(self) -> bool:
        """Whether a marker was folded in part: more of what it closes is to come."""
        return self._marker is not None

    def fold(
        self, records: Sequence[Record], rebuild: Rebuild | None = None
    ) -> tuple[list[Closed], Record | None]:
        """Folds the records, in offset order, until no room is left. Returns the sessions that they closed,
        and the first record that is not folded to its end, None if all are.

        `rebuild` replays them: it gets each fragment in place of rules 3 to 6, and nothing else counts.

        The hot loop: about 1.6 µs a fragment (`bench/sessionize.py`), of which one more call would be 5 %. So
        the steps are written out where they happen, and only what is rare or shared is a function.
        """
        closed: list[Closed] = []
        todo = iter(records)
        if self.room <= 0:
            return closed, next(todo, None)
        for record in todo:
            a_before, appended = self.a, record.timestamp
            raw = record.value or b""
            if appended > a_before:  # rule 1
                self.a = appended
            if record.key is None:
                if rebuild is None and not self._fold_keyless(raw, record.offset, closed):
                    return closed, record
                continue
            try:
                fragment = parse_fragment(raw)
                t = appended if fragment.time is UNSET else self._event_time(fragment, appended)
                if fragment.key.encode() != record.key:
                    raise FragmentRejected("key", "the record's key is not the fragment's")
            except FragmentRejected as error:
                if rebuild is None:
                    self._set_aside(record.offset, error.detail)
                continue
            if rebuild is not None:
                rebuild(fragment, t, raw, record, a_before)
                continue
            self.fragments += 1
            self.bytes += len(raw)
            session = self._add(fragment, t, raw, record, a_before, closed)
            if session is None:
                self.dropped += 1
            elif fragment.end:
                closed.append(self._close(session, "end", record.offset))
            if self.room <= 0:
                break
        return closed, next(todo, None)

    def close_silent(self, position: int) -> list[Closed]:
        """Closes sessions that silence has ended, at most `CLOSED_AT_ONCE` and until no room is left.

        It visits at most that many. `position`: the next offset to fold. Their keys are covered through the
        offset before it: no record of theirs lies between their last fragments and there.
        """
        closed: list[Closed] = []
        if self.room <= 0:
            return closed
        for session in list(takewhile(self._is_silent, islice(self.open.values(), CLOSED_AT_ONCE))):
            closed.append(self._close(session, "gap", position - 1))
            if self.room <= 0:
                break
        return closed

    def forget_marker(self) -> None:
        """Forgets how far a marker was folded: when it is read again, it is searched from the start."""
        self._marker = None

    def _is_silent(self, session: OpenSession) -> bool:
        return self.w - session.w > self._silence or self.a - session.last_a > self._idle

    def _set_thresholds(self) -> None:
        settings = self._settings
        self._gap: float = settings.gap_ms
        self._silence: float = settings.gap_ms + settings.lateness_ms
        self._idle: float = settings.idle_ms
        self._max_fragments: float = settings.max_session_fragments
        self._max_bytes: float = settings.max_session_bytes
        self._max_span: float = settings.max_session_span_ms

    def _event_time(self, fragment: Fragment, appended: int) -> int:
        """t of a fragment with a time: a client's clock may be ahead, but must not carry W away with it."""
        time = time_of(fragment)
        assert time is not None
        latest = appended + self._future
        return time if time <= latest else latest

    def _add(
        self, fragment: Fragment, t: int, raw: bytes, record: Record, a_before: int, closed: list[Closed]
    ) -> OpenSession | None:
        """Rules 3 to 6, without `end`: the fragment's session now, or None if the fragment is dropped."""
        key, offset, size = fragment.key, record.offset, len(raw)
        session = self.open.get(key)
        if session is not None and (
            t - session.last_t > self._gap
            or self.w - session.w > self._silence
            or self.a - session.last_a > self._idle
        ):  # rule 3
            closed.append(self._close(session, "gap", offset - 1))  # this fragment is part of the next one
            session = None
        hashed = None if fragment.id is UNSET else hash_id(fragment.id)
        if hashed is not None and self._is_repeat(key, session, hashed):  # rule 4
            self._drop_repeat(key, session, offset, t)
            return None
        if session is not None and (
            len(session.data) >= self._max_fragments
            or session.bytes + size > self._max_bytes
            or t - session.low_t > self._max_span
            or session.last_t - t > self._max_span
        ):  # rule 5
            closed.append(self._close(session, "limit", offset - 1))
            session = None
        if session is None:  # rule 6
            # asked for each session, not for each fragment: a covered key has no open session yet
            if self.covered.covers(key, offset):
                self.skipped += 1
                self.w = max(self.w, t)
                return None
            session = OpenSession(key, offset, record.timestamp, t, self.w, a_before)
            self.open[key] = self.pinned[key] = session
        else:
            self.open.move_to_end(key)
            session.last_offset = offset
            if t > session.last_t:
                session.last_t = t
            elif t < session.low_t:
                session.low_t = t
            if session.pin < 0:  # all before is parked, so from here on a replay is needed again
                session.pin, session.pin_w, session.pin_a = offset, self.w, a_before
                self.pinned[key] = session
        if t > self.w:
            self.w = t
        session.w, session.last_a = self.w, self.a
        session.data.append(raw)
        session.bytes += size
        self.state_bytes += size
        if hashed is not None:
            session.remember(hashed)
        return session

    def _is_repeat(self, key: str, session: OpenSession | None, hashed: int) -> bool:
        if session is not None and session.ids is not None and hashed in session.ids:
            return True
        entry = self.covered.entries.get(key)
        return entry is not None and hashed in entry.ids and self.covered.remembers(key, hashed, self.a)

    def _drop_repeat(self, key: str, session: OpenSession | None, offset: int, t: int) -> None:
        if session is None:
            self.covered.cover_repeat(key, offset)
        self.w = max(self.w, t)

    def _close(self, session: OpenSession, reason: Reason, through: int) -> Closed:
        """Closes the session; its key's records through that offset are accounted for."""
        self.open.pop(session.key)
        self.pinned.pop(session.key, None)
        self.state_bytes -= session.bytes
        self.room -= session.closing_bytes
        self.covered.cover_session(session, through, self.a)
        return Closed(session=session, reason=reason, closed_at=self.a)

    def _fold_keyless(self, raw: bytes, offset: int, closed: list[Closed]) -> bool:
        """Rule 2, for a record without a key: a marker, a tick, or unreadable. Whether it is folded to its
        end: a marker that has more to search or to close must be folded again.
        """
        try:
            marker = parse_marker(raw)
        except FragmentRejected as error:
            self._set_aside(offset, error.detail)
            return True
        if marker.time is None:
            self.ticks += 1
            return True
        if self._marker is None or self._marker[0] != offset:
            self._marker = offset, due_by(marker.time, self.open.values())
        for session in self._marker[1]:
            if session is None:
                return False
            # not through the marker's own offset: the position may stay there, and covers end below it
            closed.append(self._close(session, "gap", offset - 1))
            if self.room <= 0:
                return False
        self._marker = None
        self.markers += 1
        return True

    def _set_aside(self, offset: int, why: str) -> None:
        self.unreadable += 1
        self.last_unreadable = offset, why
