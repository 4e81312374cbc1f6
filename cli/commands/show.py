"""`baton streams | members | producers | groups | lag | plan`: control's lists, as tables or as JSON.

Each command reads control once (page by page) and prints; the pure `…_rows` functions decide what a table's
rows hold.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

import click

from cli.commands.control import get, get_list
from cli.terminal.options import group_option, namespace_option, output_option, url_option
from cli.terminal.output import pick, print_json, print_list, print_table
from shared.model.names import Names

Rows = Iterable[Mapping[str, Any]]

STREAM_COLUMNS = {
    "STREAM": "stream",
    "OWNER": "owner",
    "EPOCH": "epoch",
    "STATE": "state",
    "POSITION": "position",
    "END": "end",
    "LAG": "lag",
    "SAFE OFFSET": "safe_offset",
    "OPEN SESSIONS": "open_sessions",
    "STATE BYTES": "state_bytes",
    "STATUS": "status",
}
MEMBER_COLUMNS = (
    *("MEMBER", "ADDRESS", "PID", "STATE", "OWNS", "STREAMS"),
    *("FRAGMENTS/S", "SESSIONS/S", "LEASE MS"),
)
LAG_COLUMNS = (
    *("GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET"),
    *("LAG", "CONSUMER-ID", "HOST", "CLIENT-ID"),
)
"""The names and the order of kafka-consumer-groups."""
GROUP_COLUMNS = ("GROUP", "DELIVERY", "GAP MS", "LATENESS MS", "MEMBERS", "STREAMS", "LAG")


@click.command("streams")
@group_option
@url_option
@output_option
def streams(group: str, url: str, output: str) -> None:
    """List a group's streams: the owner, position and lag of each.

    POSITION is the committed position, LAG the number of records after it. STATUS uses Burrow's words: OK,
    WARN (moving, but falling behind), STOP (no commit for a while), STALL (commits do not advance), REWIND.
    """
    answer = get_list(url, "streams", "stream", {"group": group})
    rows = ([pick(row, path) for path in STREAM_COLUMNS.values()] for row in answer["streams"])
    print_list(answer, output, STREAM_COLUMNS, rows)
    if output == "text":
        totals = answer.get("totals", {})
        click.echo(
            f"{totals.get('streams', len(answer['streams'])):,} streams, lag {totals.get('lag', 0):,}, "
            f"{totals.get('open_sessions', 0):,} open sessions, "
            f"{totals.get('sessions', 0):,} sessions delivered"
        )


@click.command("members")
@group_option
@url_option
@output_option
def members(group: str, url: str, output: str) -> None:
    """List a group's members, including those that own no stream."""
    answer = get_list(url, "members", "id", {"group": group})
    print_list(answer, output, MEMBER_COLUMNS, member_rows(answer["members"]))


@click.command("producers")
@url_option
@output_option
def producers(url: str, output: str) -> None:
    """List the producers and their addresses."""
    answer = get_list(url, "producers", "id")
    rows = ([row["id"], row["address"], str(row["pid"])] for row in answer["producers"])
    print_list(answer, output, ("PRODUCER", "ADDRESS", "PID"), rows)


@click.command("groups")
@url_option
@output_option
def groups(url: str, output: str) -> None:
    """List the groups with their settings, members and lag."""
    answer = get_list(url, "groups", "name")
    print_list(answer, output, GROUP_COLUMNS, group_rows(answer["groups"]))


@click.command("plan")
@group_option
@url_option
@output_option
def plan(group: str, url: str, output: str) -> None:
    """Show which streams would move and why, and how many each member should own."""
    answer = get(url, "/plan", {"group": group})
    if output == "json":
        print_json(answer)
        return
    moves = answer.get("moves") or []
    if moves:
        rows = ([move.get(name) for name in ("stream", "from", "to", "why")] for move in moves)
        print_table(("STREAM", "FROM", "TO", "WHY"), rows)
    else:
        click.echo("Nothing would move.")
    quota = answer.get("quota") or {}
    quotas = ", ".join(f"{name} {count}" for name, count in sorted(quota.items()))
    click.echo(f"Quota: {quotas or 'no members'}")
    pins = answer.get("pins") or {}
    if pins:
        click.echo("Pinned: " + ", ".join(f"{stream} to {member}" for stream, member in pins.items()))


@click.command("lag")
@group_option
@url_option
@namespace_option
@output_option
def lag(group: str, url: str, names: Names, output: str) -> None:
    """Show each stream's lag, with the columns of kafka-consumer-groups.

    CURRENT-OFFSET is the stream's committed position: every record before it is accounted for. Kafka's own
    tools show the safe offset there, where a replay would begin, because that is what the Kafka group has
    committed.
    """
    of_group = {"group": group}
    rows = lag_rows(
        get_list(url, "streams", "stream", of_group)["streams"],
        get_list(url, "members", "id", of_group)["members"],
        group,
        names,
    )
    keys = [column.lower().replace("-", "_") for column in LAG_COLUMNS]
    print_list({"lag": [dict(zip(keys, row, strict=True)) for row in rows]}, output, LAG_COLUMNS, rows)


def lag_rows(streams: Rows, members: Rows, group: str, names: Names) -> list[tuple[Any, ...]]:
    """One row per stream with LAG_COLUMNS; the last three are None for a stream without an owner.

    Kafka's consumer id is the client id plus a suffix for this life of the client; ours is the ZooKeeper
    session.
    """
    member_of = {member["id"]: member for member in members}
    rows: list[tuple[Any, ...]] = []
    for row in streams:
        owner = member_of.get(row["owner"], {}) if row["owner"] else None
        consumer = host = None
        if owner is not None:
            session = owner.get("zookeeper_session")
            consumer = f"{row['owner']}-{session}" if session else row["owner"]
            host = urlsplit(owner.get("address", "")).hostname
        offsets = (row["position"], row["end"], row["lag"])
        rows.append((group, names.fragments(row["stream"]), 0, *offsets, consumer, host, row["owner"]))
    return rows


def member_rows(members: Rows) -> list[tuple[Any, ...]]:
    """One row per member with MEMBER_COLUMNS."""
    rows = []
    for member in members:
        owned = member.get("streams") or []
        state = member["state"] if member.get("answers", True) else f"{member['state']}, does not answer"
        rates = member.get("rates") or {}
        lease = member.get("lease_ms")
        rows.append(
            (
                member["id"],
                member["address"],
                str(member["pid"]),
                state,
                len(owned),
                ranges_text(owned),
                rates.get("fragments_per_s", 0.0),
                rates.get("sessions_per_s", 0.0),
                None if lease is None else int(lease),
            )
        )
    return rows


def group_rows(groups: Rows) -> list[tuple[Any, ...]]:
    """One row per group with GROUP_COLUMNS."""
    return [
        (
            group["name"],
            *(pick(group, f"settings.{name}") for name in ("delivery", "gap_ms", "lateness_ms")),
            len(group["members"]),
            group["streams"],
            group.get("lag"),
        )
        for group in groups
    ]


def ranges_text(numbers: Sequence[int]) -> str:
    """The numbers in ascending order, neighbours joined to ranges.

    >>> ranges_text([0, 1, 2, 5, 7, 8])
    '0-2, 5, 7-8'
    """
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ", ".join(f"{low}-{high}" if high > low else str(low) for low, high in runs)
