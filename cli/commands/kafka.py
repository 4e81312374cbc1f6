"""`baton kafka record | settings | forget`: repairs in Kafka that need none of Kafka's own tools.

Each command talks to Kafka directly, so it also works when no service runs. docs/operations.md says when an
operator needs which.
"""

from __future__ import annotations

import asyncio

import click

from cli.kafka.known_names import check_names
from cli.kafka.repair import change_settings, delete_offsets, delete_records, read_record
from cli.terminal.escaping import echo, escaped
from cli.terminal.options import group_option, kafka_options, output_option
from cli.terminal.output import print_json, print_table, time_text
from shared.kafka.connect.access import Kafka
from shared.model.names import Names


@click.group("kafka")
def kafka_group() -> None:
    """Show a record, change a topic's settings, or make a stream forget what it has committed."""


@kafka_group.command("record")
@click.argument("topic")
@click.argument("offset", type=click.IntRange(min=0))
@click.option("--partition", type=click.IntRange(min=0), default=0, help="Partition of the topic.")
@kafka_options
@output_option
def record(topic: str, offset: int, partition: int, kafka: Kafka, names: Names, output: str) -> None:
    """Show the record at OFFSET of TOPIC (without its namespace), with everything unprintable escaped."""
    found = asyncio.run(read_record(kafka, names.topic(topic), partition, offset))
    fields = {
        "time": time_text(found.time_ms),
        "key": None if found.key is None else escaped(found.key),
        **{f"header {name}": escaped(value) for name, value in found.headers},
        "value": None if found.value is None else escaped(found.value),
    }
    if output == "json":
        print_json(fields)
        return
    # line by line: a value may be larger than any table
    for name, text in fields.items():
        echo(f"{name}: {'-' if text is None else text}")


@kafka_group.command("settings")
@click.argument("topic")
@click.argument("changes", nargs=-1, metavar="[NAME=VALUE]...")
@kafka_options
@output_option
def settings(topic: str, changes: tuple[str, ...], kafka: Kafka, names: Names, output: str) -> None:
    """Change settings of TOPIC (without its namespace), and show all that differ from the broker's."""
    pairs = dict(_pair(change) for change in changes)
    found = asyncio.run(change_settings(kafka, names.topic(topic), pairs))
    if output == "json":
        print_json(found)
    else:
        print_table(("SETTING", "VALUE"), sorted(found.items()))


@kafka_group.command("forget")
@click.argument("stream", type=click.IntRange(0, 9999))
@click.option("--checkpoints", is_flag=True, help="Delete its checkpoints, too: the stream starts over.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@group_option
@kafka_options
def forget(stream: int, checkpoints: bool, yes: bool, group: str, kafka: Kafka, names: Names) -> None:
    """Delete the committed offset of a STREAM, with the head that it carries.

    The next owner finds the head in the checkpoints. With --checkpoints it finds none and reads the log from
    its start; stop all members of the group before.
    """
    asyncio.run(check_names(kafka, names, group, stream))
    what = "committed offset and the checkpoints" if checkpoints else "committed offset"
    if not yes and not click.confirm(f"delete the {what} of stream {stream} in group {group!r}?"):
        echo("nothing was deleted")
        raise click.exceptions.Exit(1)
    asyncio.run(_forget(kafka, names, group, stream, with_checkpoints=checkpoints))
    echo(f"deleted the {what} of stream {stream} in group {group!r}")


async def _forget(kafka: Kafka, names: Names, group: str, stream: int, *, with_checkpoints: bool) -> None:
    await delete_offsets(kafka, names.kafka_group(group), [names.fragments(stream)])
    if with_checkpoints:
        await delete_records(kafka, names.checkpoints(group), [stream])


def _pair(change: str) -> tuple[str, str]:
    name, equals, value = change.partition("=")
    if not equals or not name:
        raise click.BadParameter(f"{change!r} is not NAME=VALUE")
    return name, value
