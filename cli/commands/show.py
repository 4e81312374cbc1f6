"""`baton streams | members | producers | groups | lag | plan`: control's lists, as tables or as JSON.

Each command reads control once (page by page) and prints. The columns of every table are data: a path into
the row, or a function of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

import click

from cli.commands.control import get, get_list, print_list
from cli.terminal.escaping import echo, printable
from cli.terminal.layout import Column
from cli.terminal.lists import list_options
from cli.terminal.options import group_option, namespace_option, url_option
from cli.terminal.output import Columns, cell_text, print_objects
from shared.model.names import Names


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


def failure_lines(streams: Sequence[Mapping[str, Any]]) -> list[str]:
    """One line for each stream that fails or is in `rewind`, with the reason.

    >>> failure_lines([{"stream": 7, "state": "retrying", "failures": 3, "why": "no answer"}])
    ['stream 7 is retrying (failed 3 times in a row): no answer']
    """
    lines = []
    for row in streams:
        if row["why"]:
            times = f" (failed {row['failures']:,} times in a row)" if row["failures"] else ""
            lines.append(printable(f"stream {row['stream']} is {row['state']}{times}: {row['why']}"))
    return lines


STREAM_COLUMNS: Columns = {
    "STREAM": "stream",
    "OWNER": Column("owner", rank=1),
    "EPOCH": Column("epoch", rank=6),
    "STATE": Column("state", rank=2),
    "POSITION": Column("position", rank=4),
    "END": Column("end", rank=5),
    "LAG": "lag",
    "SAFE OFFSET": Column("safe_offset", rank=8),
    "OPEN SESSIONS": Column("open_sessions", rank=3),
    "STATE BYTES": Column("state_bytes", rank=7),
    "STATUS": "status",
}
MEMBER_COLUMNS: Columns = {
    "MEMBER": "id",
    "ADDRESS": Column("address", rank=3),
    # as text: people compare a pid with that of `ps`, which has no separators
    "PID": Column(lambda member: str(member["pid"]), rank=4),
    "STATE": lambda member: member["state"] + ("" if member["answers"] else ", does not answer"),
    "OWNS": lambda member: len(member["streams"]),
    "STREAMS": Column(lambda member: ranges_text(member["streams"]), rank=1, is_prose=True),
    "FRAGMENTS/S": Column("rates.fragments_per_s", rank=5),
    "SESSIONS/S": Column("rates.sessions_per_s", rank=6),
    "LEASE MS": Column(
        lambda member: None if member["lease_ms"] is None else int(member["lease_ms"]), rank=7
    ),
}
PRODUCER_COLUMNS: Columns = {
    "PRODUCER": "id",
    "ADDRESS": "address",
    "PID": lambda producer: str(producer["pid"]),
    "ACCEPTED/S": Column("accepted_per_s", rank=1),
    "ANSWERS": Column("answers", rank=2),
}
GROUP_COLUMNS: Columns = {
    "GROUP": "name",
    "DELIVERY": Column("settings.delivery", rank=1),
    "GAP MS": Column("settings.gap_ms", rank=2),
    "LATENESS MS": Column("settings.lateness_ms", rank=3),
    "MEMBERS": lambda group: len(group["members"]),
    "STREAMS": "streams",
    "LAG": "lag",
    "FOLLOWS": Column("follows", rank=4),
    "ALIASES": Column(lambda group: ", ".join(group.get("aliases", ())), rank=5),
}
PLAN_COLUMNS: Columns = {"STREAM": "stream", "FROM": "from", "TO": "to", "WHY": Column("why", is_prose=True)}
# the names and the order of kafka-consumer-groups; its JSON field is the name in lower case
LAG_COLUMNS: Columns = {
    name: Column(name.lower().replace("-", "_"), rank)
    for name, rank in {
        "GROUP": 5,
        "TOPIC": 0,
        "PARTITION": 6,
        "CURRENT-OFFSET": 2,
        "LOG-END-OFFSET": 3,
        "LAG": 0,
        "CONSUMER-ID": 4,
        "HOST": 7,
        "CLIENT-ID": 8,
    }.items()
}


@click.command("streams")
@group_option
@url_option
@list_options("owner", "status", "state")
def streams(group: str, url: str, output: str, chosen: Mapping[str, str]) -> None:
    """List a group's streams: the owner, position and lag of each.

    POSITION is the committed position, LAG the number of records after it. STATUS uses Burrow's words: OK,
    WARN (moving, but falling behind), STOP (no commit for a while), STALL (commits do not advance), REWIND.
    The lines below the table give the reason for each stream that fails or is in rewind.
    """
    answer = get_list(url, "streams", "stream", {"group": group, **chosen})
    print_list(answer, "streams", output, STREAM_COLUMNS)
    # the sums are in the JSON already
    if output == "text":
        for line in failure_lines(answer["streams"]):
            echo(line)
        totals = answer["totals"]
        echo(
            f"{totals['streams']:,} streams, lag {cell_text(totals['lag'])}, "
            f"{cell_text(totals['open_sessions'])} open sessions, {totals['sessions']:,} sessions delivered"
        )


@click.command("members")
@group_option
@url_option
@list_options("state")
def members(group: str, url: str, output: str, chosen: Mapping[str, str]) -> None:
    """List a group's members, including those that own no stream."""
    answer = get_list(url, "members", "id", {"group": group, **chosen})
    print_list(answer, "members", output, MEMBER_COLUMNS)


