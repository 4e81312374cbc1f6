"""The incidents during a demo's import: a live move of a stream, the kill of a consumer, a drain.

Each one starts when a certain share of the log is in Kafka, one after the other. What the handovers cost is
read from control's events, as an operator would do it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import click

from cli.commands.control import wait_until_ended
from cli.commands.operations import cost_text
from cli.demo import report
from cli.http.client import BatonClient
from cli.http.control import connect_to_control
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


class Quarters:
    """Signals when a quarter, a half and three quarters of a log's lines are in Kafka."""

    def __init__(self, lines: int) -> None:
        self._lines = lines
        self._reached = [asyncio.Event() for _ in range(4)]

    def note(self, accepted: int) -> None:
        """Records that `accepted` lines are acknowledged."""
        for quarter, event in enumerate(self._reached):
            if 4 * accepted >= quarter * self._lines:
                event.set()

    async def reach(self, quarter: int) -> None:
        """Returns when that many quarters of the log are in Kafka."""
        await self._reached[quarter].wait()


async def run_incidents(stack: LocalStack, quarters: Quarters) -> None:
    """Runs all incidents in order. Raises BatonError when a move or a drain fails."""
    async with connect_to_control(stack.control_url, patience_s=PATIENCE_S) as control:
        await quarters.reach(1)
        target = await _other_owner(control)
        report.step(f"a quarter of the log is in Kafka: moving stream {MOVED} to {target}, live")
        await _operate(control, {"kind": "move", "stream": MOVED, "to": target})
        await quarters.reach(2)
        report.step(f"half of the log is in Kafka: killing consumer-{VICTIM} with SIGKILL")
        await stack.kill_consumer(VICTIM)
        await quarters.reach(3)
        await _until_back(control)
        report.step(f"three quarters of the log are in Kafka: draining consumer-{LEAVER}")
        await _operate(control, {"kind": "drain", "member": f"consumer-{LEAVER}"})


async def _other_owner(control: BatonClient) -> str:
    """A consumer that is neither the stream's owner nor the one that will be killed.

    Waits for one: on a slow machine the import may start before all members have joined.
    """
    deadline = time.monotonic() + PATIENCE_S
    while True:
        row = await control.get(f"/streams/{MOVED}", {"group": DEFAULT_GROUP})
        members = await control.get("/members", {"group": DEFAULT_GROUP})
        # not the next victim: the stream would move again at once, which is another incident
        names: set[str] = {one["id"] for one in members["members"]} - {row["owner"], f"consumer-{VICTIM}"}
        if row["owner"] and names:
            return min(names)
        if time.monotonic() > deadline:
            raise BatonError(f"there is no consumer to move stream {MOVED} to")
        await asyncio.sleep(POLL_S)


async def _until_back(control: BatonClient) -> None:
    """Waits for the killed consumer's return, so that the one that drains can hand its streams over to it."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        answer = await control.get("/members", {"group": DEFAULT_GROUP})
        if any(one["id"] == f"consumer-{VICTIM}" for one in answer["members"]):
            return
        await asyncio.sleep(POLL_S)


async def _operate(control: BatonClient, request: Mapping[str, Any]) -> None:
    # what comes after this event belongs to the operation
    events = await _events_after(control, -1)
    before = int(events[-1]["id"]) if events else -1
    started = await control.operate({**request, "group": DEFAULT_GROUP})
    ended = await wait_until_ended(control, f"/operations/{started['id']}")
    if ended["state"] != "done":
        raise BatonError(f"the operation {request['kind']} failed: {ended['why']}")
    # the plan may exchange a stream for the one that was asked for, and then both are handed over
    streams = {move["stream"] for move in ended["moves"]}
    click.echo(f"  {moved_text(await _handovers(control, before, streams), len(streams))}")


async def _handovers(control: BatonClient, before: int, streams: Collection[int]) -> list[dict[str, Any]]:
    """The handovers of these streams; fewer than there are streams if events do not come in time."""
    # control reads the events from Kafka, a moment after the operation has ended
    deadline = time.monotonic() + EVENT_DELAY_S
    while True:
        rows = await _events_after(control, before)
        found = [row for row in rows if row["kind"] == "handover" and row["stream"] in streams]
        # a stream that replays has no event of a handover, so the wait for it must end
        if len(found) >= len(streams) or time.monotonic() > deadline:
            return found
        await asyncio.sleep(POLL_S)


def moved_text(handovers: Sequence[Mapping[str, Any]], expected: int) -> str:
    """A sentence about what was handed over and how long the streams paused.

    >>> row = {"sessions": 12, "bytes": 3400, "pause_ms": 31, "warm": True}
    >>> moved_text([row, row | {"pause_ms": 40}], 3)
    'handed over 2 streams, 24 open sessions, 6.8 kB; the longest pause was 40 ms; 1 stream had to replay'
    """
    # a stream that moved without a handover was claimed and replayed
    replayed = max(0, expected - len(handovers)) + sum(not row["warm"] for row in handovers)
    replays = f"{replayed} stream{'' if replayed == 1 else 's'} had to replay"
    if not handovers:
        return replays if replayed else "nothing had to be handed over"
    pauses = [row["pause_ms"] for row in handovers]
    sessions = sum(row.get("sessions") or 0 for row in handovers)
    cost = cost_text(len(handovers), sessions, sum(row.get("bytes") or 0 for row in handovers))
    which = "the pause" if len(pauses) == 1 else "the longest pause"
    return f"handed over {cost}; {which} was {max(pauses):g} ms" + (f"; {replays}" if replayed else "")


async def _events_after(control: BatonClient, event_id: int) -> list[dict[str, Any]]:
    answer = await control.get("/events", {"group": DEFAULT_GROUP, "after": event_id, "limit": 1000})
    rows: list[dict[str, Any]] = answer["events"]
    return rows
