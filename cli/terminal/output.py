"""How commands print: tables for people, JSON for programs (`-o json`), progress on standard error.

Results go to standard output and progress to standard error, so that a pipe receives only results. A table's
columns are data: `Columns` says for each heading where its cells come from.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

import click
import msgspec
from rich import box
from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

PLAIN_WIDTH = 240
"""Width of tables without a terminal: wide enough that no column is cut."""

Columns = Mapping[str, str | Callable[[Mapping[str, Any]], Any]]
"""For each heading the dotted path of the cell in a JSON object, or a function of that object."""


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
        # as Text, because rich would read brackets in a key as markup
        table.add_row(*(Text(cell_text(value)) for value in row))
    console = Console(highlight=False)
    if not console.is_terminal:
        # rich assumes 80 columns for a pipe and would fold nearly every row
        console = Console(highlight=False, width=PLAIN_WIDTH)
    console.print(table)


def print_objects(columns: Columns, objects: Iterable[Mapping[str, Any]], *, title: str = "") -> None:
    """Prints a table with a row for each JSON object."""
    rows = (
        [pick(one, cell) if isinstance(cell, str) else cell(one) for cell in columns.values()]
        for one in objects
    )
    print_table(columns, rows, title=title)


def cell_text(value: Any) -> str:
    """A value as a table cell shows it: None is `-`, numbers have thousands separators.

    >>> cell_text(1234567), cell_text(0.5), cell_text(None), cell_text("x")
    ('1,234,567', '0.50', '-', 'x')
    """
    if value is None or value == "":
        return "-"
    # before int: a bool is one
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.2f}"
    return str(value)


def progress_bar(*columns: ProgressColumn) -> Progress:
    """A bar with these columns before the elapsed time; it draws nothing unless stderr is a terminal."""
    console = Console(stderr=True)
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        *columns,
        TimeElapsedColumn(),
        console=console,
        disable=not console.is_terminal,
    )


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
