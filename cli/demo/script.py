"""The script of the demo: start the stack, import during incidents, run the jobs, compare all counts.

Used by `cli/demo/command.py`. The stack is always stopped when `run_demo` returns or raises.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from cli.commands.control import follow
from cli.commands.jobs import run_job
from cli.commands.runs import failure_of, path_of, progress_of
from cli.demo import report
from cli.demo.incidents import run_incidents
from cli.demo.log import DemoLog
from cli.demo.pace import Pace
from cli.demo.stages import Amount, inequalities, stages_of
from cli.demo.truth import Findings, TruthCheck
from cli.http.control import connect_to_control
from cli.importing.options import ImportOptions, Outcome
from cli.importing.run import run_import
from cli.kafka.sessions import open_sessions
from cli.stack.local.stack import LocalStack
from cli.stack.options import StackOptions
from cli.terminal.escaping import echo
from shared.errors import BatonError, Unavailable
from shared.model.head import Counts
from shared.model.names import DEFAULT_GROUP, Names

CONSUMERS = 3
"""One is killed, another drains, and one is left to take over."""
ENVIRONMENT = {"BATON_REST_S": "1"}
"""Of all services. Incidents follow each other quickly; each would wait for the rest after the one before."""
SETTLE_S = 60.0
POLL_S = 0.25
TOP = 5
"""Rows in each list of top items."""


AtEnd = Callable[[Sequence[str]], Awaitable[None]]
"""What happens between the report and the end of the stack; gets the faults."""


async def run_demo(log: DemoLog, options: StackOptions, at_end: AtEnd | None = None) -> list[str]:
    """Runs the demo on a fresh stack and returns a sentence for every count that is not exact.

    Raises BatonError when a step fails altogether. Nothing is left running in either case.
    """
    known = f": {len(log.visits.truth):,} known sessions" if log.visits else ""
    report.step(f"{log.path} is a log of about {log.lines:,} lines ({log.form}, key {log.fields.key}){known}")
    report.step("starting ZooKeeper, Kafka, producer, consumers and control")
    async with LocalStack(options, _print_change) as stack:
        faults = await _run(stack, log)
        if at_end is not None:
            await at_end(faults)
        return faults


async def _run(stack: LocalStack, log: DemoLog) -> list[str]:
    # as a schedule would, while fragments arrive; its driver then waits for the other jobs
    report.step("starting a run of the Spark job lake, which takes the sessions delivered so far")
    early = await run_job(stack.control_url, "lake", DEFAULT_GROUP, {}, wait=False)
    outcome = await _import(stack, log)
    # with lines missing, every later count would differ as well: one reason is enough
    if outcome.failure or not outcome.ok:
        return [outcome.failure or "not every line was accepted: " + "; ".join(outcome.tally.sentences())]
    streams = await _settled(stack)
    report.print_ownership(streams["streams"])
    _check(await follow(stack.control_url, path_of(early["id"]), progress_of))
    results = await _run_jobs(stack, log.item_path)
    report.print_reports(results["reports"])
    read, findings = await _read_delivered(stack, log)
    return _judge(streams, outcome, results, read, findings)


def _print_change(name: str, change: str) -> None:
    echo(f"  {name} {change}")


# the import and its incidents


async def _import(stack: LocalStack, log: DemoLog) -> Outcome:
    """Imports the log during the incidents and waits until every session is delivered."""
    report.step("importing over HTTP")
    pace = Pace(log.lines)
    options = ImportOptions(
        file=str(log.path),
        form=log.form,
        fields=log.fields,
        name=log.path.name,
        url=stack.producer_url,
        control=stack.control_url,
        batch=pace.batch,
        pace=pace.around,
        # nobody else uses this stack, so a log of today is closed too
        close=True,
        wait=True,
    )
    incidents = asyncio.create_task(run_incidents(stack, pace), name="incidents")
    try:
        outcome = await run_import(options)
        # after a failed import the lines that an incident waits for may never arrive
        if outcome.ok:
            await incidents
    finally:
        incidents.cancel()
        with contextlib.suppress(asyncio.CancelledError, BatonError):
            await incidents
    if outcome.ok:
        rate = outcome.tally.accepted / outcome.sending_s
        report.step(
            f"{outcome.tally.accepted:,} fragments acknowledged in {outcome.sending_s:.1f} s ({rate:,.0f}/s),"
            f" every session delivered after {outcome.seconds:.1f} s"
        )
    return outcome


async def _settled(stack: LocalStack) -> dict[str, Any]:
    """`GET /streams` once every stream runs, without lag and without open sessions.

    Raises Unavailable when that takes too long.
    """
    deadline = time.monotonic() + SETTLE_S
    async with connect_to_control(stack.control_url, patience_s=SETTLE_S) as control:
        while True:
            answer = await control.pages("/streams", "streams", "stream", {"group": DEFAULT_GROUP})
            totals = answer["totals"]
            # a stream that just moved has delivered everything, but its new owner may still be opening it
            running = all(row["state"] == "running" for row in answer["streams"])
            if running and totals["lag"] == 0 and totals["open_sessions"] == 0:
                return answer
            if time.monotonic() > deadline:
                lag, held = totals["lag"], totals["open_sessions"]
                raise Unavailable(
                    f"after {SETTLE_S:g} s the streams still have {'an unknown' if lag is None else 'a'} lag"
                    f"{'' if lag is None else f' of {lag}'} and"
                    f" {'an unknown number of' if held is None else held} open sessions,"
                    " or not all of them run"
                )
            await asyncio.sleep(POLL_S)


# the delivered sessions


async def _run_jobs(stack: LocalStack, item_path: str) -> dict[str, dict[str, Any]]:
    """The results of the three jobs. Raises BatonError when one of them fails."""
    jobs: dict[str, dict[str, str | int]]
    # in this order: `reports` reads what `lake` has written
    jobs = {"lake": {}, "reports": {"item_path": item_path, "top": TOP}, "audit": {}}
    results = {}
    for job, parameters in jobs.items():
        report.step(f"running the Spark job {job}")
        began = time.monotonic()
        ended = await run_job(stack.control_url, job, DEFAULT_GROUP, parameters, wait=True)
        _check(ended)
        echo(f"  {job} took {time.monotonic() - began:.0f} s")
        results[job] = ended["result"]
    return results


def _check(run: dict[str, Any]) -> None:
    """Raises BatonError if the run has not succeeded."""
    if run["state"] != "succeeded":
        raise BatonError(f"the job {run['job']} failed: {failure_of(run)}")


async def _read_delivered(stack: LocalStack, log: DemoLog) -> tuple[Amount, Findings | None]:
    """What readers of the topic `sessions` receive, compared with the truth if it is known."""
    check = TruthCheck(log.visits, log.path.name) if log.visits else None
    sessions = fragments = size = 0
    async with open_sessions(stack.kafka_access, Names().sessions(DEFAULT_GROUP)) as delivered:
        async for one in delivered.everything():
            sessions += 1
            fragments += len(one.session.data)
            # as posted: Baton keeps the bytes of a fragment unchanged
            size += sum(len(bytes(raw)) for raw in one.session.data)
            if check is not None:
                check.add(one.session)
    read = Amount(sessions=sessions, fragments=fragments, bytes=size)
    return read, check.finish() if check is not None else None


def _judge(
    streams: dict[str, Any],
    outcome: Outcome,
    results: dict[str, dict[str, Any]],
    read: Amount,
    findings: Findings | None,
) -> list[str]:
    """Prints the counts of every stage, the audit and the truth; returns a sentence for each difference."""
    counts = Counts(**{name: streams["totals"][name] for name in Counts.__struct_fields__})
    lake = {name: results["lake"][name] for name in ("sessions", "fragments", "bytes")}
    stages = stages_of(
        tally=outcome.tally,
        end_offsets=sum(row["end"] for row in streams["streams"]),
        counts=counts,
        read=read,
        lake=Amount(**lake),
        audit=results["audit"],
    )
    report.print_stages(stages, counts)
    report.print_audit(results["audit"])
    faults = inequalities(stages)
    if failure := failure_of({"state": "succeeded", "job": "audit", "result": results["audit"]}):
        faults.append(failure)
    if findings is not None:
        report.print_truth(findings)
        # the sentences of the differences are printed above
        if not findings.is_exact:
            faults.append("the delivered sessions differ from the truth")
    return faults
