"""`baton jobs | run | cancel | schedules`: Spark jobs through control, with a bar of Spark's task counts."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import click

from cli.commands.control import ask, get, print_list, start
from cli.commands.runs import failure_of, print_run, progress_of
from cli.terminal.escaping import echo
from cli.terminal.interrupts import interruptible
from cli.terminal.layout import Column
from cli.terminal.lists import list_options
from cli.terminal.options import control_options, group_options, url_option
from cli.terminal.output import Columns, print_json, time_text

CANCEL_PATIENCE_S = 10.0
SCHEDULE_COLUMNS: Columns = {
    "SCHEDULE": "name",
    "EVERY": lambda schedule: every_text(schedule["every_s"]),
    "STATE": "state",
    "NEXT": Column(lambda schedule: time_text(schedule["next_at"]), rank=2),
    "SUCCEEDED": Column(lambda schedule: time_text(schedule["succeeded_at"]), rank=1),
    "FAILED": Column("failures", rank=3),
    "RUN": Column("run", rank=4),
}
JOB_COLUMNS: Columns = {"JOB": "name", "DESCRIPTION": Column("description", is_prose=True)}
TEXTS = frozenset({"streams"})
"""Parameters that are strings, even if they look like a number."""
TIMEOUT_HELP = "Limit for each run, if shorter than BATON_RUN_TIMEOUT_S of control."


@click.command("jobs")
@url_option
@list_options(is_sorted=False)
def jobs(url: str, output: str) -> None:
    """List the Spark jobs and their parameters."""
    answer = get(url, "/jobs")
    print_list(answer, "jobs", output, JOB_COLUMNS)
    if output != "text":
        return
    for job in answer["jobs"]:
        for parameter in job["parameters"]:
            default = "" if parameter.get("default") is None else f" (default {parameter['default']})"
            echo(f"{job['name']} {parameter['name']}: {parameter['description']}{default}")


@click.command("run")
@click.argument("names", metavar="JOB…", nargs=-1, required=True)
@click.option("-p", "--param", "pairs", multiple=True, metavar="NAME=VALUE", help="A parameter; repeatable.")
@click.option("--streams", metavar="LIST", help="audit: judge only these streams, like 0-5,7.")
@click.option(
    "--since",
    metavar="TIME",
    help="audit: judge only what was appended since a time (RFC 3339) or an age, like 2h.",
)
@click.option("--sample", metavar="SHARE", help="audit: judge only this share of the keys, like 0.1.")
@click.option("--wait", is_flag=True, help="Show progress until the run has ended.")
@click.option("--timeout", type=click.FloatRange(min=0, min_open=True), metavar="SECONDS", help=TIMEOUT_HELP)
@group_options
def run(
    names: tuple[str, ...],
    pairs: tuple[str, ...],
    wait: bool,
    timeout: float | None,
    group: str,
    url: str,
    output: str,
    **part: str | None,
) -> None:
    """Run a JOB on Spark; `baton jobs` lists them. Several run one after another, until one fails.

    With --wait the exit code is 1 unless all runs succeed. An audit fails if it judges nothing, or finds a
    difference that the group's delivery does not permit. Each of several jobs gets only those of the
    parameters that it has.
    """
    if len(names) > 1 and not wait:
        raise click.UsageError("several jobs run one after another: add --wait")
    given = parse_parameters(pairs) | {name: value for name, value in part.items() if value is not None}
    each = _shared_out(get(url, "/jobs"), names, given) if len(names) > 1 else {names[0]: given}
    ended = []
    for name in names:
        started: list[Mapping[str, Any]] = []
        with interruptible(partial(_what_goes_on, name, started)):
            one = run_job(
                url, name, group, each[name], wait=wait, timeout_s=timeout, on_started=started.append
            )
            run = asyncio.run(one)
        ended.append(run)
        if output != "json":
            if wait:
                print_run(run)
            else:
                echo(f"run {run['id']} of {name} is {run['state']}")
        failure = failure_of(run) if wait else None
        if failure:
            break
    if output == "json":
        print_json(ended[0] if len(names) == 1 else {"runs": ended})
    if failure:
        echo(f"run {run['id']}: {failure}", err=True)
        sys.exit(1)


@click.command("schedules")
@url_option
@list_options(is_sorted=False)
def schedules(url: str, output: str) -> None:
    """List the schedules of jobs (BATON_SCHEDULES of control) and their state.

    FAILED counts the rounds that have failed since the last good one; `baton runs show RUN` gives the reason.
    """
    answer = get(url, "/schedules")
    if output != "text" or answer["schedules"]:
        print_list(answer, "schedules", output, SCHEDULE_COLUMNS)
    else:
        echo("There are no schedules: set BATON_SCHEDULES, for example to `lake,reports every 15m`.")


@click.command("cancel")
@click.argument("run_id", metavar="RUN")
@control_options
def cancel(run_id: str, url: str, output: str) -> None:
    """Cancel a RUN and stop its processes; `baton runs` lists them."""
    answer = ask(url, lambda control: control.cancel("runs", run_id), patience_s=CANCEL_PATIENCE_S)
    if output == "json":
        print_json(answer)
    else:
        echo(f"run {run_id} is {answer['state']}")


def _shared_out(
    answer: Mapping[str, Any], names: Sequence[str], given: Mapping[str, str | int]
) -> dict[str, dict[str, str | int]]:
    """The parameters of each job. Raises UsageError for a parameter that no job has."""
    known = {job["name"]: {one["name"] for one in job["parameters"]} for job in answer["jobs"]}
    of_any = {parameter for name in names for parameter in known.get(name, ())}
    if unknown := sorted(given.keys() - of_any):
        raise click.UsageError(f"none of these jobs has a parameter {unknown[0]!r}")
    return {name: {key: given[key] for key in given if key in known.get(name, ())} for name in names}


def every_text(seconds: int) -> str:
    """A period as BATON_SCHEDULES spells it.

    >>> every_text(900), every_text(86_400), every_text(90)
    ('15m', '1d', '90s')
    """
    for unit, length in (("d", 86_400), ("h", 3600), ("m", 60)):
        if seconds % length == 0:
            return f"{seconds // length}{unit}"
    return f"{seconds}s"


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
        is_number = digits.isascii() and digits.isdecimal() and name not in TEXTS
        parameters[name] = int(value) if is_number else value
    return parameters


async def run_job(
    url: str,
    job: str,
    group: str,
    parameters: Mapping[str, str | int],
    *,
    wait: bool,
    timeout_s: float | None = None,
    on_started: Callable[[dict[str, Any]], None] = lambda _: None,
) -> dict[str, Any]:
    """The run as started, or with `wait` the run once it has ended; shows progress meanwhile."""
    return await start(
        url,
        lambda control: control.start_run(job, group, parameters, timeout_s),
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
    return f"run {run_id} of {job} continues; `baton runs` shows it, and `baton cancel {run_id}` ends it"
