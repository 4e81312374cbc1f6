"""The progress bar of `baton import`: bytes read, counts and rate; then the records left to deliver."""

from __future__ import annotations

from rich.filesize import decimal
from rich.progress import TaskID, TextColumn

from cli.importing.tally import Tally
from cli.terminal.output import progress_bar


class ImportProgress:
    """Shows an import on standard error inside of `with progress.bar`; shows nothing without a terminal."""

    def __init__(self) -> None:
        self.bar = progress_bar(TextColumn("{task.fields[counts]}"))
        self._sending = self.bar.add_task("importing", total=None, visible=False, counts="")
        self._waiting: TaskID | None = None
        self._to_deliver = 0

    def begin(self, size: int | None) -> None:
        """Starts the bar for a log of `size` bytes, None if unknown."""
        self.bar.update(self._sending, total=size, visible=True)

    def update(self, tally: Tally, accepted: int) -> None:
        """Redraws the bar from the tally; `accepted` fragments are of this run."""
        elapsed = self.bar.tasks[0].elapsed or 0.0
        rate = f"{accepted / elapsed:,.0f}/s" if elapsed else ""
        counts = (
            f"{tally.lines:,} lines  {tally.accepted:,} accepted  "
            f"{tally.rejected + tally.unparsed:,} rejected  {decimal(tally.bytes)}  {rate}"
        )
        self.bar.update(self._sending, completed=tally.position, counts=counts)

    def delivering(self, left: int) -> None:
        """Shows that `left` records are not committed yet."""
        if self._waiting is None:
            # at least 1: a bar of 0 would never look complete
            self._to_deliver = max(left, 1)
            self._waiting = self.bar.add_task("delivering", total=self._to_deliver, counts="")
        counts = f"{left:,} records left"
        self.bar.update(self._waiting, completed=self._to_deliver - left, counts=counts)
