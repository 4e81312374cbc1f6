"""`baton stream N`: everything that control knows of one stream."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import click

from cli.commands.control import get
from cli.commands.show import failure_lines
from cli.terminal.escaping import echo
from cli.terminal.layout import Column
from cli.terminal.options import group_options
from cli.terminal.output import Columns, cell_text, print_json, print_objects, print_table, time_text

OWNER_COLUMNS: Columns = {
    "OWNER": "owner",
    "EPOCH": "epoch",
    "SINCE": lambda row: time_text(row["since"]),
    "OPENED": lambda row: opened_text(row["warm"]),
    "PAUSE MS": "pause_ms",
    "WHY": Column("why", is_prose=True),
}


@click.command("stream")
@click.argument("number", metavar="STREAM", type=click.IntRange(min=0))
@group_options
def stream(number: int, group: str, url: str, output: str) -> None:
    """Show one STREAM in full: its owner and head, where it stands, what it holds, and its owners so far."""
    row = get(url, f"/streams/{number}", {"group": group})
    if output == "json":
        print_json(row)
        return
    # as text: in one column numbers and words stand below each other
    print_table(("", "VALUE"), ((name, field_text(name, value)) for name, value in fields_of(row)))
    for line in failure_lines([row]):
        echo(line)
    print_objects(OWNER_COLUMNS, row["owners"], title="Owners so far, newest first")


def opened_text(is_warm: bool | None) -> str | None:
    """How an owner opened the stream, as `baton events` says it."""
    return None if is_warm is None else "warm" if is_warm else "replayed"


def field_text(name: str, value: Any) -> str:
    """A field's value; times are in UTC.

    >>> field_text("lag", 1200), field_text("last handover at", 807256800000)
    ('1,200', '1995-08-01 06:00:00Z')
    """
    is_time = isinstance(value, int) and name.split()[-1] in ("at", "since")
    return cell_text(time_text(value) if is_time else value)


def fields_of(row: Mapping[str, Any], within: str = "") -> Iterator[tuple[str, Any]]:
    """The row's values in their order, those of an object named after it; lists are left out.

    >>> list(fields_of({"lag": 2, "open_sessions": None, "counts": {"bytes": 1}, "owners": []}))
    [('lag', 2), ('open sessions', None), ('counts bytes', 1)]
    """
    for name, value in row.items():
        text = f"{within} {name}".strip().replace("_", " ")
        if isinstance(value, Mapping):
            yield from fields_of(value, text)
        elif not isinstance(value, list):
            yield text, value
