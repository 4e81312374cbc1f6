"""The course of a demo: start the stack, import in the midst of incidents, run the jobs, compare all counts.

Used by `cli/demo/command.py`. Whatever happens, the stack is stopped when `run_demo` returns.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from cli.client import connect
from cli.commands.jobs import complaint_about, run_job
from cli.demo import report
from cli.demo.incidents import Progress, happen
from cli.demo.log import DemoLog, made_up, real
from cli.demo.stages import Amount, Numbers, inequalities, stages_of
from cli.demo.truth import Findings, TruthCheck
from cli.importing.command import ImportOptions, Outcome, options_for, run_import
from cli.importing.formats import Format
from cli.kafka.sessions import read_sessions
from cli.stack.local import LocalStack
from cli.stack.options import StackOptions
from shared.errors import BatonError, Unavailable
from shared.model.head import Counts
from shared.model.names import DEFAULT_GROUP, Names

CONSUMERS = 3
SETTLE_S = 60.0
POLL_S = 0.25
TOP = 5
"""Rows of each list of top items."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoOptions:
    """What the command line asks for; `log` None = make one up."""

    log: Path | None
    home: Path | None
    port_offset: int
    visitors: int
    seed: int
    form: Format | None
    key: str | None
    time: str | None
    end: str | None
    item_path: str | None


async def run_demo(options: DemoOptions, home: Path) -> list[str]:
    """Runs the whole course in `home`; a sentence for everything that is not exact.

    Raises BatonError when something cannot be done at all; nothing is left running then either.
    """
    log = _log(options, home)
    stack_options = StackOptions(home=home, port_offset=options.port_offset, consumers=CONSUMERS)
    report.step("starting ZooKeeper, Kafka, producer, consumers and control")
    async with LocalStack(stack_options, _told) as stack:
        outcome = await _import(stack, log)
        if outcome.failure or not outcome.ok:
            return [outcome.failure or _refusals(outcome)]
        streams = await _settled(stack)
        report.print_ownership(streams["streams"])
        results = await _run_jobs(stack, log.item_path)
        report.print_reports(results["reports"])
        read, findings = await _read_delivered(stack, log)
        return _judge(streams, outcome, results, read, findings)


def _log(options: DemoOptions, home: Path) -> DemoLog:
    if options.log is not None:
        log = real(options.log, options.form, options.key, options.time, options.end, options.item_path)
        report.step(f"{log.path} is a log of about {log.lines:,} lines ({log.form}, key {log.fields.key})")
        return log
    log = made_up(home, options.visitors, options.seed)
    assert log.visits is not None
    sessions = len(log.visits.truth)
    report.step(
        f"made up a log of {log.lines:,} lines: {sessions:,} sessions of {options.visitors:,} visitors"
        f" (seed {options.seed})"
    )
    return log


def _told(name: str, what: str) -> None:
    click.echo(f"  {name} {what}")


# the import, and what happens in its middle


async def _import(stack: LocalStack, log: DemoLog) -> Outcome:
    """The import, every session delivered, whatever happened meanwhile."""
    report.step("importing over HTTP")
    progress = Progress(log.lines)
    happening = asyncio.create_task(happen(stack, progress), name="incidents")
    try:
        outcome = await run_import(_import_options(stack, log), lambda tally: progress.note(tally.accepted))
        if outcome.ok:
            await happening
    finally:
        happening.cancel()
        with contextlib.suppress(asyncio.CancelledError, BatonError):
            await happening
    if outcome.ok:
        rate = outcome.tally.accepted / outcome.sending_s
        report.step(
            f"{outcome.tally.accepted:,} fragments acknowledged in {outcome.sending_s:.1f} s ({rate:,.0f}/s),"
            f" every session delivered after {outcome.seconds:.1f} s"
        )
    return outcome


def _import_options(stack: LocalStack, log: DemoLog) -> ImportOptions:
    return options_for(
        file=str(log.path),
        form=log.form,
        key=log.fields.key,
        time_field=log.fields.time,
        time_unit=log.fields.unit,
        end=log.fields.end,
        name=None,
        no_marker=False,
        wait=True,
        url=stack.producer_url,
        control=stack.control_url,
        group=DEFAULT_GROUP,
        lanes=4,
        batch=500,
        stall_s=120.0,
    )


