"""`baton rewind`, `baton groups list | show | promote | delete`: groups that follow others.

A group never goes back. A rewind makes another group, which reads again what the first one has read, and
whose members you start yourself (`BATON_GROUP`). `--dry-run` shows where it would start, and why.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import quote

import click

from cli.commands.control import ask, get, get_list, print_list
from cli.commands.show import GROUP_COLUMNS
from cli.kafka.offsets_file import parse_offsets
from cli.terminal.escaping import echo
from cli.terminal.lists import list_options
from cli.terminal.options import group_option, output_option, url_option
from cli.terminal.output import Columns, print_json, print_objects

START_COLUMNS: Columns = {
    "STREAM": "stream",
    "START": lambda row: "its log's start" if row["start"] is None else row["start"],
    "RECORDS": "records",
    "TAKEN": "taken",
    "WHY": "why",
}
CUT_COLUMNS: Columns = {
    "GROUP": "group",
    "TOPIC": "topic",
    "STREAM": "stream",
    "BELOW": "below",
}
STREAM_TOPIC = re.compile(r"(?:.*\.)?fragments\.(\d{4})")
"""The topic of a stream, in any namespace."""
reason_option = click.option(
    "--reason", default="", metavar="TEXT", show_default=False, help="Why; an event keeps it."
)


@click.command("rewind")
@click.option(
    "--as", "name", default="", metavar="NAME", show_default="GROUP-2, GROUP-3, …", help="The new group."
)
@click.option(
    "--to",
    default="earliest",
    metavar="WHERE",
    help="`earliest`, `latest`, a time like 2026-11-23T12:00:00Z, or offsets like 0:1200,3:700.",
)
@click.option("--to-file", type=click.File(), help="Offsets as CSV of kafka-consumer-groups.")
@click.option(
    "--streams",
    default="",
    metavar="N,…",
    show_default=False,
    help="Only these; the others start at `latest`.",
)
@click.option("--set", "settings", multiple=True, metavar="NAME=VALUE", help="A setting that differs.")
@click.option("--alone", is_flag=True, help="Follow nobody: only its own sessions are current.")
@click.option("--dry-run", is_flag=True, help="Only show where it would start, and why.")
@reason_option
@group_option
@url_option
@output_option
def rewind(
    name: str,
    to: str,
    to_file: Any,
    streams: str,
    settings: tuple[str, ...],
    alone: bool,
    dry_run: bool,
    reason: str,
    group: str,
    url: str,
    output: str,
) -> None:
    """Make another group that follows this one, and reads again what this one has read.

    What began before its start stays as this group has delivered it; from there on the new group makes its
    own sessions, with its own settings. This group goes on. Members of the new group are yours to start.
    """
    wish: dict[str, Any] = {
        "kind": "rewind",
        "group": group,
        "as": name or next_name(group, names_taken(url)),
        "to": offsets_in(to_file) if to_file is not None else where(to),
        "settings": settings_in(settings),
        "alone": alone,
        "dry_run": dry_run,
        "reason": reason,
    }
    if streams:
        wish["streams"] = [_number(one, "--streams") for one in streams.split(",")]
    answer = ask(url, lambda control: control.operate(wish))
    if output == "json":
        print_json(answer)
    elif dry_run:
        print_objects(START_COLUMNS, answer["streams"])
        echo(f"Group {answer['as']} would read {answer['records']:,} records.")
    else:
        echo(f"group {answer['to']} is made; start members with BATON_GROUP={answer['to']}")


@click.group("groups", invoke_without_command=True)
@url_option
@list_options()
@click.pass_context
def groups(context: click.Context, url: str, output: str, chosen: Mapping[str, str]) -> None:
    """List the groups with their settings, members and lag; or show, promote or delete one."""
    if context.invoked_subcommand is None:
        _list(url, output, chosen)


@groups.command("list")
@url_option
@list_options()
def list_groups(url: str, output: str, chosen: Mapping[str, str]) -> None:
    """List the groups."""
    _list(url, output, chosen)


@groups.command("show")
@click.argument("group")
@click.option("--sql", is_flag=True, help="Print a query of the lake's table `sessions` for `baton sql`.")
@url_option
@output_option
def show(group: str, sql: bool, url: str, output: str) -> None:
    """Show which sessions are current in a GROUP: its own, and some of the groups that it follows."""
    answer = get(url, f"/groups/{quote(group, safe='')}/current")
    if sql:
        echo(answer["sql"])
    elif output == "json":
        print_json(answer)
    else:
        print_objects(CUT_COLUMNS, [row for one in answer["current"] for row in _cut_rows(one)])


@groups.command("promote")
@click.argument("group")
@click.option("--to", "alias", required=True, metavar="ALIAS", help="The name that jobs and readers use.")
@reason_option
@url_option
def promote(group: str, alias: str, reason: str, url: str) -> None:
    """Let jobs and readers find a GROUP under another name, once it has caught up."""
    wish = {"kind": "promote", "group": group, "alias": alias, "reason": reason}
    ask(url, lambda control: control.operate(wish))
    echo(f"{alias} is {group} now")


@groups.command("delete")
@click.argument("group")
@reason_option
@url_option
def delete(group: str, reason: str, url: str) -> None:
    """Delete a GROUP without members, alias or followers; its finished sessions stay."""
    ask(url, lambda control: control.cancel("groups", group, reason))
    echo(f"group {group} is deleted")


def next_name(group: str, taken: list[str]) -> str:
    """The first of GROUP-2, GROUP-3, … that is free.

    >>> next_name("default", ["default", "default-2"])
    'default-3'
    """
    return next(name for n in range(2, len(taken) + 3) if (name := f"{group}-{n}") not in taken)


def names_taken(url: str) -> list[str]:
    """The names and aliases of all groups."""
    rows = get_list(url, "groups", "name")["groups"]
    return [name for row in rows for name in (row["name"], *row["aliases"])]


def where(to: str) -> str | int | dict[str, int]:
    """`--to` as control takes it. Raises BadParameter.

    >>> where("0:1200,3:700"), where("latest"), where("1700000000000")
    ({'0': 1200, '3': 700}, 'latest', 1700000000000)
    """
    if to.isdigit():
        return int(to)
    if all(part.replace(":", "", 1).isdigit() for part in to.split(",")):
        pairs = [part.partition(":") for part in to.split(",")]
        return {stream: _number(offset, "--to") for stream, _, offset in pairs}
    return to


def offsets_in(lines: Iterable[str]) -> dict[str, int]:
    """Offsets by stream of lines `topic,partition,offset`, with the group before where there are several.

    Raises InvalidInput, BadParameter.

    >>> offsets_in(["fragments.0003,0,17\\n"])
    {'3': 17}
    """
    by_group = parse_offsets(lines, "baton")
    if len(by_group) > 1:
        raise click.BadParameter("the file has offsets of several groups", param_hint="--to-file")
    found: dict[str, int] = {}
    for of_group in by_group.values():
        for (topic, partition), offset in of_group.items():
            match = STREAM_TOPIC.fullmatch(topic)
            if match is None or partition:
                what = f"{topic}/{partition} is not the log of a stream"
                raise click.BadParameter(what, param_hint="--to-file")
            found[str(int(match[1]))] = offset
    return found


def settings_in(pairs: tuple[str, ...]) -> dict[str, Any]:
    """Settings by name.

    >>> settings_in(("gap_ms=1000", "delivery=at_least_once"))
    {'gap_ms': 1000, 'delivery': 'at_least_once'}
    """
    found: dict[str, Any] = {}
    for pair in pairs:
        name, _, value = pair.partition("=")
        found[name] = json.loads(value) if value.isdigit() else value
    return found


def _number(text: str, option: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise click.BadParameter(f"{text!r} is not a whole number", param_hint=option) from None


def _list(url: str, output: str, chosen: Mapping[str, str]) -> None:
    print_list(get_list(url, "groups", "name", chosen), "groups", output, GROUP_COLUMNS)


def _cut_rows(one: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    place = {"group": one["group"], "topic": one["topic"]}
    if one["cuts"] is None:
        return [place | {"stream": "all", "below": None}]
    return [place | {"stream": cut["stream"], "below": cut["below"]} for cut in one["cuts"]]