@click.command("producers")
@url_option
@list_options()
def producers(url: str, output: str, chosen: Mapping[str, str]) -> None:
    """List the producers: their addresses, and what they accept."""
    print_list(get_list(url, "producers", "id", chosen), "producers", output, PRODUCER_COLUMNS)


@click.command("plan")
@group_option
@url_option
@list_options(is_sorted=False)
def plan(group: str, url: str, output: str) -> None:
    """Show which streams would move and why, and how many each member should own."""
    answer = get(url, "/plan", {"group": group})
    if output != "text":
        print_list(answer, "moves", output, PLAN_COLUMNS)
        return
    # a table without rows would look like a failure
    if answer["moves"]:
        print_objects(PLAN_COLUMNS, answer["moves"])
    else:
        echo("Nothing would move.")
    quotas = ", ".join(f"{name} {count}" for name, count in sorted(answer["quota"].items()))
    echo(f"Quota: {quotas or 'no members'}")
    # pins are rare, and they explain a plan that looks uneven
    if answer["pins"]:
        pins = ", ".join(f"{stream} to {member}" for stream, member in answer["pins"].items())
        echo(f"Pinned: {pins}")


@click.command("lag")
@group_option
@url_option
@namespace_option
@list_options("owner", "status", "state")
def lag(group: str, url: str, names: Names, output: str, chosen: Mapping[str, str]) -> None:
    """Show each stream's lag, with the columns of kafka-consumer-groups.

    CURRENT-OFFSET is the stream's committed position: every record before it is accounted for. Kafka's own
    tools show the safe offset there, where a replay would begin, because that is what the Kafka group has
    committed.
    """
    of_group = {"group": group}
    # two requests: when a stream moves in between, the details of its new owner may be missing
    members = get_list(url, "members", "id", of_group)["members"]
    member_of = {member["id"]: member for member in members}
    rows = [
        {
            "group": group,
            "topic": names.fragments(row["stream"]),
            "partition": 0,
            "current_offset": row["position"],
            "log_end_offset": row["end"],
            "lag": row["lag"],
            **_client_of(row["owner"], member_of.get(row["owner"], {})),
        }
        for row in get_list(url, "streams", "stream", {**of_group, **chosen})["streams"]
    ]
    print_list({"lag": rows}, "lag", output, LAG_COLUMNS)


def _client_of(owner: str | None, member: Mapping[str, Any]) -> dict[str, str | None]:
    """The owner as a Kafka client; all None for a stream without an owner.

    Kafka's consumer id is the client id plus a suffix for this life of the client; ours is the ZooKeeper
    session. An owner that has just left is not among the members any more: then only its id is known.
    """
    session = member.get("zookeeper_session")
    return {
        "consumer_id": f"{owner}-{session}" if session else owner,
        "host": urlsplit(member.get("address", "")).hostname,
        "client_id": owner,
    }
