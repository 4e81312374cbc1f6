"""`baton drain | move | rebalance | operations`: changes of who owns which stream.

Each command asks control for an operation; `--dry-run` shows what would move and how much, `--wait` follows
the operation to its end. Streams move while everything runs, so an operation needs no downtime.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import quote

import click
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn

from cli.commands.control import PATIENCE_S, WAIT_PATIENCE_S, get_list, wait_until_ended
from cli.http.client import BatonClient, connect
from cli.terminal.options import group_option, output_option, url_option
from cli.terminal.output import bytes_text, print_json, print_list, print_table, progress_bar, time_text

POLL_S = 0.2
END_STATES = frozenset({"done", "failed"})

dry_run_option = click.option("--dry-run", is_flag=True, help="Only show what would move, and how much.")
wait_option = click.option("--wait", is_flag=True, help="Show progress until the operation has ended.")


@click.command("drain")
@click.argument("member")
@dry_run_option
@wait_option
@group_option
@url_option
@output_option
def drain(member: str, dry_run: bool, wait: bool, group: str, url: str, output: str) -> None:
    """Hand over all streams of a MEMBER and remove it from its group.

    The process keeps running until you stop it; after a restart the member joins again. With --wait the exit
    code is 1 unless the member has left.
    """
    _operate(url, {"kind": "drain", "member": member, "group": group}, dry_run, wait, output)


@click.command("move")
@click.argument("stream", type=click.IntRange(min=0))
@click.option("--to", required=True, metavar="MEMBER", help="The member to move the stream to.")
@dry_run_option
@wait_option
@group_option
@url_option
@output_option
def move(stream: int, to: str, dry_run: bool, wait: bool, group: str, url: str, output: str) -> None:
    """Pin a STREAM to a member; its owner hands it over.

    The pin stays until you move the stream again, drain the member, or rebalance. Another stream may move the
    other way to keep the shares even. With --wait the exit code is 1 unless the stream has moved.
    """
    _operate(url, {"kind": "move", "stream": stream, "to": to, "group": group}, dry_run, wait, output)


@click.command("rebalance")
@dry_run_option
@wait_option
@group_option
@url_option
@output_option
def rebalance(dry_run: bool, wait: bool, group: str, url: str, output: str) -> None:
    """Remove all pins, so that the members' shares become even again.

    With --wait the exit code is 1 unless they are even in the end.
    """
    _operate(url, {"kind": "rebalance", "group": group}, dry_run, wait, output)


@click.command("operations")
@url_option
@output_option
def operations(url: str, output: str) -> None:
    """List the moves, drains and rebalances that control remembers, newest first."""
    answer = get_list(url, "operations", "id")
    columns = ("OPERATION", "WHAT", "GROUP", "STATE", "MOVES", "SESSIONS", "BYTES", "SINCE", "WHY")
    print_list(answer, output, columns, map(operation_row, answer["operations"]))


def request_text(request: Mapping[str, Any]) -> str:
    """The operation as one types it on the command line.

    >>> request_text({"kind": "move", "stream": 3, "to": "consumer-1"})
    'move 3 --to consumer-1'
    """
    match request["kind"]:
        case "move":
            return f"move {request['stream']} --to {request['to']}"
        case "drain":
            return f"drain {request['member']}"
        case kind:
            return str(kind)


def cost_text(moves: int, sessions: int, size: int) -> str:
    """How much moves, in words.

    >>> cost_text(1, 2_000, 2_339_220)
    '1 stream, 2,000 open sessions, 2.3 MB'
    """
    return f"{moves:,} stream{'' if moves == 1 else 's'}, {sessions:,} open sessions, {bytes_text(size)}"


def operation_row(row: Mapping[str, Any]) -> tuple[Any, ...]:
    """An operation as a row of the table of operations."""
    moves = f"{row['done']}/{row['total']}"
    cost = (row["sessions"], row["bytes"])
    return (
        row["id"],
        request_text(row),
        row["group"],
        row["state"],
        moves,
        *cost,
        time_text(row["since"]),
        row["why"],
    )


async def wait_for_operation(
    control: BatonClient, operation_id: str, on_progress: Callable[[Mapping[str, Any]], None]
) -> dict[str, Any]:
    """The operation once it has ended; `on_progress` gets every answer on the way."""
    path = f"/operations/{quote(operation_id, safe='')}"
    return await wait_until_ended(control, path, END_STATES, POLL_S, on_progress)


def _operate(url: str, request: dict[str, Any], dry_run: bool, wait: bool, output: str) -> None:
    answer = asyncio.run(_request(url, request, dry_run=dry_run, wait=wait and not dry_run))
    has_failed = answer.get("state") == "failed"
    if output == "json":
        print_json(answer)
    elif dry_run:
        _print_forecast(answer)
    elif not has_failed:
        cost = cost_text(answer["total"], answer["sessions"], answer["bytes"])
        click.echo(f"operation {answer['id']} ({request_text(answer)}) is {answer['state']}: {cost}")
    if has_failed:
        click.echo(f"operation {answer['id']} ({request_text(answer)}) failed: {answer['why']}", err=True)
        sys.exit(1)


def _print_forecast(answer: Mapping[str, Any]) -> None:
    if not answer["moves"]:
        click.echo("Nothing would move.")
        return
    columns = {"STREAM": "stream", "FROM": "from", "TO": "to", "SESSIONS": "sessions", "BYTES": "bytes"}
    print_table(columns, ([move.get(name) for name in columns.values()] for move in answer["moves"]))
    totals = answer["totals"]
    click.echo(f"Would move: {cost_text(totals['moves'], totals['sessions'], totals['bytes'])}.")


async def _request(url: str, request: Mapping[str, Any], *, dry_run: bool, wait: bool) -> dict[str, Any]:
    """The forecast, the operation as started, or with `wait` the operation once it has ended."""
    async with connect(url, patience_s=WAIT_PATIENCE_S if wait else PATIENCE_S) as control:
        started = await control.operate({**request, "dry_run": dry_run})
        if not wait:
            return started
        columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.fields[why]}"))
        with progress_bar(TextColumn("{task.description}"), *columns) as bar:
            task = bar.add_task(request_text(request), total=started["total"], why="")

            def draw(answer: Mapping[str, Any]) -> None:
                bar.update(task, completed=answer["done"], why=answer["why"])

            return await wait_for_operation(control, started["id"], draw)
