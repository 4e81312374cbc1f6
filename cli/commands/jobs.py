"""`baton jobs | run | runs | cancel`: Spark jobs through control, with a bar of Spark's task counts."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import click

from cli.commands.control import Progress, ask, get, get_list, print_list, start
from cli.terminal.escaping import escaped
from cli.terminal.interrupts import interruptible
from cli.terminal.layout import Column
from cli.terminal.options import control_options, group_options
from cli.terminal.output import Columns, print_json, print_table, time_text

CANCEL_PATIENCE_S = 10.0
DIFFERENCES = ("missing", "extra", "different")
"""The counts of an audit that must all be 0."""
JOB_COLUMNS: Columns = {"JOB": "name", "DESCRIPTION": Column("description", is_prose=True)}
RUN_COLUMNS: Columns = {
    "RUN": "id",
    "JOB": Column("job", rank=1),
    "GROUP": Column("group", rank=5),
    "STATE": "state",
    "TASKS": Column(lambda run: f"{run['progress']['completed']}/{run['progress']['tasks']}", rank=4),
    "STARTED": Column(lambda run: time_text(run["started_at"]), rank=2),
    "SECONDS": Column(
        lambda run: (run["ended_at"] - run["started_at"]) / 1000 if run.get("ended_at") else None, rank=3
    ),
    "ERROR": "error.condition",
}


@click.command("jobs")
@control_options
def jobs(url: str, output: str) -> None:
    """List the Spark jobs and their parameters."""
    answer = get(url, "/jobs")
    print_list(answer, "jobs", output, JOB_COLUMNS)
    if output == "json":
        return
    for job in answer["jobs"]:
        for parameter in job["parameters"]:
            default = "" if parameter.get("default") is None else f" (default {parameter['default']})"
            click.echo(f"{job['name']} {parameter['name']}: {parameter['description']}{default}")


@click.command("run")
@click.argument("job")
@click.option("-p", "--param", "pairs", multiple=True, metavar="NAME=VALUE", help="A parameter; repeatable.")
@click.option("--wait", is_flag=True, help="Show progress until the run has ended.")
@group_options
def run(job: str, pairs: tuple[str, ...], wait: bool, group: str, url: str, output: str) -> None:
    """Run a JOB on Spark; `baton jobs` lists them.

    With --wait the exit code is 1 unless the run succeeds. An audit that finds a difference is not a success.
    """
    started: list[Mapping[str, Any]] = []
    parameters = parse_parameters(pairs)
    with interruptible(lambda: _what_goes_on(job, started)):
        run = asyncio.run(run_job(url, job, group, parameters, wait=wait, on_started=started.append))
    if output == "json":
        print_json(run)
    elif wait:
        _print_result(run)
    else:
        click.echo(f"run {run['id']} of {job} is {run['state']}")
    failure = failure_of(run) if wait else None
    if failure:
        click.echo(f"run {run['id']}: {failure}", err=True)
        sys.exit(1)


@click.command("runs")
@control_options
def runs(url: str, output: str) -> None:
    """List the runs of Spark jobs, past and present.

    The lines below the table give the reason for each run that failed or was cancelled.
    """
    answer = get_list(url, "runs", "id")
    print_list(answer, "runs", output, RUN_COLUMNS)
    if output == "json":
        return
    for run in answer["runs"]:
        if run.get("error"):
            # an error of Spark may quote a fragment, and have many lines
            click.echo(f"run {run['id']}: {escaped(str(failure_of(run)).encode(errors='replace'))}")


@click.command("cancel")
@click.argument("run_id", metavar="RUN")
@control_options
def cancel(run_id: str, url: str, output: str) -> None:
    """Cancel a RUN and stop its processes; `baton runs` lists them."""
    answer = ask(url, lambda control: control.cancel_run(run_id), patience_s=CANCEL_PATIENCE_S)
    if output == "json":
        print_json(answer)
    else:
        click.echo(f"run {run_id} is {answer['state']}")


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
        # not just `int`, which also accepts `1_000` and digits of other scripts
        digits = value.removeprefix("-")
        parameters[name] = int(value) if digits.isascii() and digits.isdecimal() else value
    return parameters


def failure_of(run: Mapping[str, Any]) -> str | None:
    """Why a run that has ended is not a success, in a sentence; None when it is one."""
    if run["state"] != "succeeded":
        error = run.get("error") or {}
        reason = ": ".join(str(error[part]) for part in ("condition", "message") if error.get(part))
        return reason or str(run["state"])
    # to Spark an audit that counts differences has succeeded; as a proof it has failed
    if run["job"] == "audit":
        counts = {name: run["result"].get(name) for name in DIFFERENCES}
        if any(count != 0 for count in counts.values()):
            return "the audit found differences: " + ", ".join(f"{name} {counts[name]}" for name in counts)
    return None


async def run_job(
    url: str,
    job: str,
    group: str,
    parameters: Mapping[str, str | int],
    *,
    wait: bool,
    on_started: Callable[[dict[str, Any]], None] = lambda _: None,
) -> dict[str, Any]:
    """The run as started, or with `wait` the run once it has ended; shows progress meanwhile."""

    def progress_of(run: Mapping[str, Any]) -> Progress:
        # until Spark has planned the job, the number of its tasks is 0: the bar pulses
        tasks = run["progress"]["tasks"] or None
        return Progress(f"{job} {run['state']}", run["progress"]["completed"], tasks)

    return await start(
        url,
        lambda control: control.start_run(job, group, parameters),
        "/runs",
        progress_of,
        wait=wait,
        on_started=on_started,
    )


def _what_goes_on(job: str, started: Sequence[Mapping[str, Any]]) -> str:
    """What runs in control after this command was interrupted, and how to end it."""
    if not started:
        return f"a run of {job} may have started; `baton runs` lists the runs, and `baton cancel` ends one"
    run_id = started[0]["id"]
    return f"run {run_id} of {job} goes on; `baton runs` shows it, and `baton cancel {run_id}` ends it"


def _print_result(run: Mapping[str, Any]) -> None:
    """Prints the run and its result: single values in one table, each list of objects in its own."""
    result = run.get("result")
    click.echo(f"run {run['id']} of {run['job']}: {run['state']}")
    if not isinstance(result, dict):
        return
    # each job has its own result, and the command line knows none of them
    single = {name: value for name, value in result.items() if not isinstance(value, list | dict)}
    if single:
        print_table(("", "value"), single.items())
    for name, value in result.items():
        if isinstance(value, list) and value and all(isinstance(row, dict) for row in value):
            # the union of the rows' fields in their order: a row may leave out what does not apply
            columns = list(dict.fromkeys(column for row in value for column in row))
            print_table(columns, ([_plain(row.get(c)) for c in columns] for row in value), title=name)


def _plain(value: Any) -> Any:
    return str(value) if isinstance(value, list | dict) else value
