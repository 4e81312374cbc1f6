"""`baton drain | move | rebalance | operations`: what an operator may have done to who owns what.

Each asks control for an operation; `--dry-run` shows what would move and its cost, `--wait` follows it to its
end. Streams move while everything runs, so an operation needs no quiet hour.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Mapping
from typing import Any
from urllib.parse import quote

import click
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from cli.client import connect
from cli.commands.jobs import WAIT_PATIENCE_S, ControlSource, time_text, until_ended
from cli.output import (
    bytes_text,
    group_option,
    output_option,
    print_json,
    print_table,
    progress_console,
    url_option,
)

POLL_S = 0.2
ENDED = frozenset({"done", "failed"})

dry_run_option = click.option(
    "--dry-run", is_flag=True, help="Only show what would move, and what that costs."
)
wait_option = click.option("--wait", is_flag=True, help="Show the progress until it has ended.")


@click.command("drain")
@click.argument("member")
@dry_run_option
@wait_option
@group_option
@url_option
@output_option
def drain(member: str, dry_run: bool, wait: bool, group: str, url: str, output: str) -> None:
    """Have a MEMBER hand over all its streams, and leave its group.

    Its process stays until it is stopped; started again, the member joins again. With --wait the exit code
    is 1 unless it has left.
    """
    _operate(url, {"kind": "drain", "member": member, "group": group}, dry_run, wait, output)


@click.command("move")
@click.argument("stream", type=click.IntRange(min=0))
@click.option("--to", required=True, metavar="MEMBER", help="The member that is to have it.")
@dry_run_option
@wait_option
@group_option
@url_option
@output_option
def move(stream: int, to: str, dry_run: bool, wait: bool, group: str, url: str, output: str) -> None:
    """Pin a STREAM to a member; its owner hands it over.

    The pin stands until another move of the stream, a drain of the member, or a rebalance. So that shares
    stay even, another stream may go the other way. With --wait the exit code is 1 unless it has moved.
    """
    _operate(url, {"kind": "move", "stream": stream, "to": to, "group": group}, dry_run, wait, output)


@click.command("rebalance")
@dry_run_option
@wait_option
@group_option
@url_option
@output_option
def rebalance(dry_run: bool, wait: bool, group: str, url: str, output: str) -> None:
    """Take all pins away, so that shares are even again.

    With --wait the exit code is 1 unless they are.
    """
    _operate(url, {"kind": "rebalance", "group": group}, dry_run, wait, output)


@click.command("operations")
@url_option
@output_option
def operations(url: str, output: str) -> None:
    """List the operations that control remembers, the newest first."""
    answer = asyncio.run(_operations(url))
    if output == "json":
        print_json(answer)
        return
    columns = ("OPERATION", "WHAT", "GROUP", "STATE", "MOVES", "SESSIONS", "BYTES", "SINCE", "WHY")
    print_table(columns, [operation_row(row) for row in answer["operations"]])


def wish_text(wish: Mapping[str, Any]) -> str:
    """What was asked for, as the command line has it.

    >>> wish_text({"kind": "move", "stream": 3, "to": "consumer-1"})
    'move 3 --to consumer-1'
    """
    match wish["kind"]:
        case "move":
            return f"move {wish['stream']} --to {wish['to']}"
        case "drain":
            return f"drain {wish['member']}"
        case kind:
            return str(kind)


def cost_text(moves: int, sessions: int, size: int) -> str:
    """What moves, in words.

    >>> cost_text(1, 2_000, 2_339_220)
    '1 stream, 2,000 open sessions, 2.3 MB'
    """
    return f"{moves:,} stream{'' if moves == 1 else 's'}, {sessions:,} open sessions, {bytes_text(size)}"


def operation_row(row: Mapping[str, Any]) -> tuple[Any, ...]:
    """An operation as the table of operations shows it."""
    moves = f"{row['done']}/{row['total']}"
    cost = (row["sessions"], row["bytes"])
    return (
        row["id"],
        wish_text(row),
        row["group"],
        row["state"],
        moves,
        *cost,
        time_text(row["since"]),
        row["why"],
    )


async def follow(
    control: ControlSource,
    operation_id: str,
    on_progress: Callable[[Mapping[str, Any]], None],
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> dict[str, Any]:
    """The operation once it has ended; `on_progress` gets each answer on the way."""
    path = f"/operations/{quote(operation_id, safe='')}"
    return await until_ended(control, path, ENDED, POLL_S, on_progress, sleep)


def _operate(url: str, wish: dict[str, Any], dry_run: bool, wait: bool, output: str) -> None:
    answer = asyncio.run(_ask(url, wish, dry_run=dry_run, wait=wait and not dry_run))
    has_failed = answer.get("state") == "failed"
    if output == "json":
        print_json(answer)
    elif dry_run:
        _print_forecast(answer)
    elif not has_failed:
        cost = cost_text(answer["total"], answer["sessions"], answer["bytes"])
        click.echo(f"operation {answer['id']}, {wish_text(answer)}, is {answer['state']}: {cost}")
    if has_failed:
        click.echo(f"operation {answer['id']}, {wish_text(answer)}, has failed: {answer['why']}", err=True)
        sys.exit(1)


def _print_forecast(answer: Mapping[str, Any]) -> None:
    if not answer["moves"]:
        click.echo("Nothing would move.")
        return
    columns = {"STREAM": "stream", "FROM": "from", "TO": "to", "SESSIONS": "sessions", "BYTES": "bytes"}
    print_table(columns, ([move.get(name) for name in columns.values()] for move in answer["moves"]))
    totals = answer["totals"]
    click.echo(f"Would move: {cost_text(totals['moves'], totals['sessions'], totals['bytes'])}.")


async def _ask(url: str, wish: Mapping[str, Any], *, dry_run: bool, wait: bool) -> dict[str, Any]:
    """The forecast, the operation as it begins, or with `wait` once it has ended."""
    async with connect(url, patience_s=WAIT_PATIENCE_S if wait else 2.0) as control:
        begun = await control.operate({**wish, "dry_run": dry_run})
        if not wait:
            return begun
        console = progress_console()
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[why]}"),
        )
        with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
            task = bar.add_task(wish_text(wish), total=begun["total"], why="")

            def draw(answer: Mapping[str, Any]) -> None:
                bar.update(task, completed=answer["done"], why=answer["why"])

            return await follow(control, begun["id"], draw)


async def _operations(url: str) -> dict[str, Any]:
    async with connect(url) as control:
        return await control.pages("/operations", "operations", "id")
