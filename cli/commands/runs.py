"""`baton runs`: lists the runs of Spark jobs, and shows one run's result, progress or log."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

import click

from cli.commands.control import (
    END_STATES,
    POLL_S,
    WAIT_PATIENCE_S,
    Progress,
    follow,
    get,
    get_list,
    print_list,
)
from cli.http.control import connect_to_control
from cli.terminal.escaping import echo, escaped
from cli.terminal.interrupts import interruptible
from cli.terminal.layout import Column
from cli.terminal.lists import list_options
from cli.terminal.options import control_options, url_option
from cli.terminal.output import Columns, print_json, print_table, time_text

DIFFERENCES = ("missing", "extra", "different")
"""Counts of an audit that the message about differences always names."""
MORE_DIFFERENCES = (
    *("overdue", "misrouted", "split_keys"),
    *("lake_missing", "lake_extra", "lake_different", "lake_duplicated", "lake_days", "reports_different"),
    "duplicates",
)
"""Counts that it names unless they are 0."""
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


@click.group("runs", invoke_without_command=True)
@url_option
@list_options("job", "state")
@click.pass_context
def runs(context: click.Context, url: str, output: str, chosen: Mapping[str, str]) -> None:
    """List the runs of Spark jobs, past and present, or look at one of them.

    The lines below the table give the reason for each run that failed or was cancelled.
    """
    if context.invoked_subcommand is not None:
        return
    answer = get_list(url, "runs", "id", chosen)
    print_list(answer, "runs", output, RUN_COLUMNS)
    if output != "text":
        return
    for run in answer["runs"]:
        if run.get("error"):
            echo(f"run {run['id']}: {_reason(run)}")


@runs.command("show")
@click.argument("run_id", metavar="RUN")
@control_options
def show(run_id: str, url: str, output: str) -> None:
    """Show a RUN: its state, its progress, and its result or why it failed."""
    run = get(url, path_of(run_id))
    if output == "json":
        print_json(run)
        return
    print_run(run)
    if run.get("error"):
        echo(_reason(run))


@runs.command("attach")
@click.argument("run_id", metavar="RUN")
@control_options
def attach(run_id: str, url: str, output: str) -> None:
    """Show the progress of a RUN until it has ended; the exit code is that of `baton run --wait`."""
    with interruptible(lambda: f"run {run_id} continues; `baton cancel {run_id}` ends it"):
        run = asyncio.run(follow(url, path_of(run_id), progress_of))
    if output == "json":
        print_json(run)
    else:
        print_run(run)
    if failure := failure_of(run):
        echo(f"run {run_id}: {failure}", err=True)
        sys.exit(1)


@runs.command("log")
@click.argument("run_id", metavar="RUN")
@click.option("-f", "--follow", "is_following", is_flag=True, help="Keep printing until the run has ended.")
@control_options
def log(run_id: str, is_following: bool, url: str, output: str) -> None:
    """Print the end of a RUN's log: what its driver has written."""
    with interruptible(lambda: f"run {run_id} continues; `baton cancel {run_id}` ends it"):
        asyncio.run(_print_log(url, run_id, is_following=is_following, output=output))


async def _print_log(url: str, run_id: str, *, is_following: bool, output: str) -> None:
    async with connect_to_control(url, patience_s=WAIT_PATIENCE_S) as control:
        after: int | None = None
        while True:
            # the state first: once it is final, the log that is read after it is complete
            run = await control.get(path_of(run_id))
            part = await control.get(f"{path_of(run_id)}/log", {} if after is None else {"after": after})
            if output == "json":
                print_json(part)
            else:
                echo(part["text"], nl=False)
            if not is_following or (run["state"] in END_STATES and part["next"] == part["size"]):
                return
            if part["next"] == after:
                await asyncio.sleep(POLL_S)
            after = part["next"]


def path_of(run_id: str) -> str:
    """Where control serves the run."""
    return f"/runs/{quote(run_id, safe='')}"


def progress_of(run: Mapping[str, Any]) -> Progress:
    """What the bar shows."""
    # until Spark has planned the job, the number of its tasks is 0: the bar pulses
    tasks = run["progress"]["tasks"] or None
    return Progress(f"{run['job']} {run['state']}", run["progress"]["completed"], tasks)


def failure_of(run: Mapping[str, Any]) -> str | None:
    """Why a run that has ended is not a success, in a sentence; None when it is one."""
    if run["state"] != "succeeded":
        error = run.get("error") or {}
        reason = ": ".join(str(error[part]) for part in ("condition", "message") if error.get(part))
        return reason or str(run["state"])
    # to Spark an audit that counts differences has succeeded; as a proof it has failed
    return _failure_of_audit(run["result"]) if run["job"] == "audit" else None


def _failure_of_audit(result: Mapping[str, Any]) -> str | None:
    counts = {name: result.get(name) for name in DIFFERENCES}
    counts |= {name: result[name] for name in MORE_DIFFERENCES if result.get(name)}
    # an audit of an earlier version has no verdict
    verdict = str(result.get("verdict", "differs" if any(n != 0 for n in counts.values()) else "exact"))
    if verdict == "exact" or verdict.startswith("within the promise"):
        return None
    if verdict == "nothing judged":
        return "the audit judged nothing: it found no session that it could compare with the log"
    return "the audit found differences: " + ", ".join(f"{name} {n}" for name, n in counts.items())


def _reason(run: Mapping[str, Any]) -> str:
    # an error of Spark may quote a fragment, and have many lines
    return escaped(str(failure_of(run)).encode(errors="replace"))


def print_run(run: Mapping[str, Any]) -> None:
    """Prints the run and its result: single values in one table, each list of objects in its own."""
    result = run.get("result")
    echo(f"run {run['id']} of {run['job']}: {run['state']}")
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
