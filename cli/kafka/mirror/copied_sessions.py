"""What the sessions that were copied say of a copied stream: do offsets mean the same, and what is delivered?

Pure. After the source was lost, nobody knows its heads, so `baton mirror take-over --follow` finds out from
the copy alone. It adds the sessions of the followed group, then the records of the stream, in order:

* *Offsets are the same* if each session's first and last offset lie on records of its key here, the first
  with the session's `opened_at`. Ends of transactions take offsets of their own, so they shift what follows.
* *Delivered* is all below the lowest fragment that stands in no session. A repeat, which stands in none, is
  known by its id. A session that reaches beyond the end of the copy counts as not delivered: the offsets it
  names will belong to other records.
"""

from __future__ import annotations

import contextlib
from bisect import bisect_right, insort

import msgspec

from shared.model.fragments import FragmentRejected, parse_fragment

MAX_CANDIDATES = 100_000
"""So many fragments that stand in no session are looked at; most are of sessions that were open at the
end."""


class _Span(msgspec.Struct, frozen=True):
    key: str
    stream: int
    first_offset: int
    last_offset: int
    opened_at: int
    log: int = 0


class _Ids(msgspec.Struct, frozen=True):
    class Fragment(msgspec.Struct, frozen=True):
        id: str = ""

    key: str
    stream: int
    last_offset: int
    data: list[Fragment]


_span = msgspec.json.Decoder(_Span).decode
_ids = msgspec.json.Decoder(_Ids).decode


class CopiedStream:
    """One stream: its sessions by `add_session`, its records by `add_record`, the sessions again by
    `add_ids`.

    `first`, `end`: the half-open offsets of the copy. `fault`: why offsets are not the same; empty: they are.
    """

    def __init__(self, stream: int, first: int, end: int) -> None:
        self.stream, self.first, self.end = stream, first, end
        self.fault = ""
        self._spans: dict[str, list[tuple[int, int]]] = {}
        self._due: dict[int, tuple[str, int | None]] = {}
        """By offset, what must lie there: a record of this key, with this time if it is known."""
        self._beyond = -1
        """Lowest first offset of a session that reaches beyond the end; -1: there is none."""
        self._candidates: list[tuple[int, str, str]] = []
        self._limit = end
        self._asked: set[str] = set()
        self._known: set[tuple[str, str]] = set()

    def __repr__(self) -> str:
        return f"<CopiedStream {self.stream} [{self.first}, {self.end}) {self.fault or 'same offsets'}>"

    def add_session(self, raw: bytes) -> None:
        """A session as it was delivered, of any stream."""
        with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError):
            one = _span(raw)
            if one.stream == self.stream:
                self._add_span(one)

    def _add_span(self, one: _Span) -> None:
        if one.log:
            # of several logs, offsets say little: this one may be any of them
            self.fault = self.fault or "the source's log was made anew at some time"
        elif one.last_offset >= self.end:
            self._beyond = one.first_offset if self._beyond < 0 else min(self._beyond, one.first_offset)
        else:
            insort(self._spans.setdefault(one.key, []), (one.first_offset, one.last_offset))
            if one.last_offset >= self.first:
                self._due.setdefault(one.last_offset, (one.key, None))
            if one.first_offset >= self.first:
                self._due[one.first_offset] = one.key, one.opened_at

    def add_record(self, offset: int, key: bytes | None, value: bytes | None, time_ms: int) -> None:
        """A record of the stream, in order; all sessions must have been added."""
        due = self._due.pop(offset, None)
        if due is not None and not self.fault:
            name, opened_at = due
            if key != name.encode() or opened_at not in (None, time_ms):
                self.fault = f"the record at {offset} is not the one that a session names"
        if key is None or offset >= self._limit:
            return
        with contextlib.suppress(FragmentRejected):
            fragment = parse_fragment(value or b"", explain=False)
            if not self._is_in_session(fragment.key, offset):
                found = fragment.id if isinstance(fragment.id, str) else ""
                self._candidates.append((offset, fragment.key, found))
                if not found or len(self._candidates) >= MAX_CANDIDATES:
                    self._limit = offset + 1  # it stands in none for sure; those after it do not matter

    def _is_in_session(self, key: str, offset: int) -> bool:
        spans = self._spans.get(key, ())
        at = bisect_right(spans, (offset, self.end)) - 1
        return at >= 0 and spans[at][0] <= offset <= spans[at][1]

    def add_ids(self, raw: bytes) -> None:
        """A session once more, after all records: its ids tell repeats from fragments that were not
        delivered."""
        if not self._asked:
            self._asked = {key for _, key, found in self._candidates if found}
        with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError):
            one = _ids(raw)
            if one.stream == self.stream and one.key in self._asked and one.last_offset < self.end:
                self._known |= {(one.key, fragment.id) for fragment in one.data if fragment.id}

    @property
    def delivered(self) -> int:
        """Everything that began below this offset is delivered; at most the end."""
        for offset, key, found in self._candidates:
            if not found or (key, found) not in self._known:
                return offset
        return self._limit

    def finish(self) -> None:
        """All was added: what is due and has not come is a fault."""
        if self._due and not self.fault:
            self.fault = f"there is no record at {min(self._due)}, which a session names"
        if 0 <= self._beyond < self.delivered and not self.fault:
            self.fault = f"the session that began at {self._beyond} reaches beyond the end of the copy"
