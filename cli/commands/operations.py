"""`baton move | unpin | drain | undrain | rebalance | pause | resume | operations`: operators' changes.

Each command asks control for an operation; `--dry-run` shows what would move and how much, `--wait` follows
the operation to its end. Streams move while everything runs, so only a pause stops anything.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping, Sequence
from typing import Any, TypedDict, Unpack

import click
from rich.filesize import decimal

from cli.commands.control import Progress, ask, get_list, print_list, start
from cli.terminal.escaping import echo, printable
from cli.terminal.interrupts import interruptible
from cli.terminal.layout import Column
from cli.terminal.lists import list_options
from cli.terminal.options import group_options, together, url_option
from cli.terminal.output import Columns, counted, print_json, print_objects, time_text
from shared.errors import NotFound

operation_options = together(
    click.option("--dry-run", is_flag=True, help="Only show what would move, and how much."),
    click.option("--wait", is_flag=True, help="Show progress until the operation has ended."),
    click.option("--reason", default="", metavar="TEXT", show_default=False, help="Why; an event keeps it."),
    group_options,
)


class Asked(TypedDict):
    """The options that all commands share."""

    dry_run: bool
    wait: bool
    reason: str
    group: str
    url: str
    output: str


@click.command("drain")
@click.argument("member")
@operation_options
def drain(member: str, **asked: Unpack[Asked]) -> None:
    """Hand over all streams of a MEMBER and remove it from its group.

    The process keeps running until you stop it; after a restart the member joins again. With --wait the exit
    code is 1 unless the member has left. Warns if no other member would take over.
    """
    _warn_of_last(asked["url"], asked["group"], member)
    _operate({"kind": "drain", "member": member}, asked)


@click.command("undrain")
@click.argument("member")
@operation_options
def undrain(member: str, **asked: Unpack[Asked]) -> None:
    """Make a MEMBER that is still draining take streams again.

    One that has left joins again after a restart.
    """
    _operate({"kind": "undrain", "member": member}, asked)


@click.command("move")
@click.argument("stream", type=click.IntRange(min=0))
@click.option("--to", required=True, metavar="MEMBER", help="The member to move the stream to.")
@operation_options
def move(stream: int, to: str, **asked: Unpack[Asked]) -> None:
    """Pin a STREAM to a member; its owner hands it over.

    The pin stays until you move or unpin the stream, drain the member, or rebalance. Another stream may move
    the other way to keep the shares even. With --wait the exit code is 1 unless the stream has moved.
    """
    _operate({"kind": "move", "stream": stream, "to": to}, asked)


@click.command("unpin")
@click.argument("stream", type=click.IntRange(min=0))
@operation_options
def unpin(stream: int, **asked: Unpack[Asked]) -> None:
    """Remove the pin of a STREAM, so that it goes where the plan wants it."""
    _operate({"kind": "unpin", "stream": stream}, asked)


@click.command("rebalance")
@operation_options
def rebalance(**asked: Unpack[Asked]) -> None:
    """Remove all pins, so that the members' shares become even again.

    With --wait the exit code is 1 unless they are even in the end.
    """
    _operate({"kind": "rebalance"}, asked)


@click.command("pause")
@operation_options
def pause(**asked: Unpack[Asked]) -> None:
    """Make a group read nothing: its members keep their streams, and commit what they have read.

    It stays paused over restarts of everything, until `baton resume`. With --wait the exit code is 1 unless
    every member reports that it has paused.
    """
    _operate({"kind": "pause"}, asked)


@click.command("resume")
@operation_options
def resume(**asked: Unpack[Asked]) -> None:
    """Make a paused group read again."""
    _operate({"kind": "resume"}, asked)


@click.command("operations")
@click.option("--cancel", default="", metavar="OPERATION", show_default=False, help="Cancel this operation.")
@click.option("--reason", default="", metavar="TEXT", show_default=False, help="Why you cancel it.")
@url_option
@list_options("state")
def operations(cancel: str, reason: str, url: str, output: str, chosen: Mapping[str, str]) -> None:
    """List what operators have asked for, newest first; or cancel an operation that has not ended.

    A cancelled move, unpin or rebalance restores the pins, and a cancelled drain makes the member take
    streams again.
    """
    if not cancel:
        print_list(get_list(url, "operations", "id", chosen), "operations", output, OPERATION_COLUMNS)
        return
    answer = ask(url, lambda control: control.cancel("operations", cancel, reason))
    if output == "json":
        print_json(answer)
    else:
        echo(f"operation {answer['id']} ({request_text(answer)}) is {answer['state']}")


def request_text(request: Mapping[str, Any]) -> str:
    """The operation as one types it on the command line.

    >>> request_text({"kind": "move", "stream": 3, "to": "consumer-1"})
    'move 3 --to consumer-1'
    """
    # control returns the request with the operation, so this also works for a row of the list
    match request["kind"]:
        case "move":
            return f"move {request['stream']} --to {request['to']}"
        case "drain" | "undrain" as kind:
            return f"{kind} {request['member']}"
        case "unpin":
            return f"unpin {request['stream']}"
        case "rewind":
            return f"rewind --group {request['group']} --as {request['to']}"
        case "promote":
            return f"groups promote {request['group']} --to {request['to']}"
        case kind:
            return str(kind)


def cost_text(moves: int, sessions: int | None, size: int | None) -> str:
    """A phrase for how much moves; None: an owner does not say.

    >>> cost_text(1, 2_000, 2_339_220), cost_text(3, None, None)
    ('1 stream, 2,000 open sessions, 2.3 MB', '3 streams, open sessions not known')
    """
    streams = counted(moves, "stream")
    if sessions is None or size is None:
        return f"{streams}, open sessions not known"
    return f"{streams}, {counted(sessions, 'open session')}, {decimal(size)}"


def likely_text(likely: Mapping[str, Any]) -> str:
    """A sentence on how long it is likely to take; "" if no handover of the last hour says it.

    >>> likely_text({"pause_ms": 43.4, "longest_pause_ms": 700.0, "length_ms": 2_600.0})
    'Likely, from the handovers of the last hour: each stream pauses for 43 ms, all have moved after 2.6 s.'
    """
    if likely.get("pause_ms") is None:
        return ""
    text = f"each stream pauses for {_duration_text(likely['pause_ms'])}"
    if likely["length_ms"] is not None:
        text += f", all have moved after {_duration_text(likely['length_ms'])}"
    return f"Likely, from the handovers of the last hour: {text}."


def _duration_text(ms: float) -> str:
    return f"{ms:.0f} ms" if ms < 1000 else f"{ms / 1000:.1f} s"


UNDO = {
    "move": "`baton unpin` undoes it",
    "unpin": "`baton move` sets a pin again",
    "drain": "`baton undrain` undoes it while the member drains, and then its restart",
    "undrain": "`baton drain` undoes it",
    "rebalance": "`baton move` sets a pin again",
    "pause": "`baton resume` undoes it",
    "resume": "`baton pause` undoes it",
}
"""How to undo an operation of each kind, whether or not it has ended."""
OPERATION_COLUMNS: Columns = {
    "OPERATION": "id",
    "WHAT": request_text,
    "GROUP": Column("group", rank=4),
    "STATE": "state",
    "MOVES": Column(lambda row: f"{row['done']}/{row['total']}", rank=3),
    "SESSIONS": Column("sessions", rank=5),
    "BYTES": Column("bytes", rank=6),
    "WHO": Column("who", rank=7),
    "REASON": Column("reason", rank=8, is_prose=True),
    "SINCE": Column(lambda row: time_text(row["since"]), rank=2),
    "WHY": Column("why", rank=1, is_prose=True),
}
MOVE_COLUMNS: Columns = {
    "STREAM": "stream",
    "FROM": "from",
    "TO": "to",
    "SESSIONS": "sessions",
    "BYTES": "bytes",
}


def _warn_of_last(url: str, group: str, member: str) -> None:
    """Warns on standard error when the group has no other member that its streams could go to."""
    try:
        rows = get_list(url, "members", "id", {"group": group})["members"]
    except NotFound:
        # the operation itself reports an unknown group
        return
    staying = {row["id"] for row in rows if row["state"] != "draining"}
    if staying == {member}:
        echo(
            f"baton: {member} is the last member of group {group!r}: until another one joins, its streams are"
            " not read and no session is delivered",
            err=True,
        )


def _operate(wish: Mapping[str, Any], asked: Asked) -> None:
    url, output, dry_run, wait = asked["url"], asked["output"], asked["dry_run"], asked["wait"]
    request = {**wish, "group": asked["group"], "dry_run": dry_run, "reason": asked["reason"]}
    started: list[Mapping[str, Any]] = []
    with interruptible(lambda: "nothing was started" if dry_run else _what_goes_on(request, started)):
        answer = asyncio.run(
            start(
                url,
                lambda control: control.operate(request),
                "/operations",
                _progress_of,
                # a dry run starts nothing, so there is nothing to wait for
                wait=wait and not dry_run,
                on_started=started.append,
            )
        )
    # somebody may cancel it meanwhile: then what was waited for has not come about
    has_failed = answer.get("state") in ("failed", "cancelled")
    if output == "json":
        print_json(answer)
    elif dry_run:
        _print_forecast(answer)
    # a failure goes to standard error instead, with the reason
    elif not has_failed:
        cost = cost_text(answer["total"], answer["sessions"], answer["bytes"])
        echo(f"operation {answer['id']} ({request_text(answer)}) is {answer['state']}: {cost}")
    if has_failed:
        # a cancel says by whom: "cancelled by ann"
        how = f"{'failed:' if answer['state'] == 'failed' else 'was'} {printable(answer['why'])}"
        echo(f"operation {answer['id']} ({request_text(answer)}) {how}", err=True)
        sys.exit(1)


def _what_goes_on(request: Mapping[str, Any], started: Sequence[Mapping[str, Any]]) -> str:
    """What control keeps doing after this command was interrupted, and how to undo it."""
    text, undo = request_text(request), UNDO[request["kind"]]
    if not started:
        return f"the operation ({text}) may have started; `baton operations` lists the operations. {undo}"
    return f"operation {started[0]['id']} ({text}) continues; `baton operations` shows it. {undo}"


def _progress_of(operation: Mapping[str, Any]) -> Progress:
    text = f"{request_text(operation)} {operation['why']}"
    return Progress(text, operation["done"], operation["total"])


def _print_forecast(answer: Mapping[str, Any]) -> None:
    # an empty table would look like a failure
    if not answer["moves"]:
        echo("Nothing would move.")
        return
    print_objects(MOVE_COLUMNS, answer["moves"])
    totals = answer["totals"]
    echo(f"Would move: {cost_text(totals['moves'], totals['sessions'], totals['bytes'])}.")
    if text := likely_text(answer.get("likely", {})):
        echo(text)
