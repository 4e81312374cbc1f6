"""`baton offsets show | export | import`: the committed offsets of Kafka groups, in the CSV of Kafka's tool.

The commands talk to Kafka directly, and name groups and topics as Kafka does (`baton.default`).
"""

from __future__ import annotations

import asyncio
from typing import Any, TextIO

import click

from cli.kafka.offsets import read_offsets, set_offsets
from cli.kafka.offsets_file import format_offsets, parse_offsets
from cli.terminal.escaping import echo
from cli.terminal.options import kafka_option, output_option
from cli.terminal.output import Columns, print_json, print_objects
from shared.kafka.connect.access import Kafka

COLUMNS: Columns = {
    "GROUP": "group",
    "TOPIC": "topic",
    "PARTITION": "partition",
    "OFFSET": "offset",
    "END": "end",
    "LAG": "lag",
}


@click.group("offsets")
def offsets() -> None:
    """Show the committed offsets of Kafka groups, write them to a file, or set them from one."""


@offsets.command("show")
@click.argument("groups", nargs=-1, required=True, metavar="GROUP…")
@kafka_option
@output_option
def show(groups: tuple[str, ...], kafka: Kafka, output: str) -> None:
    """Show what each Kafka GROUP has committed, and how much follows."""
    found, bounds = asyncio.run(read_offsets(kafka, groups))
    rows: list[dict[str, Any]] = []
    for group, of_group in sorted(found.items()):
        for (topic, number), offset in sorted(of_group.items()):
            place = bounds.get(topic, {}).get(number)
            end, lag = (place[1], max(0, place[1] - offset)) if place is not None else (None, None)
            row = {"group": group, "topic": topic, "partition": number}
            rows.append(row | {"offset": offset, "end": end, "lag": lag})
    if output == "json":
        print_json(rows)
    else:
        print_objects(COLUMNS, rows)


@offsets.command("export")
@click.argument("groups", nargs=-1, required=True, metavar="GROUP…")
@kafka_option
def export(groups: tuple[str, ...], kafka: Kafka) -> None:
    """Print what each Kafka GROUP has committed as `topic,partition,offset`.

    With several groups, the group comes first. `kafka-consumer-groups --from-file` reads it.
    """
    found, _ = asyncio.run(read_offsets(kafka, groups))
    echo(format_offsets(found), nl=False)


@offsets.command("import")
@click.argument("file", type=click.File())
@click.option("--group", default="", metavar="GROUP", show_default=False, help="Of lines that name none.")
@kafka_option
def import_(file: TextIO, group: str, kafka: Kafka) -> None:
    """Set the offsets of a FILE, like those of `export` or of `kafka-consumer-groups --export`.

    The groups must have no members, and the offsets must lie within their logs. A group of Baton never goes
    back: for those there is `baton rewind --to-file`.
    """
    wanted = parse_offsets(file, group)
    asyncio.run(set_offsets(kafka, wanted))
    for name, of_group in wanted.items():
        echo(f"{name}: {len(of_group)} offsets are set")
