"""What an import notes about its lines while it runs: counts, places, and the lines that are not accepted.

A stream's fragments are sent in the log's order, so one line number per stream says which of its lines are
*settled* (acknowledged or rejected). With the counts, that is all an interrupted import needs to continue.
The pipeline and its lanes write the notes; `books/journal.py` keeps them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Protocol

import msgspec

from cli.importing.parsing.fragments import Outgoing
from cli.importing.reading.records import Record
from cli.importing.tally import Tally


class Progress(msgspec.Struct, kw_only=True):
    """How far an import is.

    Lines up to `floor` belong to an earlier import. Lines of a stream up to `settled[stream]` need nothing
    more. Up to `read_to` the reader has counted the lines that it rejects itself.
    """

    floor: int = 0
    read_to: int = 0
    settled: dict[int, int] = {}
    tally: Tally = msgspec.field(default_factory=Tally)

    def started_anew(self) -> Progress:
        """The progress of an import that is resumed here: every line is read, and counted as read, again."""
        noted = self.tally
        tally = Tally(
            unparsed=noted.unparsed,
            # what was in flight is sent again
            sent=noted.accepted + noted.rejected,
            accepted=noted.accepted,
            rejected=noted.rejected,
            bytes=noted.bytes,
            highest_time_ms=noted.highest_time_ms,
            reasons=dict(noted.reasons),
        )
        return msgspec.structs.replace(self, settled=dict(self.settled), tally=tally)


class Rejected(Protocol):
    """Keeps the lines that are not accepted: `RejectedLines`."""

    def add(self, raw: bytes | None, header: bytes) -> None:
        """Keeps the lines of one record; None if they are too long to be here."""


class Notes:
    """The notes of one import, which starts at `progress`.

    `keep` gets what has changed whenever lines were settled, `rejected` the lines that are not accepted.
    """

    def __init__(
        self,
        progress: Progress | None = None,
        *,
        keep: Callable[[Progress], None] = lambda _: None,
        rejected: Rejected | None = None,
    ) -> None:
        self._progress = progress or Progress()
        self._keep = keep
        self._rejected = rejected
        self._kept_to = self._progress.read_to
        self.header = b""

    @property
    def tally(self) -> Tally:
        """The counts so far."""
        return self._progress.tally

    # the reader

    def is_old(self, record: Record) -> bool:
        """Whether an earlier import has sent this record."""
        return record.last <= self._progress.floor

    def is_settled(self, stream: int, record: Record) -> bool:
        """Whether an earlier run of this import has settled this record of the stream."""
        return record.first <= self._progress.settled.get(stream, 0)

    def count_unparsed(self, record: Record, reason: str, detail: str) -> None:
        """Counts a record that cannot be read."""
        if self.is_old(record):
            return
        if self._was_counted(record):
            self.tally.lines += record.lines
        else:
            # a stray quote may have joined what were whole records, so each line counts
            self.tally.count_unparsed(record.first, reason, detail, lines=record.lines)
            self._refuse(record)

    def count_unsent(self, record: Record, reason: str, detail: str) -> None:
        """Counts a fragment that is rejected without asking the producer."""
        if not self._was_counted(record):
            self.tally.count_unsent(record.first, reason, detail)
            self._refuse(record)

    def flush(self) -> None:
        """Keeps what the reader has counted since the last time."""
        if self._progress.read_to > self._kept_to:
            self._keep_progress({})

    # the lanes

    def settle(self, batch: Sequence[Outgoing], rejected: Collection[int]) -> None:
        """Notes that the batch was answered, and the fragments at these indexes were rejected."""
        changed: dict[int, int] = {}
        for fragment in batch:
            changed[fragment.stream] = fragment.line
        if self._rejected is not None:
            for index in sorted(rejected):
                self._rejected.add(batch[index].raw, self.header)
        self._keep_progress(changed)

    def _was_counted(self, record: Record) -> bool:
        return record.last <= self._progress.read_to

    def _refuse(self, record: Record) -> None:
        self._progress.read_to = record.last
        if self._rejected is not None:
            self._rejected.add(record.raw, self.header)

    def _keep_progress(self, changed: dict[int, int]) -> None:
        progress = self._progress
        progress.settled.update(changed)
        self._kept_to = progress.read_to
        # only what has changed: with thousands of streams the rest is most of it
        self._keep(msgspec.structs.replace(progress, settled=changed))
