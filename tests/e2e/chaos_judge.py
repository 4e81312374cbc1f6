"""The verdict on a chaos run: the clients' ledger against the sessions, and Spark's audit.

The clients' answers (200 or not) are compared with the sessions that a `read_committed` reader gets;
`readers.judge_log` compares those with the log, and the audit recomputes all of it in Spark.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import signal
import sys
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from cli.stack.leash import on_leash
from cli.stack.lock import jar_folder
from services.control.spark.request import RunRequest
from shared.model.group import GroupSettings
from shared.model.sessions import Session
from tests.e2e.chaos_load import Ledger
from tests.e2e.readers import Where
from tests.e2e.service import CHECKOUT

AUDIT_TIMEOUT_S = 300.0


def number_of(value: bytes) -> int:
    """The number of a fragment of the load."""
    number: int = json.loads(value)["data"]["n"]
    return number


def judge_ledger(ledger: Ledger, delivered: Sequence[Session]) -> list[str]:
    """What contradicts the clients' ledger; empty when nothing does.

    Every acknowledged fragment is in exactly one session, any other in at most one, no session comes twice,
    and the acknowledged fragments of a key keep the order in which they were posted.
    """
    wrong = []
    twice = [one for one, count in Counter(session.id for session in delivered).items() if count > 1]
    if twice:
        wrong.append(f"{len(twice)} sessions twice, as {twice[:3]}")
    found = Counter(number_of(bytes(value)) for session in delivered for value in session.data)
    lost = [one.number for one in ledger.fragments if one.is_acknowledged and not found[one.number]]
    if lost:
        wrong.append(f"{len(lost)} acknowledged fragments lost, as {lost[:3]}")
    doubled = [number for number, count in found.items() if count > 1]
    if doubled:
        wrong.append(f"{len(doubled)} fragments doubled, as {doubled[:3]}")
    if invented := found.keys() - range(len(ledger.fragments)):
        wrong.append(f"{len(invented)} fragments never posted, as {sorted(invented)[:3]}")
    return wrong + _judge_order(ledger, delivered)


def _judge_order(ledger: Ledger, delivered: Sequence[Session]) -> list[str]:
    in_order: dict[str, list[Session]] = defaultdict(list)
    for session in sorted(delivered, key=lambda session: session.first_offset):
        in_order[session.key].append(session)
    wrong = []
    for key, sessions in in_order.items():
        if len({session.stream for session in sessions}) > 1:
            wrong.append(f"{key} is in several streams")
        overlaps = [a.id for a, b in itertools.pairwise(sessions) if a.last_offset >= b.first_offset]
        if overlaps:
            wrong.append(f"sessions of {key} overlap: {overlaps[:3]}")
        numbers = [number_of(bytes(value)) for session in sessions for value in session.data]
        known = [number for number in numbers if ledger.fragments[number].is_acknowledged]
        if known != sorted(known):
            wrong.append(f"{key} is out of order")
        if any(ledger.fragments[number].key != key for number in numbers):
            wrong.append(f"{key} has fragments of another key")
    return wrong


async def audit(where: Where, settings: GroupSettings, run: Path) -> dict[str, Any]:
    """The result of the job `audit`, run as control runs it, in a process group that is ended with it."""
    request = RunRequest(
        id="chaos",
        job="audit",
        kafka=where.kafka,
        namespace=where.names.namespace,
        lake=str(run / "lake"),
        jars=str(jar_folder("spark")),
        group=where.group,
        group_settings=settings,
        streams=where.streams,
    )
    (run / "request.json").write_bytes(msgspec.json.encode(request))
    driver = await asyncio.create_subprocess_exec(
        *on_leash([sys.executable, "-m", "services.control.spark.driver", str(run)]),
        cwd=CHECKOUT,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        async with asyncio.timeout(AUDIT_TIMEOUT_S):
            output, _ = await driver.communicate()
    finally:
        # the driver leads its group, and Spark's JVM is in it
        with contextlib.suppress(ProcessLookupError):
            os.killpg(driver.pid, signal.SIGKILL)
        await driver.wait()
    assert driver.returncode == 0, output.decode(errors="replace")[-3000:]
    result: dict[str, Any] = json.loads((run / "result.json").read_bytes())
    return result
