"""The incidents during a demo's import: a live move of a stream, the kill of a consumer, a drain.

Each one starts when a certain share of the log is in Kafka, one after the other. What the handovers cost is
read from control's events, as an operator would do it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import click

from cli.commands.operations import cost_text, wait_for_operation
from cli.demo import report
from cli.http.client import BatonClient, connect
from cli.stack.local import LocalStack
from shared.errors import BatonError
from shared.model.names import DEFAULT_GROUP

VICTIM = 1
"""The consumer that is killed."""
LEAVER = 2
"""The consumer that drains."""
MOVED = 0
"""The stream that moves."""
PATIENCE_S = 60.0
EVENT_DELAY_S = 5.0
"""How long a handover's event may take: the recipient reports it a moment after it starts to read."""
POLL_S = 0.2


@dataclass(slots=True)
class Progress:
    """How much of a log is in Kafka, and who waits for which share of it."""

    lines: int
    _reached: dict[float, asyncio.Event] = field(default_factory=dict)

    def note(self, accepted: int) -> None:
        """Records that `accepted` lines are acknowledged."""
        for share, event in self._reached.items():
            if accepted >= self.lines * share:
                event.set()

    async def reach(self, share: float) -> None:
        """Returns when that share of the log is in Kafka."""
        await self._reached.setdefault(share, asyncio.Event()).wait()


async def run_incidents(stack: LocalStack, progress: Progress) -> None:
    """Runs all incidents in order. Raises BatonError when a move or a drain fails."""
    async with connect(stack.control_url, patience_s=PATIENCE_S) as control:
        waits = [asyncio.create_task(progress.reach(share)) for share in (0.25, 0.5, 0.75)]
        try:
            await waits[0]
            target = await _other_owner(control)
            report.step(f"a quarter of the log is in Kafka: moving stream {MOVED} to {target}, live")
            await _operate(control, {"kind": "move", "stream": MOVED, "to": target})
            await waits[1]
            report.step(f"half of the log is in Kafka: killing consumer-{VICTIM} with SIGKILL")
            await stack.kill_consumer(VICTIM)
            await waits[2]
            report.step(f"three quarters of the log are in Kafka: draining consumer-{LEAVER}")
            await _operate(control, {"kind": "drain", "member": f"consumer-{LEAVER}"})
        finally:
            for wait in waits:
                wait.cancel()


async def _other_owner(control: BatonClient) -> str:
    """A consumer that is neither the stream's owner nor the one that will be killed.

    Waits for one: on a slow machine the import may start before all members have joined.
    """
    deadline = time.monotonic() + PATIENCE_S
    while True:
        row = await control.get(f"/streams/{MOVED}", {"group": DEFAULT_GROUP})
        members = await control.get("/members", {"group": DEFAULT_GROUP})
        names: set[str] = {one["id"] for one in members["members"]} - {row["owner"], f"consumer-{VICTIM}"}
        if row["owner"] and names:
            return min(names)
        if time.monotonic() > deadline:
            raise BatonError(f"there is no consumer to move stream {MOVED} to")
        await asyncio.sleep(POLL_S)


async def _operate(control: BatonClient, request: Mapping[str, Any]) -> None:
    before = await _newest_event(control)
    started = await control.operate({**request, "group": DEFAULT_GROUP})
    ended = await wait_for_operation(control, started["id"], lambda answer: None)
    if ended["state"] != "done":
        raise BatonError(f"the operation {request['kind']} failed: {ended['why']}")
    handovers = await _handovers(control, before, request, ended["total"])
    click.echo(f"  {moved_text(handovers, ended['total'])}")


async def _handovers(
    control: BatonClient, before: int, request: Mapping[str, Any], expected: int
) -> list[dict[str, Any]]:
    """The handovers of an operation; fewer than `expected` if their events do not come in time."""
    deadline = time.monotonic() + EVENT_DELAY_S
    while True:
        found = [row for row in await _events_after(control, before) if _is_of(row, request)]
        if len(found) >= expected or time.monotonic() > deadline:
            return found
        await asyncio.sleep(POLL_S)


def _is_of(event: Mapping[str, Any], request: Mapping[str, Any]) -> bool:
    if event["kind"] != "handover":
        return False
    return bool(event["stream"] == request.get("stream") or event["from"] == request.get("member"))


def moved_text(handovers: Sequence[Mapping[str, Any]], expected: int) -> str:
    """What was handed over and how long the streams paused, in words.

    >>> row = {"sessions": 12, "bytes": 3400, "pause_ms": 31, "warm": True}
    >>> moved_text([row, row | {"pause_ms": 40}], 3)
    'handed over 2 streams, 24 open sessions, 6.8 KB; the longest pause was 40 ms; 1 stream had to replay'
    """
    replayed = max(0, expected - len(handovers)) + sum(not row["warm"] for row in handovers)
    replays = f"{replayed} stream{'' if replayed == 1 else 's'} had to replay"
    if not handovers:
        return replays if replayed else "nothing had to be handed over"
    pauses = [row["pause_ms"] for row in handovers]
    sessions = sum(row.get("sessions") or 0 for row in handovers)
    cost = cost_text(len(handovers), sessions, sum(row.get("bytes") or 0 for row in handovers))
    which = "the pause" if len(pauses) == 1 else "the longest pause"
    return f"handed over {cost}; {which} was {max(pauses):g} ms" + (f"; {replays}" if replayed else "")


async def _newest_event(control: BatonClient) -> int:
    rows = await _events_after(control, -1)
    return int(rows[-1]["id"]) if rows else -1


async def _events_after(control: BatonClient, event_id: int) -> list[dict[str, Any]]:
    answer = await control.get("/events", {"group": DEFAULT_GROUP, "after": event_id, "limit": 1000})
    rows: list[dict[str, Any]] = answer["events"]
    return rows
