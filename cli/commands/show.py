"""`baton streams | members | producers | groups | lag | plan`: control's lists, as tables or as its own JSON.

Each command asks control once (page by page) and prints; which columns a table has is decided by the pure
`…_rows` functions.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

import click

from cli.client import connect
from cli.output import group_option, output_option, pick, print_json, print_table, url_option
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
LAG_COLUMNS = (
    "GROUP",
    "TOPIC",
    "PARTITION",
    "CURRENT-OFFSET",
    "LOG-END-OFFSET",
    "LAG",
    "CONSUMER-ID",
    "HOST",
    "CLIENT-ID",
)
"""Named and ordered as kafka-consumer-groups does."""


@click.command("streams")
@group_option
@url_option
@output_option
def streams(group: str, url: str, output: str) -> None:
    """List a group's streams: who owns each, and how far it is.

    POSITION is the committed one, LAG what is left to the stream's end. STATUS in Burrow's words: OK, WARN
    (moving, but falling behind), STOP (no commit for a while), STALL (commits do not advance), REWIND.
    """
    answer = asyncio.run(_list(url, "streams", "stream", group))
    if output == "json":
        print_json(answer)
        return
    print_table(
        STREAM_COLUMNS, ([pick(row, path) for path in STREAM_COLUMNS.values()] for row in answer["streams"])
    )
    totals = answer.get("totals", {})
    click.echo(
        f"{totals.get('streams', len(answer['streams'])):,} streams, lag {totals.get('lag', 0):,}, "
        f"{totals.get('open_sessions', 0):,} open sessions, {totals.get('sessions', 0):,} sessions delivered"
    )


@click.command("members")
@group_option
@url_option
@output_option
def members(group: str, url: str, output: str) -> None:
    """List a group's members, those that own nothing too."""
    answer = asyncio.run(_list(url, "members", "id", group))
    if output == "json":
        print_json(answer)
        return
    columns = (
        "MEMBER",
        "ADDRESS",
        "PID",
        "STATE",
        "OWNS",
        "STREAMS",
        "FRAGMENTS/S",
        "SESSIONS/S",
        "LEASE MS",
    )
    print_table(columns, member_rows(answer["members"]))


@click.command("producers")
@url_option
@output_option
def producers(url: str, output: str) -> None:
    """List the producers."""
    answer = asyncio.run(_list(url, "producers", "id"))
    if output == "json":
        print_json(answer)
        return
    print_table(
        ("PRODUCER", "ADDRESS", "PID"), ([r["id"], r["address"], str(r["pid"])] for r in answer["producers"])
    )


@click.command("groups")
@url_option
@output_option
def groups(url: str, output: str) -> None:
    """List the groups, their settings, members and lag."""
    answer = asyncio.run(_list(url, "groups", "name"))
    if output == "json":
        print_json(answer)
        return
    columns = ("GROUP", "DELIVERY", "GAP MS", "LATENESS MS", "MEMBERS", "STREAMS", "LAG")
    print_table(columns, group_rows(answer["groups"]))


@click.command("plan")
@group_option
@url_option
@output_option
def plan(group: str, url: str, output: str) -> None:
    """Show which streams would move, and why; and how many each member should own."""
    answer = asyncio.run(_get(url, "/plan", group))
    if output == "json":
        print_json(answer)
        return
    moves = answer.get("moves") or []
    if moves:
        print_table(
            ("STREAM", "FROM", "TO", "WHY"),
            ([move.get(name) for name in ("stream", "from", "to", "why")] for move in moves),
        )
    else:
        click.echo("Nothing would move.")
    quota = answer.get("quota") or {}
    click.echo(
        "Quota: " + (", ".join(f"{name} {count}" for name, count in sorted(quota.items())) or "no members")
    )
    pins = answer.get("pins") or {}
    if pins:
        click.echo("Pinned: " + ", ".join(f"{stream} to {member}" for stream, member in pins.items()))


@click.command("lag")
@group_option
@url_option
@click.option(
    "--namespace", envvar="BATON_NAMESPACE", default="", show_envvar=True, help="Prefix of the topics' names."
)
@output_option
def lag(group: str, url: str, namespace: str, output: str) -> None:
    """Show how far each stream is behind, with the columns of kafka-consumer-groups.

    CURRENT-OFFSET is the stream's committed position: all before it is accounted for. Kafka's own tools show
    the safe offset there, where a replay would begin, because that is what the Kafka group has committed.
    """
    rows = asyncio.run(_lag(url, group, Names(namespace)))
    if output == "json":
        names = [column.lower().replace("-", "_") for column in LAG_COLUMNS]
        print_json({"lag": [dict(zip(names, row, strict=True)) for row in rows]})
        return
    print_table(LAG_COLUMNS, rows)


def lag_rows(streams: Rows, members: Rows, group: str, names: Names) -> list[tuple[Any, ...]]:
    """A row per stream in the order of LAG_COLUMNS; the last three are None for a stream without owner.

    As with Kafka, the consumer's id is the client's id and what tells this life of it from others: the
    ZooKeeper session.
    """
    of = {member["id"]: member for member in members}
    rows: list[tuple[Any, ...]] = []
    for row in streams:
        owner = of.get(row["owner"], {}) if row["owner"] else None
        consumer = host = None
        if owner is not None:
            life = owner.get("zookeeper_session")
            consumer = f"{row['owner']}-{life}" if life else row["owner"]
            host = urlsplit(owner.get("address", "")).hostname
        offsets = (row["position"], row["end"], row["lag"])
        rows.append((group, names.fragments(row["stream"]), 0, *offsets, consumer, host, row["owner"]))
    return rows


def member_rows(members: Rows) -> list[tuple[Any, ...]]:
    """A row per member: id, address, pid, state, number and ranges of streams, rates, lease."""
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
    """A row per group: name, delivery, gap, lateness, numbers of members and streams, lag."""
    return [
        (
            group["name"],
            pick(group, "settings.delivery"),
            pick(group, "settings.gap_ms"),
            pick(group, "settings.lateness_ms"),
            _count(group.get("members")),
            _count(group.get("streams")),
            group.get("lag"),
        )
        for group in groups
    ]


def ranges_text(numbers: Sequence[int]) -> str:
    """Ascending numbers with neighbours drawn together.

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


def _count(value: Any) -> int | None:
    return len(value) if isinstance(value, list) else value


async def _list(url: str, name: str, after: str, group: str | None = None) -> dict[str, Any]:
    async with connect(url) as control:
        return await control.pages(f"/{name}", name, after, {"group": group} if group else None)


async def _get(url: str, path: str, group: str) -> dict[str, Any]:
    async with connect(url) as control:
        answer: dict[str, Any] = await control.get(path, {"group": group})
        return answer


async def _lag(url: str, group: str, names: Names) -> list[tuple[Any, ...]]:
    async with connect(url) as control:
        streams = await control.pages("/streams", "streams", "stream", {"group": group})
        members = await control.pages("/members", "members", "id", {"group": group})
    return lag_rows(streams["streams"], members["members"], group, names)
