"""How commands print: tables for people, JSON and CSV for programs (`-o …`), progress on standard error.

Results go to standard output and progress to standard error, so that a pipe receives only results. A table's
columns are data: `Columns` says for each heading where its cells come from. `cli/terminal/layout.py` decides
which of them fit the terminal.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec
from rich import box
from rich.cells import cell_len
from rich.console import Console, JustifyMethod
from rich.progress import BarColumn, Progress, ProgressColumn, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from cli.terminal.escaping import echo, printable
from cli.terminal.layout import BETWEEN, Cell, Column, Measured, lay_out, least_width

PLAIN_WIDTH = 240
"""Width at which prose wraps without a terminal; no column is left out there."""

Columns = Mapping[str, Cell | Column]
"""For each heading where the cells come from; a bare Cell has rank 0 and is not prose."""


def print_json(value: Any) -> None:
    """Prints the value as indented JSON."""
    echo(msgspec.json.format(msgspec.json.encode(value), indent=2).decode())


def print_json_lines(rows: Iterable[Any]) -> None:
    """Prints each row as one line of JSON."""
    for row in rows:
        echo(msgspec.json.encode(row).decode())


def print_csv(rows: Sequence[Mapping[str, Any]]) -> None:
    """Prints the rows as CSV (RFC 4180, lines end with LF) below the names of all their fields.

    Null is empty; a list, an object or a truth value is JSON. No rows print nothing.
    """
    if not rows:
        return
    # in order of appearance: a row may leave out what does not apply to it
    names = list(dict.fromkeys(name for row in rows for name in row))
    for values in [names, *([_csv_value(row.get(name)) for name in names] for row in rows)]:
        echo(csv_line(values))


def csv_line(values: Iterable[Any]) -> str:
    """One line of CSV, without its end."""
    line = io.StringIO()
    # with this end, a carriage return within a text is quoted, too
    csv.writer(line, lineterminator="\r\n").writerow(values)
    return line.getvalue().removesuffix("\r\n")


def _csv_value(value: Any) -> Any:
    return msgspec.json.encode(value).decode() if isinstance(value, list | dict | bool) else value


def print_table(columns: Iterable[str], rows: Iterable[Iterable[Any]], *, title: str = "") -> None:
    """Prints a table; columns of numbers are right-aligned, None is `-`, and all other text is prose."""
    _print({heading: Column("", is_prose=True) for heading in columns}, rows, title)


def print_objects(columns: Columns, objects: Iterable[Mapping[str, Any]], *, title: str = "") -> None:
    """Prints a table with a row for each JSON object."""
    named = {heading: c if isinstance(c, Column) else Column(c) for heading, c in columns.items()}
    cells = [column.cell for column in named.values()]
    _print(
        named,
        ([pick(one, cell) if isinstance(cell, str) else cell(one) for cell in cells] for one in objects),
        title,
    )


def _print(columns: Mapping[str, Column], rows: Iterable[Iterable[Any]], title: str) -> None:
    """Prints the columns that fit the terminal, and names the others on standard error."""
    console = Console(highlight=False)
    table, left_out = table_of(columns, rows, console.width if console.is_terminal else None, title)
    # not narrower than the table: a single column may be wider than the terminal, which then wraps its lines
    console.width = sum(column.width or 0 for column in table.columns) + BETWEEN * len(table.columns)
    console.print(table)
    if left_out:
        echo(f"{too_narrow(left_out)}; widen the terminal, or pipe into `cat` to see them", err=True)


def too_narrow(left_out: Iterable[str]) -> str:
    """Names the columns for which there was no room."""
    return f"too narrow for: {', '.join(left_out)}"


def table_of(
    columns: Mapping[str, Column], rows: Iterable[Iterable[Any]], width: int | None, title: str = ""
) -> tuple[Table, list[str]]:
    """The table in a terminal of this width, and the headings of the columns that have no room in it.

    None is no terminal: a program that reads the table needs every column.
    """
    columns = {printable(heading): column for heading, column in columns.items()}
    values = [list(row) for row in rows]
    texts = [[cell_text(value) for value in row] for row in values]
    measured = [
        _measured(heading, column, [row[at] for row in texts], is_numeric=_is_numeric(values, at))
        for at, (heading, column) in enumerate(columns.items())
    ]
    full = sum(column.least for column in measured) + BETWEEN * len(measured)
    layout = lay_out(measured, max(PLAIN_WIDTH, full) if width is None else width)
    shown = [at for at in range(len(measured)) if at not in layout.left_out]
    # as Text, because rich would read brackets as markup
    caption = Text(printable(title)) if title else None
    table = Table(box=box.SIMPLE_HEAD, title=caption, title_justify="left", pad_edge=False)
    for at, heading in enumerate(columns):
        if at in shown:
            justify: JustifyMethod = "right" if _is_numeric(values, at) else "left"
            # rich measures in the same way, so it never folds a column that is not prose
            table.add_column(Text(heading), justify=justify, overflow="fold", width=layout.widths[at])
    for row in texts:
        table.add_row(*(Text(row[at]) for at in shown))
    return table, [heading for at, heading in enumerate(columns) if at not in shown]


def _measured(heading: str, column: Column, texts: list[str], *, is_numeric: bool) -> Measured:
    full = max(map(cell_len, [heading, *texts]))
    # a heading wraps at its blanks, whatever is below it
    least = max([least_width(heading), *(cell_len(text) for text in texts)])
    if column.is_prose and not is_numeric:
        least = max(least_width(text) for text in [heading, *texts])
    return Measured(column.rank, full, least)


def _is_numeric(rows: list[list[Any]], at: int) -> bool:
    return bool(rows) and all(isinstance(row[at], int | float | None) for row in rows)


def cell_text(value: Any) -> str:
    """A value as a table cell shows it: None is `-`, numbers have thousands separators, text is printable.

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
    return printable(str(value))


def counted(number: int, what: str) -> str:
    """So many of a thing whose plural takes an s.

    >>> counted(1, "stream"), counted(2_000, "stream")
    ('1 stream', '2,000 streams')
    """
    return f"{number:,} {what}{'' if number == 1 else 's'}"


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