def _refusals(outcome: Outcome) -> str:
    reasons = "; ".join(
        f"{found.count:,} × {reason}, first in line {found.line:,}: {found.detail}"
        for reason, found in outcome.tally.reasons.items()
    )
    return f"not every line was accepted: {reasons}"


async def _settled(stack: LocalStack) -> dict[str, Any]:
    """`GET /streams` once every stream is owned and nothing is left to read or open.

    Raises Unavailable when that takes too long.
    """
    deadline = time.monotonic() + SETTLE_S
    async with connect(stack.control_url, patience_s=SETTLE_S) as control:
        while True:
            answer = await control.pages("/streams", "streams", "stream", {"group": DEFAULT_GROUP})
            totals = answer["totals"]
            running = all(row["state"] == "running" for row in answer["streams"])
            if running and totals["lag"] == 0 and totals["open_sessions"] == 0:
                return answer
            if time.monotonic() > deadline:
                raise Unavailable(
                    f"after {SETTLE_S:g} s the streams still have a lag of {totals['lag']} and"
                    f" {totals['open_sessions']} open sessions, or not all of them run"
                )
            await asyncio.sleep(POLL_S)


# what is made of the sessions


async def _run_jobs(stack: LocalStack, item_path: str) -> dict[str, dict[str, Any]]:
    """The results of the three jobs. Raises BatonError when one does not succeed."""
    jobs: dict[str, dict[str, str | int]]
    jobs = {"lake": {}, "reports": {"item_path": item_path, "top": TOP}, "audit": {}}
    results = {}
    for job, parameters in jobs.items():
        report.step(f"running the Spark job {job}")
        began = time.monotonic()
        ended = await run_job(stack.control_url, job, DEFAULT_GROUP, parameters, wait=True)
        if ended["state"] != "succeeded":
            raise BatonError(f"the job {job} fails: {complaint_about(ended)}")
        click.echo(f"  {job} took {time.monotonic() - began:.0f} s")
        results[job] = ended["result"]
    return results


async def _read_delivered(stack: LocalStack, log: DemoLog) -> tuple[Amount, Findings | None]:
    """What the topic `sessions` holds for its readers, compared with the truth where there is one."""
    check = TruthCheck(log.visits, log.path.name) if log.visits else None
    sessions = fragments = size = 0
    async for batch in read_sessions(stack.options.kafka_address, Names().sessions(DEFAULT_GROUP)):
        for session in batch:
            sessions += 1
            fragments += len(session.data)
            size += sum(len(bytes(raw)) for raw in session.data)
            if check is not None:
                check.see(session)
    read = Amount(sessions=sessions, fragments=fragments, bytes=size)
    return read, check.finish() if check is not None else None


def _judge(
    streams: dict[str, Any],
    outcome: Outcome,
    results: dict[str, dict[str, Any]],
    read: Amount,
    findings: Findings | None,
) -> list[str]:
    """Prints the audit, the truth and the counts of every stage; a sentence for what is not exact."""
    counts = Counts(**{name: streams["totals"][name] for name in Counts.__struct_fields__})
    lake = {name: results["lake"][name] for name in ("sessions", "fragments", "bytes")}
    stages = stages_of(
        Numbers(
            tally=outcome.tally,
            end_offsets=sum(row["end"] for row in streams["streams"]),
            counts=counts,
            read=read,
            lake=Amount(**lake),
            audit=results["audit"],
        )
    )
    report.print_stages(stages, counts)
    report.print_audit(results["audit"])
    faults = inequalities(stages)
    if complaint := complaint_about({"state": "succeeded", "job": "audit", "result": results["audit"]}):
        faults.append(complaint)
    if findings is not None:
        report.print_truth(findings)
        if not findings.is_exact:
            faults.append("the delivered sessions differ from the truth")
    return faults
