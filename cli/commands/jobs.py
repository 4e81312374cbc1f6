"""`baton jobs | run | runs | cancel`: Spark jobs through control, with a bar of Spark's task counts."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

import click
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn

from cli.commands.control import PATIENCE_S, WAIT_PATIENCE_S, get, get_list, wait_until_ended
from cli.http.client import connect
from cli.terminal.options import group_option, output_option, url_option
from cli.terminal.output import print_json, print_list, print_table, progress_bar, time_text

POLL_S = 0.3
CANCEL_PATIENCE_S = 10.0
END_STATES = frozenset({"succeeded", "failed", "cancelled"})
DIFFERENCES = ("missing", "extra", "different")
"""The counts of an audit that must all be 0."""


@click.command("jobs")
@url_option
@output_option
def jobs(url: str, output: str) -> None:
    """List the Spark jobs and their parameters."""
    answer = get(url, "/jobs")
    rows = ([job["name"], job.get("description", "")] for job in answer["jobs"])
    print_list(answer, output, ("JOB", "DESCRIPTION"), rows)
    if output == "json":
        return
    for job in answer["jobs"]:
        for parameter in job.get("parameters") or []:
            default = "" if parameter.get("default") is None else f" (default {parameter['default']})"
            click.echo(f"{job['name']} {parameter['name']}: {parameter.get('description', '')}{default}")


@click.command("run")
@click.argument("job")
@click.option("-p", "--param", "pairs", multiple=True, metavar="NAME=VALUE", help="A parameter; repeatable.")
@click.option("--wait", is_flag=True, help="Show progress until the run has ended.")
@group_option
@url_option
@output_option
def run(job: str, pairs: tuple[str, ...], wait: bool, group: str, url: str, output: str) -> None:
    """Run a JOB on Spark; `baton jobs` lists them.

    With --wait the exit code is 1 unless the run succeeds. An audit that finds a difference is not a success.
    """
    run = asyncio.run(run_job(url, job, group, parse_parameters(pairs), wait=wait))
    if output == "json":
        print_json(run)
    elif wait:
        _print_result(run)
    else:
        click.echo(f"run {run['id']} of {job} is {run.get('state', 'starting')}")
    failure = failure_of(run) if wait else None
    if failure:
        click.echo(f"run {run['id']}: {failure}", err=True)
        sys.exit(1)


@click.command("runs")
@url_option
@output_option
def runs(url: str, output: str) -> None:
    """List the runs of Spark jobs, past and present."""
    answer = get_list(url, "runs", "id")
    columns = ("RUN", "JOB", "GROUP", "STATE", "TASKS", "STARTED", "SECONDS", "ERROR")
    print_list(answer, output, columns, map(run_row, answer["runs"]))


@click.command("cancel")
@click.argument("run_id", metavar="RUN")
@url_option
@output_option
def cancel(run_id: str, url: str, output: str) -> None:
    """Cancel a RUN and stop its processes; `baton runs` lists them."""

    async def ask() -> dict[str, Any]:
        async with connect(url, patience_s=CANCEL_PATIENCE_S) as control:
            return await control.cancel_run(run_id)

    answer = asyncio.run(ask())
    if output == "json":
        print_json(answer)
    else:
        click.echo(f"run {run_id} is {answer.get('state', 'cancelled')}")


def parse_parameters(pairs: tuple[str, ...]) -> dict[str, str | int]:
    """`name=value` pairs as the body of a run; whole numbers become integers.

    >>> parse_parameters(("top=5", "item_path=$.data.url"))
    {'top': 5, 'item_path': '$.data.url'}
    """
    parameters: dict[str, str | int] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise click.BadParameter(f"{pair!r} is not NAME=VALUE", param_hint="--param")
        digits = value.removeprefix("-")
        parameters[name] = int(value) if digits.isascii() and digits.isdecimal() else value
    return parameters


def failure_of(run: Mapping[str, Any]) -> str | None:
    """Why a run that has ended is not a success, in a sentence; None when it is one."""
    if run.get("state") != "succeeded":
        error = run.get("error") or {}
        reason = ": ".join(str(error[part]) for part in ("condition", "message") if error.get(part))
        return reason or str(run.get("state"))
    result = run.get("result")
    if run.get("job") == "audit" and isinstance(result, dict):
        counts = {name: result.get(name) for name in DIFFERENCES}
        if any(count != 0 for count in counts.values()):
            return "the audit found differences: " + ", ".join(f"{name} {counts[name]}" for name in counts)
    return None


def run_row(row: Mapping[str, Any]) -> tuple[Any, ...]:
    """A run as a row of the table of runs."""
    progress = row.get("progress") or {}
    started, ended = row.get("started_at"), row.get("ended_at")
    seconds = (ended - started) / 1000 if started is not None and ended is not None else None
    error = row.get("error") or {}
    tasks = f"{progress.get('completed', 0)}/{progress.get('tasks', 0)}"
    names = [row.get(name) for name in ("id", "job", "group", "state")]
    return (*names, tasks, time_text(started), seconds, error.get("condition"))


async def run_job(
    url: str, job: str, group: str, parameters: Mapping[str, str | int], *, wait: bool
) -> dict[str, Any]:
    """The run as started, or with `wait` the run once it has ended; shows progress meanwhile."""
    async with connect(url, patience_s=WAIT_PATIENCE_S if wait else PATIENCE_S) as control:
        started = await control.start_run(job, group, parameters)
        if not wait:
            return started
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        with progress_bar(*columns) as bar:
            task = bar.add_task(job, total=None)

            def draw(answer: Mapping[str, Any]) -> None:
                progress = answer.get("progress") or {}
                bar.update(
                    task,
                    description=f"{job} {answer.get('state', '')}",
                    total=progress.get("tasks") or None,
                    completed=progress.get("completed", 0),
                )

            path = f"/runs/{quote(started['id'], safe='')}"
            return await wait_until_ended(control, path, END_STATES, POLL_S, draw)


def _print_result(run: Mapping[str, Any]) -> None:
    """Prints the run and its result: single values in one table, each list of objects in its own."""
    result = run.get("result")
    click.echo(f"run {run['id']} of {run.get('job')}: {run.get('state')}")
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
