"""`baton sessions`: the newest delivered sessions, straight from Kafka, and with `-f` new ones as they come.

It reads only committed sessions, as every consumer of the topic should, and needs no other service.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import click

from cli.commands.control import print_list
from cli.kafka.known_names import check_names
from cli.kafka.sessions import Delivered, open_sessions
from cli.terminal.escaping import echo, escaped
from cli.terminal.interrupts import interruptible
from cli.terminal.layout import Column
from cli.terminal.lists import check_followed, formats_option
from cli.terminal.options import group_option, kafka_options
from cli.terminal.output import Columns, print_json_lines, print_objects, time_text
from cli.terminal.since import parse_since
from shared.kafka.connect.access import Kafka
from shared.model.names import Names

SESSION_COLUMNS: Columns = {
    "ID": "id",
    "KEY": Column("key", is_prose=True),
    "FROM": Column(lambda row: time_text(row["first_time"]), rank=1),
    "TO": Column(lambda row: time_text(row["last_time"]), rank=5),
    "FRAGMENTS": "fragments",
    "BYTES": Column("bytes", rank=4),
    "REASON": Column("reason", rank=2),
    "STREAM": Column("stream", rank=6),
    "DELIVERED": Column(lambda row: time_text(row["delivered_at"]), rank=3),
}


@click.command("sessions")
@click.option("--key", help="Only sessions of this key.")
@click.option("-n", "--limit", type=click.IntRange(1, 1000), default=20, help="Most sessions to show.")
@click.option(
    "--since",
    "since_ms",
    default="1d",
    callback=parse_since,
    help="Only sessions delivered since then: 90s, 15m, 2h, 3d ago, or an RFC 3339 time.",
)
@click.option("-f", "--follow", "is_followed", is_flag=True, help="Keep printing new ones until Ctrl-C.")
@group_option
@kafka_options
@formats_option
def sessions(
    key: str | None,
    limit: int,
    since_ms: int,
    is_followed: bool,
    group: str,
    kafka: Kafka,
    names: Names,
    output: str,
) -> None:
    """Show the newest delivered sessions of a group: key, times (UTC), fragments, and why they ended.

    Shows committed sessions only, as consumers with `isolation.level=read_committed` see them. `-o json` has
    every field and the fragments as they were posted; with -f every session is one line.
    """
    if is_followed:
        check_followed(output)
    with interruptible(lambda: "sessions go on being delivered; the same command shows them"):
        asyncio.run(_show(kafka, names, group, key, limit, since_ms, is_followed=is_followed, output=output))


def as_json(delivered: Delivered) -> dict[str, Any]:
    """The session as `-o json` prints it: its record in the topic, and when that was written (ms)."""
    fields: dict[str, Any] = {
        name: getattr(delivered.session, name) for name in delivered.session.__struct_fields__
    }
    return fields | {"delivered_at": delivered.time_ms}


def session_line(row: Mapping[str, Any]) -> str:
    """A session as a line for people.

    >>> session_line({"delivered_at": 5_000, "key": "ann", "fragments": 2, "bytes": 1290, "reason": "gap",
    ...               "first_time": 0, "last_time": 3_000, "id": "efe7", "stream": 7})
    '1970-01-01 00:00:05Z  ann  2 fragments, 1,290 bytes in 3 s, ended by gap  (stream 7, efe7)'
    """
    key = escaped(row["key"].encode(errors="replace"))
    seconds = (row["last_time"] - row["first_time"]) / 1000
    return (
        f"{time_text(row['delivered_at'])}  {key}  {row['fragments']:,} fragments, {row['bytes']:,} bytes"
        f" in {seconds:,.0f} s, ended by {row['reason']}  (stream {row['stream']}, {row['id']})"
    )


async def _show(
    kafka: Kafka,
    names: Names,
    group: str,
    key: str | None,
    limit: int,
    since_ms: int,
    *,
    is_followed: bool,
    output: str,
) -> None:
    await check_names(kafka, names, group)
    async with open_sessions(kafka, names.sessions(group)) as log:
        newest = await log.newest(limit, since_ms, lambda session: key is None or session.key == key)
        rows = [as_json(one) for one in newest]
        if not is_followed:
            _print(rows, output)
            return
        for row in rows:
            _print_line(row, output)
        async for batch in log.following():
            for one in batch:
                if key is None or one.session.key == key:
                    _print_line(as_json(one), output)


def _print(rows: list[dict[str, Any]], output: str) -> None:
    if output != "text":
        print_list({"sessions": rows}, "sessions", output, SESSION_COLUMNS)
    elif rows:
        print_objects(
            SESSION_COLUMNS, [{**row, "key": escaped(row["key"].encode(errors="replace"))} for row in rows]
        )
    else:
        echo("no session was delivered in this time; --since 7d looks further back")


def _print_line(row: Mapping[str, Any], output: str) -> None:
    if output == "text":
        echo(session_line(row))
    else:
        print_json_lines([row])
