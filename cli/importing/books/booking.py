"""Enters an import in the books: the ledger, its journal, and the file of lines that were not accepted.

The journal is written before the ledger names the import, and removed after the ledger has it as sent. So an
import that the ledger has only as begun has a journal, with which it can be resumed. An import of which
nothing was accepted, perhaps because an option is wrong, leaves no entry. Used by `cli/importing/run.py`.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from cli.http.receipts import MarkerPosition
from cli.importing.books.journal import Journal
from cli.importing.books.ledger import Closed, Ledger, Sent
from cli.importing.books.leftovers import RejectedLines
from cli.importing.books.start import Start, now_text
from cli.importing.reading.lines import LineReader
from cli.importing.reading.notes import Notes, Progress


class Booking:
    """The books of one import; `ledger` is None if nothing is entered.

    Raises Conflict if another process is importing this log, InvalidInput if `rejected` cannot be written.
    """

    def __init__(self, start: Start, ledger: Ledger | None, rejected: Path | None) -> None:
        self.start = start
        self._ledger = ledger if start.begun is not None else None
        self._journal = start.journal
        self._is_entered = start.is_entered
        self._rejected: RejectedLines | None = None
        if not start.is_sent:
            if rejected is not None:
                self._rejected = RejectedLines(rejected, is_given=True, continues=start.is_entered)
            elif ledger is not None:
                path = ledger.rejected_of(start.id)
                self._rejected = RejectedLines(path, is_given=False, continues=start.is_entered)
            if self._ledger is not None:
                self._journal = self._journal or Journal(self._ledger.journal_of(start.id), is_new=True)
                self._journal.append(start.progress)
        self.notes = Notes(start.progress, keep=self._keep, rejected=self._rejected)

    def enter_sent(self, lines: LineReader) -> None:
        """Enters that every line was settled."""
        if self._ledger is None or not self._is_entered:
            return
        sent = Sent(
            id=self.start.id,
            at=now_text(),
            # as it was sent: the log may have grown meanwhile
            content=lines.imported,
            lines=lines.ended_lines,
            tally=self.notes.tally,
        )
        self._ledger.append(sent)
        if self._journal is not None:
            self._journal.remove()

    def enter_closed(self, markers: Iterable[MarkerPosition]) -> None:
        """Enters that the marker was sent, and where it is."""
        if self._ledger is not None and self._is_entered:
            offsets = {marker.stream: marker.offset for marker in markers}
            self._ledger.append(Closed(id=self.start.id, at=now_text(), markers=offsets))

    def close(self) -> None:
        """Closes the files; an import that is not complete can be resumed."""
        if self._journal is not None:
            if not self._is_entered:
                self._journal.remove()
            self._journal.close()
        if self._rejected is not None:
            self._rejected.close()

    @property
    def rejected_file(self) -> str | None:
        """The file with the lines that were not accepted, None if every line was."""
        return str(self._rejected.path) if self._rejected is not None and self._rejected.is_used else None

    @property
    def left_out(self) -> int:
        """The number of such lines that are too long for the file."""
        return self._rejected.left_out if self._rejected is not None else 0

    def _keep(self, progress: Progress) -> None:
        # a dry run may have read the journal of an import, but does not change it
        if self._journal is None or self._ledger is None:
            return
        self._journal.append(progress)
        if not self._is_entered and progress.tally.accepted and self.start.begun is not None:
            self._ledger.append(self.start.begun)
            self._is_entered = True
