"""How commands print: tables for people, JSON for programs (`-o json`), progress on standard error.

Results go to standard output and progress to standard error, so that a pipe receives only results.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

import click
import msgspec
from rich import box
from rich.console import Console
from rich.progress import Progress, ProgressColumn
from rich.table import Table
from rich.text import Text

PLAIN_WIDTH = 240
"""Width of tables without a terminal: wide enough that no column is cut."""


def print_json(value: Any) -> None:
    """Prints the value as indented JSON."""
    click.echo(msgspec.json.format(msgspec.json.encode(value), indent=2).decode())


def print_table(columns: Iterable[str], rows: Iterable[Iterable[Any]], *, title: str = "") -> None:
    """Prints a table; columns of numbers are right-aligned, None is `-`."""
    cells = [list(row) for row in rows]
    table = Table(box=box.SIMPLE_HEAD, title=title or None, title_justify="left", pad_edge=False)
    for at, column in enumerate(columns):
        numeric = bool(cells) and all(isinstance(row[at], int | float | None) for row in cells)
        # fold instead of cut: people copy ids from tables
        table.add_column(column, justify="right" if numeric else "left", overflow="fold", no_wrap=True)
    for row in cells:
        table.add_row(*(Text(cell_text(value)) for value in row))
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=PLAIN_WIDTH)
    console.print(table)


def print_list(answer: Any, output: str, columns: Iterable[str], rows: Iterable[Iterable[Any]]) -> None:
    """Prints the service's answer as JSON, or its rows as a table."""
    if output == "json":
        print_json(answer)
    else:
        print_table(columns, rows)


def cell_text(value: Any) -> str:
    """A value as a table cell shows it: None is `-`, numbers have thousands separators.

    >>> cell_text(1234567), cell_text(0.5), cell_text(None), cell_text("x")
    ('1,234,567', '0.50', '-', 'x')
    """
    if value is None or value == "":
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.2f}"
    return str(value)


def progress_bar(*columns: ProgressColumn | str) -> Progress:
    """A progress bar on standard error that draws nothing where that is not a terminal."""
    console = Console(stderr=True)
    return Progress(*columns, console=console, disable=not console.is_terminal)


def bytes_text(size: float) -> str:
    """A size in the largest unit that leaves at least one.

    >>> bytes_text(999), bytes_text(2_339_220)
    ('999 B', '2.3 MB')
    """
    for unit in ("B", "KB", "MB", "GB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} TB"


def time_text(ms: int | None) -> str | None:
    """A time (ms since the epoch) in UTC, to the second.

    >>> time_text(807256800000)
    '1995-08-01 06:00:00Z'
    """
    return None if ms is None else f"{datetime.fromtimestamp(ms // 1000, UTC):%Y-%m-%d %H:%M:%S}Z"


def pick(row: Mapping[str, Any], path: str) -> Any:
    """The value at a dotted path of a JSON object, or None."""
    value: Any = row
    for name in path.split("."):
        value = value.get(name) if isinstance(value, Mapping) else None
    return value
