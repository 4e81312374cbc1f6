"""A second implementation of the six rules (docs/protocol.md): one key's sessions, from its fragments.

The audit's own fold, pure, and deliberately independent of `shared/model/fragments.py` and
`services/consumer`. It is fed per key instead of per stream: every fragment comes with W and A, which are
running maxima of the stream. A marker closes the sessions of every key, so a key looks up all markers of its
stream (`markers.py`). Silence closes nothing here, because a later fragment splits the session anyway.
Used by `verdict.py`.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from services.control.spark.audit.markers import Markers
from shared.model.group import GroupSettings

REMEMBERED = 2_500
"""Newest ids that a key remembers of its closed sessions (rule 4)."""


class Line(msgspec.Struct, frozen=True, gc=False):
    """A readable fragment as the fold needs it; times in ms.

    `appended`: its append time; `t`: its effective time; `w`: W before it; `a`: A including it; `size`: bytes
    of its value; `digest`: 16 bytes computed from the value.
    """

    offset: int
    appended: int
    t: int
    w: int
    a: int
    end: bool
    id: str | None
    size: int
    digest: bytes


class Cut(NamedTuple):
    """What is uncertain about a stream whose beginning retention has removed, in ms.

    `a`: A at the first record that is left (append times do not fall); `w_most`: the highest possible W
    before it.
    """

    a: int
    w_most: int


class Late(NamedTuple):
    """How late it is at an offset of a stream: W and A just before it (ms), -1 for none."""

    w: int
    a: int


NOT_LATE = Late(-1, -1)


class Expected:
    """A session that follows from the rules; open while `closed_by` is None.

    `closed_by`: the offset of the record that closed it. `is_sure`: nothing that retention removed can have
    changed it. `closed_a`: A at the key's fragment that closed it, or None.
    """

    __slots__ = (
        *("appended", "closed_a", "closed_by", "digests", "first_offset", "first_t", "ids"),
        *("is_sure", "last_a", "last_offset", "last_t", "reason", "size", "w"),
    )

    def __init__(self, line: Line, *, is_sure: bool) -> None:
        self.first_offset = self.last_offset = line.offset
        self.appended = line.appended
        self.first_t = self.last_t = line.t
        self.w = self.last_a = -1
        self.size = 0
        self.digests: list[bytes] = []
        self.ids: dict[str, None] = {}
        self.closed_a: int | None = None
        self.closed_by: int | None = None
        self.reason = "gap"
        self.is_sure = is_sure

    def __repr__(self) -> str:
        end = "open" if self.closed_by is None else f"{self.reason} by {self.closed_by}"
        return f"<Expected {self.first_offset}…{self.last_offset}, {len(self.digests)} fragments, {end}>"


class KeyFold:
    """The fold of one key of one stream. Feed it every fragment of the key in offset order, then finish.

    `markers` are all markers of the stream. `unsure` holds half-open offset ranges in which nothing can be
    judged because retention removed records (the last range may be unbounded).
    """

    def __init__(self, settings: GroupSettings, markers: Markers, cut: Cut | None = None) -> None:
        self.settings = settings
        self.unsure: list[tuple[int, int | None]] = [] if cut is None else [(0, None)]
        self._markers = markers
        self._cut = cut
        self._open: Expected | None = None
        self._remembered: dict[str, int] = {}
        """Ids of closed sessions, oldest first, each with the last_a of its own session."""
        self._seen_a = -1 if cut is None else cut.a

    def __repr__(self) -> str:
        return f"<KeyFold open {self._open!r}, {len(self._remembered)} ids remembered>"

    @property
    def opens_at(self) -> int:
        """Offset of the first fragment of the open session; -1 if none is open."""
        return -1 if self._open is None else self._open.first_offset

    def feed(self, line: Line) -> list[Expected]:
        """Folds the key's next fragment. Returns the sessions that it, or a marker before it, closed."""
        closed = [] if self._open is None else self._apply_markers(line.offset)
        if self.unsure:
            self._regain_certainty(line)
        self._seen_a = line.a
        if self._open is not None and self._splits(self._open, line):
            closed.append(self._close("gap", line.offset, line.a))
        if self._is_repeat(line):
            return closed
        if self._open is not None and self._exceeds(self._open, line):
            closed.append(self._close("limit", line.offset, line.a))
        self._join(line)
        if line.end:
            closed.append(self._close("end", line.offset, line.a))
        return closed

    def finish(self) -> list[Expected]:
        """The sessions that the last markers closed, and the open one."""
        sessions = self._apply_markers(None)
        return sessions if self._open is None else [*sessions, self._open]

    def is_due(self, session: Expected, late: Late, *, surely: bool = False) -> bool:
        """Whether silence has ended the session by then; `surely`: whatever retention has removed."""
        settings = self.settings
        # with a higher W in the removed part, less time passed after the session
        least = self._cut.w_most if surely and self._cut is not None else -1
        passed = max(late.w, least) - max(session.w, least)
        return passed > settings.gap_ms + settings.lateness_ms or late.a - session.last_a > settings.idle_ms

    def is_unsure(self, offset: int) -> bool:
        """Whether a session that begins at `offset` cannot be judged."""
        return any(low <= offset and (high is None or offset < high) for low, high in self.unsure)

    def _apply_markers(self, before: int | None) -> list[Expected]:
        """Rule 2 for the markers between the last fragment and offset `before` (None: all)."""
        session = self._open
        if session is None:
            return []
        # may look up markers before a repeat a second time, but these have closed nothing the first time
        offset = self._markers.first(session.last_offset, before, session.last_t)
        return [] if offset is None else [self._close("gap", offset)]

    def _splits(self, session: Expected, line: Line) -> bool:
        """Rule 3."""
        settings = self.settings
        if line.t - session.last_t > settings.gap_ms or line.a - session.last_a > settings.idle_ms:
            return True
        silence = settings.gap_ms + settings.lateness_ms
        if line.w - session.w <= silence:
            return False
        most = -1 if self._cut is None else self._cut.w_most
        if max(line.w, most) - max(session.w, most) <= silence:
            # with a higher W in the removed part, the session would continue
            session.is_sure = False
            if not self.unsure or self.unsure[-1][1] is not None:
                self.unsure.append((session.first_offset, None))
        return True

    def _is_repeat(self, line: Line) -> bool:
        """Rule 4."""
        if line.id is None:
            return False
        if self._open is not None and line.id in self._open.ids:
            return True
        last_a = self._remembered.get(line.id)
        return last_a is not None and line.a <= last_a + self.settings.repeat_ms

    def _exceeds(self, session: Expected, line: Line) -> bool:
        """Rule 5."""
        settings = self.settings
        return (
            len(session.digests) >= settings.max_session_fragments
            or session.size + line.size > settings.max_session_bytes
            or line.t - session.first_t > settings.max_session_span_ms
            or session.last_t - line.t > settings.max_session_span_ms
        )

    def _join(self, line: Line) -> None:
        """Rule 6."""
        session = self._open
        if session is None:
            session = self._open = Expected(line, is_sure=not self.is_unsure(line.offset))
        t = line.t
        if t < session.first_t:
            session.first_t = t
        elif t > session.last_t:
            session.last_t = t
        session.w = t if t > line.w else line.w
        session.last_a = line.a
        session.last_offset = line.offset
        session.size += line.size
        session.digests.append(line.digest)
        if line.id is not None:
            session.ids[line.id] = None

    def _close(self, reason: str, closed_by: int, closed_a: int | None = None) -> Expected:
        session = self._open
        assert session is not None
        session.reason, session.closed_by, session.closed_a = reason, closed_by, closed_a
        for name in session.ids:
            # an id that was forgotten and came again counts among the newest
            self._remembered.pop(name, None)
            self._remembered[name] = session.last_a
        if len(self._remembered) > REMEMBERED:
            for name in list(self._remembered)[:-REMEMBERED]:
                del self._remembered[name]
        self._open = None
        return session

    def _regain_certainty(self, line: Line) -> None:
        """After this much silence of the key, its removed sessions are certainly closed and forgotten."""
        silent_ms = line.a - self._seen_a
        if self.unsure[-1][1] is None and silent_ms > max(self.settings.idle_ms, self.settings.repeat_ms):
            self.unsure[-1] = (self.unsure[-1][0], line.offset)
