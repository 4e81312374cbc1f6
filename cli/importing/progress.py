"""The progress bar of `baton import`: how far the log was read, counts, rate; then what is left."""

from __future__ import annotations

from types import TracebackType

from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from cli.importing.tally import Tally
from cli.output import bytes_text, progress_console


class ImportProgress:
    """Draws a tally on standard error while the block runs; draws nothing where there is no terminal."""

    def __init__(self, tally: Tally) -> None:
        self._tally = tally
        console = progress_console()
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.fields[counts]}"),
            TimeElapsedColumn(),
            console=console,
            disable=not console.is_terminal,
        )
        self._sending: TaskID | None = None
        self._waiting: TaskID | None = None
        self._most_left = 0

    def __enter__(self) -> ImportProgress:
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()

    def begin(self, size: int | None) -> None:
        """The log has `size` bytes, None when that is not known."""
        self._sending = self._bar.add_task("importing", total=size, counts="")

    def update(self) -> None:
        """The tally has changed."""
        if self._sending is None:
            return
        tally = self._tally
        elapsed = self._bar.tasks[0].elapsed or 0.0
        rate = f"{tally.accepted / elapsed:,.0f}/s" if elapsed else ""
        counts = (
            f"{tally.lines:,} lines  {tally.accepted:,} accepted  "
            f"{tally.rejected + tally.unparsed:,} refused  {bytes_text(tally.bytes)}  {rate}"
        )
        self._bar.update(self._sending, completed=tally.position, counts=counts)

    def delivering(self, left: int) -> None:
        """`left` records are not committed yet."""
        if self._waiting is None:
            self._most_left = left
            self._waiting = self._bar.add_task("delivering", total=max(left, 1), counts="")
        self._most_left = max(self._most_left, left)
        self._bar.update(
            self._waiting,
            total=max(self._most_left, 1),
            completed=max(self._most_left, 1) - left,
            counts=f"{left:,} records left",
        )
