"""What all lists of the command line share: their formats, `--sort`, filters and `--watch`.

Sorting and filtering happen where the list is: control gets them as query parameters (`sort=-lag`,
`owner=consumer-1`), because a page that was sorted here would be a page of another list.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import click

from cli.terminal.escaping import echo
from cli.terminal.interrupts import interruptible
from cli.terminal.options import Decorator, together
from cli.terminal.output import counted
from shared.errors import Unavailable

FORMATS = ("text", "json", "jsonl", "csv")
WATCH_S = 2.0
FILTERS = {
    "owner": "Only streams that this member owns.",
    "status": "Only streams with this status: OK, WARN, STOP, STALL or REWIND.",
    "state": "Only rows in this state.",
    "job": "Only runs of this job.",
}
"""The filters that a list may have; each is a query parameter of the same name."""

formats_option = click.option(
    "-o",
    "--output",
    type=click.Choice(FORMATS),
    default="text",
    help="A table for people; for programs control's answer (json), or its rows as lines or as CSV.",
)
watch_option = click.option(
    "--watch",
    "watch_s",
    type=click.FloatRange(min=0.1),
    is_flag=False,
    flag_value=WATCH_S,
    default=None,
    metavar="[SECONDS]",
    show_default=False,
    help=f"Show it again and again until Ctrl-C, by default every {WATCH_S:g} seconds.",
)
_sort_option = click.option(
    "--sort",
    metavar="COLUMN",
    help="Sort by a column, as `-o json` names it; `-COLUMN` for descending: `--sort -lag`.",
)


def list_options(*filters: str, is_sorted: bool = True) -> Decorator:
    """The options of a list: its format, `--watch`, `--sort` and these filters.

    The command gets `output` and, if there is something to choose, `chosen`: the query parameters.
    """
    options = [click.option(f"--{name}", help=FILTERS[name]) for name in filters]
    if is_sorted:
        options.insert(0, _sort_option)
    names = [*filters, *(["sort"] if is_sorted else [])]

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(command)
        def show(*arguments: Any, watch_s: float | None, **given: Any) -> None:
            chosen = {name: value for name in names if (value := given.pop(name)) is not None}
            more = {"chosen": chosen} if names else {}
            watch(lambda: command(*arguments, **given, **more), watch_s)

        return together(*options, watch_option, formats_option)(show)

    return decorate


def check_followed(output: str) -> None:
    """Raises UsageError for a format that needs all rows before its first one."""
    if output == "csv":
        raise click.UsageError("-f prints lines as they come: use -o jsonl, or no -o")


def watch(
    show: Callable[[], None], every_s: float | None, sleep: Callable[[float], None] = time.sleep
) -> None:
    """Calls `show` once, or with `every_s` again and again, each time on an empty screen.

    If it becomes unavailable after the first time, it says so and keeps trying.
    """
    if every_s is None:
        show()
        return
    shown = 0
    with interruptible(lambda: f"stopped after {counted(shown, 'reading')}"):
        while True:
            try:
                click.clear()  # does nothing unless the output is a terminal
                show()
            except Unavailable as error:
                if not shown:
                    raise
                echo(f"baton: {error.detail}; trying again", err=True)
            shown += 1
            echo(f"every {every_s:g} s, read at {datetime.now(UTC):%H:%M:%S}Z", err=True)
            sleep(every_s)
