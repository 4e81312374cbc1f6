"""Recognizes a stream's log by the newest record that was accounted for: its offset and append time.

A log can lose its end and grow again: a replica that lacked the end became the leader, or the topic was
deleted and created anew. Then the offsets up to the position hold other records, of which some would never be
folded. So the head keeps the append time of the record before the position. A reader begins with that record
after every opening and whenever it may have lost touch with the log, and `Stream` compares it. While a marker
is committed in parts, the position is the marker's own offset. What is delivered depends on it all the same,
so the head keeps its append time too, and it is compared as well. Pure.
"""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from typing import Literal, NoReturn

from services.consumer.core.sessions.record import Record
from shared.errors import Conflict, InvalidInput
from shared.model.head import NOTHING

Comparison = Literal["pending", "same", "unknown", "gone"]
"""Whether the log is the one that was read before: the record has not come yet; it was the same; there was
nothing to compare with; retention has removed it."""


class LogLost(InvalidInput):
    """The log no longer holds what was committed: an operator must decide."""


class LogChanged(Conflict):
    """The log no longer holds what was read, but holds all that was committed: continue from there."""


class LastRecord:
    """The newest record that a stream has accounted for, and the one behind it if that was folded in part.

    `offset`: -1 without one. `appended`: its append time (ms), -1 if unknown. `closing`: append time of the
    record at `closing_at`, which was folded in part; -1 if none was.
    """

    __slots__ = ("appended", "closing", "closing_at", "comparison", "offset")

    def __init__(self, offset: int, appended: int, closing: int = NOTHING) -> None:
        self.offset, self.appended = offset, appended
        self.closing_at, self.closing = offset + 1, closing
        self.comparison: Comparison = "unknown"
        self.expect()

    def __repr__(self) -> str:
        part = "" if self.closing == NOTHING else f", {self.closing_at} in part"
        return f"<LastRecord at {self.offset}, appended {self.appended}, {self.comparison}{part}>"

    @property
    def known_end(self) -> int:
        """The offset after the newest record that was folded, wholly or in part."""
        return self.offset + 1 if self.closing == NOTHING else self.closing_at + 1

    def expect(self) -> None:
        """A reader is about to be opened: the record is to be compared again."""
        if self.offset >= 0:
            self.comparison = "pending"

    def first_to_read(self, position: int) -> int:
        """Where a reader begins, so that the record is among what it reads."""
        return min(position, self.offset) if self.offset >= 0 else position

    def appended_before(self, position: int) -> int:
        """Append time of the record before the position, -1 if unknown."""
        return self.appended if self.offset == position - 1 else NOTHING

    def closing_behind(self, position: int) -> int:
        """Append time of the record at the position if it was folded in part, else -1."""
        return self.closing if self.closing_at == position else NOTHING

    def note_log_start(self, log_start: int) -> None:
        """The log begins there: a record below it can no longer be compared."""
        if 0 <= self.offset < log_start:
            self.offset, self.appended, self.comparison = -1, NOTHING, "gone"

    def note_read(self, newest: Record) -> None:
        """All records through this one have been folded. A replay first has to come as far as before."""
        if newest.offset >= self.offset:
            self.offset, self.appended = newest.offset, newest.timestamp
        if newest.offset >= self.closing_at:
            self.closing = NOTHING

    def note_part(self, record: Record) -> None:
        """This one, the next after those that were folded, was folded in part."""
        self.closing_at, self.closing = record.offset, record.timestamp

    def admit(self, records: Sequence[Record], position: int, committed: int) -> Sequence[Record]:
        """Those of the records that are at the position or above it, after comparing what is known.

        `committed`: the stored head's `known_end`. Cost: none per record. Raises LogLost or LogChanged if the
        log holds another record in the place of a known one.
        """
        if not records:
            return records
        if self.comparison == "pending":
            self.note_log_start(records[0].offset)
        if records[0].offset <= self.offset <= records[-1].offset:
            self._compare(records[_index(records, self.offset)], committed)
        if self.closing != NOTHING and records[0].offset <= self.closing_at <= records[-1].offset:
            found = records[_index(records, self.closing_at)]
            if found.offset == self.closing_at and found.timestamp != self.closing:
                self._refuse(found, self.closing, committed)
        return records[_index(records, position) :] if records[0].offset < position else records

    def _compare(self, found: Record, committed: int) -> None:
        if found.offset > self.offset:
            self.note_log_start(found.offset)
        elif self.appended == NOTHING:  # a version that did not store it wrote the head
            self.appended, self.comparison = found.timestamp, "unknown"
        elif self.appended == found.timestamp:
            self.comparison = "same"
        else:
            self._refuse(found, self.appended, committed)

    def _refuse(self, found: Record, known: int, committed: int) -> NoReturn:
        other = f"the record at {found.offset} was appended at {found.timestamp}, not at {known}"
        raise LogLost(other) if found.offset < committed else LogChanged(other)


def _index(records: Sequence[Record], offset: int) -> int:
    return bisect.bisect_left(records, offset, key=lambda record: record.offset)
