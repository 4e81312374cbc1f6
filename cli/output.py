"""How commands print: tables for people, JSON for machines (`-o json`), progress on standard error.

Numbers go to standard output, everything that moves to standard error, so that a pipe gets only numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import click
import msgspec
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

PLAIN_WIDTH = 240
"""Width of tables where there is no terminal: wide enough that no column is cut."""

output_option = click.option(
    "-o",
    "--output",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="A table for people, or JSON for machines.",
)

url_option = click.option(
    "--url",
    envvar="BATON_URL",
    default="http://127.0.0.1:8000",
    show_default=True,
    show_envvar=True,
    help="Base URL of control.",
)

producer_url_option = click.option(
    "--url",
    envvar="BATON_PRODUCER_URL",
    default="http://127.0.0.1:8001",
    show_default=True,
    show_envvar=True,
    help="Base URL of the producer.",
)

write_key_option = click.option(
    "--write-key",
    envvar="BATON_WRITE_KEY",
    default="",
    show_envvar=True,
    help="What the producer knows its writers by, where it asks for it; better in the environment.",
)

group_option = click.option("--group", default="default", show_default=True, help="The group.")


def print_json(value: Any) -> None:
    """The value as indented JSON on standard output."""
    click.echo(msgspec.json.format(msgspec.json.encode(value), indent=2).decode())


def print_table(columns: Iterable[str], rows: Iterable[Iterable[Any]], *, title: str = "") -> None:
    """A table on standard output; numbers stand to the right, None is `-`."""
    cells = [list(row) for row in rows]
    table = Table(box=box.SIMPLE_HEAD, title=title or None, title_justify="left", pad_edge=False)
    for at, column in enumerate(columns):
        numeric = bool(cells) and all(isinstance(row[at], int | float | None) for row in cells)
        table.add_column(column, justify="right" if numeric else "left", overflow="fold", no_wrap=True)
    for row in cells:
        table.add_row(*(Text(cell_text(value)) for value in row))
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=PLAIN_WIDTH)
    console.print(table)


def cell_text(value: Any) -> str:
    """A value as it stands in a cell: None is `-`, numbers have thousands apart.

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


def progress_console() -> Console:
    """Where progress is drawn: standard error."""
    return Console(stderr=True)


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


def pick(row: Mapping[str, Any], path: str) -> Any:
    """The value at a dotted path of a JSON object, or None."""
    value: Any = row
    for name in path.split("."):
        value = value.get(name) if isinstance(value, Mapping) else None
    return value
