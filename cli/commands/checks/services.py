"""Checks of Baton's own processes: does control answer, do members, producers and queues, on which clocks?

The clocks matter: members refuse requests of each other that seem a minute old or young, and a fragment
whose time lies ahead of Kafka's clock is not believed.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from typing import Any

from cli.commands.checks.findings import Finding, ok, unknown, wrong
from cli.http.client import BatonClient, connect
from cli.http.control import connect_to_control
from shared.errors import BatonError
from shared.together import together

MOST_SKEW_S = 2.0
STALE_MS = 10_000
"""Control reads the cluster every second; so old means that it cannot."""


async def check_control(url: str) -> list[Finding]:
    """Whether control answers, reads the cluster, and reaches each member. Raises Unavailable."""
    async with connect_to_control(url) as control:
        skew = judge_clock(f"control {url}", await _clock_ahead_s(control))
        members = await control.pages("/members", "members", "id")
        producers = await control.pages("/producers", "producers", "id")
    findings = [skew, judge_view(members["stale_ms"])]
    silent = [row for row in members["members"] if not row["answers"]]
    findings += [
        wrong(f"member {row['id']}", f"it does not answer control at {row['address']}", "look at its log")
        for row in silent
    ]
    others = [row for row in members["members"] if row["answers"]] + producers["producers"]
    if not producers["producers"]:
        findings.append(wrong("producers", "there are none, so nobody accepts fragments", "start a producer"))
    return findings + await together(map(_check_clock, others))


async def check_queues(url: str) -> list[Finding]:
    """Whether a queue worker answers control, and what the queues hold. Raises Unavailable."""
    async with connect_to_control(url) as control:
        rows = (await control.pages("/queues", "queues", "queue"))["queues"]
    if any(row["ready"] is None for row in rows):
        todo = "look at their processes, and at BATON_QUEUE_URL and BATON_QUEUE_KEY_FILE of control"
        return [wrong("queues", "no queue worker answers control", todo)]
    dead = {row["queue"]: row["dead"] for row in rows if row["dead"]}
    findings = [ok("queues", f"there are {len(rows)}, none with dead letters")] if not dead else []
    return findings + [
        wrong(f"queue {queue}", f"it has {count:,} dead letters", f"once mended: baton queue redrive {queue}")
        for queue, count in dead.items()
    ]


def judge_view(stale_ms: int) -> Finding:
    """Whether control's reading is fresh."""
    if stale_ms > STALE_MS:
        says, todo = (
            f"its last reading is {stale_ms / 1000:,.0f} s old",
            "look at its log: what can it not read?",
        )
        return wrong("control's view", says, todo)
    return ok("control's view", f"{stale_ms:,} ms old")


def judge_clock(about: str, ahead_s: float | None) -> Finding:
    """Whether a clock agrees with that of this machine, to what HTTP shows of it: a second."""
    if ahead_s is None:
        return unknown(about, "it answers, but does not say its time")
    if abs(ahead_s) > MOST_SKEW_S:
        says = f"its clock is {abs(ahead_s):,.1f} s {'ahead of' if ahead_s > 0 else 'behind'} this machine's"
        return wrong(about, says, "run a time service (chrony, systemd-timesyncd) on both")
    return ok(about, "it answers, and its clock agrees")


async def _check_clock(row: Mapping[str, Any]) -> Finding:
    about = f"{row['id']} at {row['address']}"
    try:
        # without a token: `/livez` needs none, and the address is what somebody has registered
        async with connect(row["address"], bearer="") as service:
            return judge_clock(about, await _clock_ahead_s(service))
    except BatonError as error:
        return unknown(about, f"not reached from here: {error.detail}")


async def _clock_ahead_s(service: BatonClient) -> float | None:
    """How far the service's clock is ahead of ours, to a second; None if it does not state its time."""
    began_s = time.time()
    stated = (await service.headers("/livez")).get("date")
    return None if stated is None else ahead_s(stated, (began_s + time.time()) / 2)


def ahead_s(stated: str, now_s: float) -> float | None:
    """How far a `Date` header is ahead of `now_s` (seconds since the epoch); None if it is not a date.

    >>> ahead_s("Thu, 01 Jan 1970 00:01:00 GMT", 50.5), ahead_s("soon", 0)
    (10.0, None)
    """
    try:
        # the header leaves out the fraction, which is half a second on average
        return parsedate_to_datetime(stated).timestamp() + 0.5 - now_s
    except ValueError:
        return None
