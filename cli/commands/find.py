"""`baton find KEY | find --day DAY | session ID`: looks up a key, a day's finished sessions, or one.

Control answers, from the owner of the key's stream and from the lake.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any

import click

from cli.commands.control import get
from cli.terminal.escaping import echo, escaped
from cli.terminal.layout import Column
from cli.terminal.options import control_options, group_options
from cli.terminal.output import Columns, cell_text, print_json, print_objects, print_table, time_text

ENDED_BY = {"end": "its end fragment", "gap": "silence", "limit": "a limit"}
KEY_COLUMN: Columns = {"KEY": Column(lambda row: _text(row["key"]), is_prose=True)}
FINISHED_COLUMNS: Columns = {
    "FIRST FRAGMENT": lambda row: time_text(row["first_time"]),
    "LAST FRAGMENT": Column(lambda row: time_text(row["last_time"]), rank=3),
    "FRAGMENTS": Column("fragments", rank=1),
    "BYTES": Column("bytes", rank=4),
    "ENDED BY": Column(lambda row: ENDED_BY.get(row["reason"], row["reason"]), rank=2),
    "FIRST OFFSET": Column("first_offset", rank=5),
    "ID": "id",
}


@click.command("find")
@click.argument("key", required=False)
@click.option(
    "--day", type=click.DateTime(["%Y-%m-%d"]), help="Find the finished sessions of this day (UTC)."
)
@click.option("-n", "--limit", type=click.IntRange(1, 100), default=20, help="Maximum of finished sessions.")
@group_options
def find(key: str | None, day: datetime | None, limit: int, group: str, url: str, output: str) -> None:
    """Find a KEY: its slot, stream and owner, its open session, and its finished ones; or those of a --day.

    The open session is asked of the owner; the finished ones are those in the lake, newest first.
    """
    if (key is None) is (day is None):
        raise click.UsageError("give a KEY or a --day")
    query = {"group": group, "limit": limit}
    if day is not None:
        found = get(url, "/sessions", query | {"day": f"{day:%Y-%m-%d}"})
    else:
        found = get(url, "/keys", query | {"key": key})
    if output == "json":
        print_json(found)
    elif key is None:
        _print_finished(found, {**KEY_COLUMN, **FINISHED_COLUMNS}, "day", limit)
    else:
        owner = found["owner"] or "nobody"
        echo(f"key {_text(key)}: slot {found['slot']:,}, stream {found['stream']}, owner {owner}")
        echo(open_line(found))
        _print_finished(found["finished"], FINISHED_COLUMNS, "key", limit)


def _print_finished(finished: Mapping[str, Any], columns: Columns, of: str, limit: int) -> None:
    if finished["sessions"]:
        print_objects(columns, finished["sessions"], title="Finished, newest first")
    elif finished["sessions"] is not None:
        echo(f"The lake has no finished session of this {of}.")
    else:
        echo(f"Finished sessions are not known: {finished['why']}.")
    if finished["next"] is not None:
        echo(f"There are more than {limit}: --limit shows up to 100, `baton sql` all.")
    if finished["behind_records"]:
        records = f"{finished['behind_records']:,} newer records"
        echo(f"The lake lacks {records} of the group: `baton run lake` adds them.")


def open_line(found: Mapping[str, Any]) -> str:
    """A sentence on the key's open session.

    >>> open_line({"answered": False, "why": "c-2 does not answer", "open": None})
    'It is not known whether a session is open: c-2 does not answer.'
    """
    if not found["answered"]:
        return f"It is not known whether a session is open: {found['why']}."
    if (one := found["open"]) is None:
        return "No session is open."
    fragments = f"{cell_text(one['fragments'])} fragment{'' if one['fragments'] == 1 else 's'}"
    return (
        f"Open since {time_text(one['opened_at'])}: {fragments}, "
        f"{cell_text(one['bytes'])} bytes, from offset {cell_text(one['first_offset'])}; "
        f"last fragment {time_text(one['last_time'])}, silence ends it after "
        f"{time_text(one['silent_after'])} at the earliest"
    )


def _parse_id(_: click.Context, __: click.Parameter, text: str) -> str:
    if not re.fullmatch("[0-9a-f]{32}", text):
        raise click.BadParameter("it has 32 hexadecimal digits: `baton find` and `baton sessions` print it")
    return text


@click.command("session")
@click.argument("session_id", metavar="ID", callback=_parse_id)
@control_options
def session(session_id: str, url: str, output: str) -> None:
    """Show a finished session by its ID, with its fragments as they were posted.

    It is read from the lake, so it is found once the job `lake` has added it.
    """
    found = get(url, f"/sessions/{session_id}")
    if output == "json":
        print_json(found)
        return
    fields = {
        "key": _text(found["key"]),
        "group": found["group"],
        "stream": str(found["stream"]),
        "epoch": str(found["epoch"]),
        "offsets": f"{found['first_offset']:,} to {found['last_offset']:,}",
        "first fragment": time_text(found["first_time"]),
        "last fragment": time_text(found["last_time"]),
        "ended by": ENDED_BY.get(found["reason"], found["reason"]),
        "fragments": cell_text(found["fragments"]),
        "bytes": cell_text(found["bytes"]),
    }
    print_table(("SESSION", found["id"]), fields.items())
    for data in found["data"]:
        echo(data)


def _text(text: str) -> str:
    return escaped(text.encode(errors="replace"))
