"""The progress bar of `baton import`: bytes read, counts and rate; then the records left to deliver."""

from __future__ import annotations

from rich.progress import BarColumn, TaskID, TextColumn, TimeElapsedColumn

from cli.importing.tally import Tally
from cli.terminal.output import bytes_text, progress_bar


class ImportProgress:
    """Shows a tally on standard error inside of `with progress.bar`; shows nothing without a terminal."""

    def __init__(self, tally: Tally) -> None:
        self._tally = tally
        counts = TextColumn("{task.fields[counts]}")
        self.bar = progress_bar(TextColumn("{task.description}"), BarColumn(), counts, TimeElapsedColumn())
        self._sending: TaskID | None = None
        self._waiting: TaskID | None = None
        self._most_left = 0

    def begin(self, size: int | None) -> None:
        """Starts the bar for a log of `size` bytes, None if unknown."""
        self._sending = self.bar.add_task("importing", total=size, counts="")

    def update(self) -> None:
        """Redraws the bar from the tally."""
        if self._sending is None:
            return
        tally = self._tally
        elapsed = self.bar.tasks[0].elapsed or 0.0
        rate = f"{tally.accepted / elapsed:,.0f}/s" if elapsed else ""
        counts = (
            f"{tally.lines:,} lines  {tally.accepted:,} accepted  "
            f"{tally.rejected + tally.unparsed:,} rejected  {bytes_text(tally.bytes)}  {rate}"
        )
        self.bar.update(self._sending, completed=tally.position, counts=counts)

    def delivering(self, left: int) -> None:
        """Shows that `left` records are not committed yet."""
        if self._waiting is None:
            self._most_left = left
            self._waiting = self.bar.add_task("delivering", total=max(left, 1), counts="")
        self._most_left = max(self._most_left, left)
        self.bar.update(
            self._waiting,
            total=max(self._most_left, 1),
            completed=max(self._most_left, 1) - left,
            counts=f"{left:,} records left",
        )
