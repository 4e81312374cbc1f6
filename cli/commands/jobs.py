"""`baton jobs | run | runs | cancel`: Spark jobs through control, with a bar of Spark's own task counts."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Protocol
from urllib.parse import quote

import click
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from cli.client import connect
from cli.output import group_option, output_option, print_json, print_table, progress_console, url_option

POLL_S = 0.3
WAIT_PATIENCE_S = 60.0
ENDED = frozenset({"succeeded", "failed", "cancelled"})
DIFFERENCES = ("missing", "extra", "different")
"""The counts of an audit that must all be 0."""


class ControlSource(Protocol):
    """What `follow` needs of control: `BatonClient`, or a twin in tests."""

    async def get(self, path: str, params: Mapping[str, str | int] | None = None) -> Any:
        """The JSON at `path`."""


@click.command("jobs")
@url_option
@output_option
def jobs(url: str, output: str) -> None:
    """List the jobs that can be run, with their parameters."""
    answer = asyncio.run(_get(url, "/jobs"))
    if output == "json":
        print_json(answer)
        return
    print_table(("JOB", "DESCRIPTION"), ([job["name"], job.get("description", "")] for job in answer["jobs"]))
    for job in answer["jobs"]:
        for parameter in job.get("parameters") or []:
            default = "" if parameter.get("default") is None else f" (default {parameter['default']})"
            click.echo(f"{job['name']} {parameter['name']}: {parameter.get('description', '')}{default}")


@click.command("run")
@click.argument("job")
@click.option(
    "-p", "--param", "given", multiple=True, metavar="NAME=VALUE", help="A parameter; may be repeated."
)
@click.option("--wait", is_flag=True, help="Show the progress until the run has ended.")
@group_option
@url_option
@output_option
def run(job: str, given: tuple[str, ...], wait: bool, group: str, url: str, output: str) -> None:
    """Run a JOB on Spark.

    With --wait the exit code is 1 unless the run succeeds; an audit that finds a difference does not count as
    a success.
    """
    ended = asyncio.run(run_job(url, job, group, parse_parameters(given), wait=wait))
    if output == "json":
        print_json(ended)
    elif wait:
        _print_run(ended)
    else:
        click.echo(f"run {ended['id']} of {job} is {ended.get('state', 'starting')}")
    complaint = complaint_about(ended) if wait else None
    if complaint:
        click.echo(f"run {ended['id']}: {complaint}", err=True)
        sys.exit(1)


@click.command("runs")
@url_option
@output_option
def runs(url: str, output: str) -> None:
    """List the runs, the newest included."""
    answer = asyncio.run(_runs(url))
    if output == "json":
        print_json(answer)
        return
    columns = ("RUN", "JOB", "GROUP", "STATE", "TASKS", "STARTED", "SECONDS", "ERROR")
    print_table(columns, [run_row(row) for row in answer["runs"]])


@click.command("cancel")
@click.argument("run_id", metavar="RUN")
@url_option
@output_option
def cancel(run_id: str, url: str, output: str) -> None:
    """Cancel a RUN; it leaves no process behind."""
    answer = asyncio.run(_cancel(url, run_id))
    if output == "json":
        print_json(answer)
    else:
        click.echo(f"run {run_id} is {answer.get('state', 'cancelled')}")


def parse_parameters(given: tuple[str, ...]) -> dict[str, str | int]:
    """`name=value` pairs as the body of a run; whole numbers become integers.

    >>> parse_parameters(("top=5", "item_path=$.data.url"))
    {'top': 5, 'item_path': '$.data.url'}
    """
    parameters: dict[str, str | int] = {}
    for pair in given:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise click.BadParameter(f"{pair!r} is not NAME=VALUE", param_hint="--param")
        sign = value.removeprefix("-")
        parameters[name] = int(value) if sign.isascii() and sign.isdecimal() else value
    return parameters


def complaint_about(ended: Mapping[str, Any]) -> str | None:
    """Why a run that has ended is no success, in a sentence; None when it is one."""
    if ended.get("state") != "succeeded":
        error = ended.get("error") or {}
        said = ": ".join(str(error[part]) for part in ("condition", "message") if error.get(part))
        return said or str(ended.get("state"))
    result = ended.get("result")
    if ended.get("job") == "audit" and isinstance(result, dict):
        found = {name: result.get(name) for name in DIFFERENCES}
        if any(count != 0 for count in found.values()):
            return "the audit finds differences: " + ", ".join(f"{name} {found[name]}" for name in found)
    return None


async def follow(
    control: ControlSource,
    run_id: str,
    on_progress: Callable[[Mapping[str, Any]], None],
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> dict[str, Any]:
    """The run once it has ended; `on_progress` gets each answer on the way."""
    return await until_ended(control, f"/runs/{quote(run_id, safe='')}", ENDED, POLL_S, on_progress, sleep)


async def until_ended(
    control: ControlSource,
    path: str,
    ended: frozenset[str],
    poll_s: float,
    on_progress: Callable[[Mapping[str, Any]], None],
    sleep: Callable[[float], Awaitable[None]],
) -> dict[str, Any]:
    """What stands at `path` once its state is one of `ended`; asked for every `poll_s`."""
    while True:
        answer: dict[str, Any] = await control.get(path)
        on_progress(answer)
        if answer.get("state") in ended:
            return answer
        await sleep(poll_s)


def run_row(row: Mapping[str, Any]) -> tuple[Any, ...]:
    """A run as the table of runs shows it."""
    progress = row.get("progress") or {}
    started, ended = row.get("started_at"), row.get("ended_at")
    seconds = (ended - started) / 1000 if started is not None and ended is not None else None
    error = row.get("error") or {}
    tasks = f"{progress.get('completed', 0)}/{progress.get('tasks', 0)}"
    names = [row.get(name) for name in ("id", "job", "group", "state")]
    return (*names, tasks, time_text(started), seconds, error.get("condition"))


def time_text(ms: int | None) -> str | None:
    """A time (ms) in UTC, to the second.

    >>> time_text(807256800000)
    '1995-08-01 06:00:00Z'
    """
    return None if ms is None else f"{datetime.fromtimestamp(ms // 1000, UTC):%Y-%m-%d %H:%M:%S}Z"


async def run_job(
    url: str, job: str, group: str, parameters: Mapping[str, str | int], *, wait: bool
) -> dict[str, Any]:
    """The run as it was started, or with `wait` once it has ended; draws its progress meanwhile."""
    async with connect(url, patience_s=WAIT_PATIENCE_S if wait else 2.0) as control:
        started = await control.start_run(job, group, parameters)
        if not wait:
            return started
        console = progress_console()
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
            task = bar.add_task(job, total=None)

            def draw(answer: Mapping[str, Any]) -> None:
                progress = answer.get("progress") or {}
                bar.update(
                    task,
                    description=f"{job} {answer.get('state', '')}",
                    total=progress.get("tasks") or None,
                    completed=progress.get("completed", 0),
                )

            return await follow(control, started["id"], draw)


async def _get(url: str, path: str) -> dict[str, Any]:
    async with connect(url) as control:
        answer: dict[str, Any] = await control.get(path)
        return answer


async def _runs(url: str) -> dict[str, Any]:
    async with connect(url) as control:
        return await control.pages("/runs", "runs", "id")


async def _cancel(url: str, run_id: str) -> dict[str, Any]:
    async with connect(url, patience_s=10) as control:
        return await control.cancel_run(run_id)


def _print_run(ended: Mapping[str, Any]) -> None:
    """The run and its result: single values in one table, each list of objects in a table of its own."""
    result = ended.get("result")
    click.echo(f"run {ended['id']} of {ended.get('job')}: {ended.get('state')}")
    if not isinstance(result, dict):
        return
    single = {name: value for name, value in result.items() if not isinstance(value, list | dict)}
    if single:
        print_table(("", "value"), single.items())
    for name, value in result.items():
        if isinstance(value, list) and value and all(isinstance(row, dict) for row in value):
            columns = list(dict.fromkeys(column for row in value for column in row))
            print_table(columns, ([_plain(row.get(c)) for c in columns] for row in value), title=name)


def _plain(value: Any) -> Any:
    return str(value) if isinstance(value, list | dict) else value
