"""The incidents during a demo's import: a live move of a stream, the kill of a consumer, a drain.

Each begins when a certain share of the log is in Kafka, and the rest of the log arrives slowly until it is
over (`pace.py`). So the streams that move carry open sessions. What that cost is read from control's events,
as an operator would do it.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Collection, Mapping
from typing import Any

from cli.commands.control import wait_until_ended
from cli.demo import report
from cli.demo.pace import Pace
from cli.http.client import BatonClient
from cli.http.control import connect_to_control
from cli.stack.local.stack import LocalStack
from cli.terminal.escaping import echo
from shared.errors import BatonError, Unavailable
from shared.model.names import DEFAULT_GROUP

STAYER, VICTIM, LEAVER = "consumer-0", "consumer-1", "consumer-2"
"""The consumer that a stream moves to, the one that is killed, and the one that drains."""
PATIENCE_S = 60.0
EVENT_DELAY_S = 20.0
"""How long a movement's event may take: the recipient reports it a moment after it starts to read, which on a
busy machine is seconds."""
POLL_S = 0.2


async def run_incidents(stack: LocalStack, pace: Pace) -> None:
    """Runs all incidents in order. Raises BatonError when one of them fails."""
    try:
        async with connect_to_control(stack.control_url, patience_s=PATIENCE_S) as control:
            async with pace.incident():
                await _move(control)
            async with pace.incident():
                await _kill(control, stack)
            async with pace.incident():
                report.step(f"three quarters of the log are in Kafka: draining {LEAVER}")
                await _operate(control, {"kind": "drain", "member": LEAVER})
    finally:
        # the import must not wait for incidents that never come
        await pace.release()


async def _move(control: BatonClient) -> None:
    # on a slow machine the import may start before the members have shared out the streams
    await _until_even(control)
    others = [row for row in await _streams(control) if row["owner"] != STAYER]
    # the fullest one, so that there is something to see
    stream = max(others, key=lambda row: row["open_sessions"] or 0)["stream"]
    report.step(f"a quarter of the log is in Kafka: moving stream {stream} to {STAYER}, live")
    await _operate(control, {"kind": "move", "stream": stream, "to": STAYER})


async def _kill(control: BatonClient, stack: LocalStack) -> None:
    """Kills a consumer, whose streams replay elsewhere, and waits until it has its share again."""
    killed = await _since(control, VICTIM)
    lost = [row for row in await _streams(control) if row["owner"] == VICTIM]
    report.step(f"half of the log is in Kafka: killing {VICTIM} with SIGKILL")
    before, at_ms = await _newest_event(control), time.time_ns() // 1_000_000
    await stack.kill_consumer(int(VICTIM.partition("-")[2]))
    arrivals = await _arrivals(control, before, {row["stream"] for row in lost}, PATIENCE_S)
    # the first of each stream: later ones may give it back already
    first = {row["stream"]: row for row in reversed(arrivals)}
    sessions = sum(row["open_sessions"] or 0 for row in lost)
    echo(f"  {report.taken_over_text(sessions, list(first.values()), at_ms)}")
    await _until_even(control, killed)
    report.step(f"{VICTIM} is back, and has its share of the streams")
    share = {row["stream"] for row in await _streams(control) if row["owner"] == VICTIM}
    await _print_moved(control, before, share)


async def _operate(control: BatonClient, request: Mapping[str, Any]) -> None:
    # what comes after this event belongs to the operation
    before = await _newest_event(control)
    started = await control.operate({**request, "group": DEFAULT_GROUP})
    ended = await wait_until_ended(control, f"/operations/{started['id']}")
    if ended["state"] != "done":
        raise BatonError(f"the operation {request['kind']} failed: {ended['why']}")
    # the plan may exchange a stream for the one that was asked for, and then both move
    await _print_moved(control, before, {move["stream"] for move in ended["moves"]}, request.get("stream"))


async def _print_moved(
    control: BatonClient, before: int, streams: Collection[int], asked: int | None = None
) -> None:
    """Prints how the streams have moved since the event `before`. The stream `asked` gets its own line."""
    last = {row["stream"]: row for row in await _arrivals(control, before, streams)}
    how = ""
    if asked is not None:
        echo(f"  {report.asked_text(asked, last.pop(asked, None))}")
        how = "in exchange: "
    if last or asked is None:
        echo(f"  {how}{report.moved_text(list(last.values()))}")


async def _until_even(control: BatonClient, killed: int | None = None) -> None:
    """Returns when all streams run, shared evenly among all consumers. Raises Unavailable.

    `killed`: since when the victim had been a member when it was killed; its next process is waited for.
    """
    deadline = time.monotonic() + PATIENCE_S
    while True:
        is_back = await _since(control, VICTIM) not in (None, killed)
        rows = await _streams(control)
        shares = Counter(row["owner"] for row in rows if row["state"] == "running")
        is_shared = shares.total() == len(rows) and shares.keys() == {STAYER, VICTIM, LEAVER}
        if is_back and is_shared and max(shares.values()) - min(shares.values()) <= 1:
            return
        if time.monotonic() > deadline:
            raise Unavailable(f"after {PATIENCE_S:g} s the streams are not shared evenly: {dict(shares)}")
        await asyncio.sleep(POLL_S)


async def _streams(control: BatonClient) -> list[dict[str, Any]]:
    answer = await control.pages("/streams", "streams", "stream", {"group": DEFAULT_GROUP})
    rows: list[dict[str, Any]] = answer["streams"]
    return rows


async def _since(control: BatonClient, member: str) -> int | None:
    """When the member joined (ms UTC); None if it is not there."""
    answer = await control.get("/members", {"group": DEFAULT_GROUP})
    return next((one["since"] for one in answer["members"] if one["id"] == member), None)


async def _arrivals(
    control: BatonClient, before: int, streams: Collection[int], within_s: float = EVENT_DELAY_S
) -> list[dict[str, Any]]:
    """How the streams came to their owners after the event `before`, oldest first.

    Each is the event of a handover, or of a claim without one. Some are missing if they do not come in time.
    """
    # control reads the events from Kafka, a moment after they have happened
    deadline = time.monotonic() + within_s
    while True:
        found: dict[tuple[int, int], dict[str, Any]] = {}
        for row in await _events_after(control, before):
            # the handover's event follows that of its claim
            if row["kind"] in ("claim", "handover") and row["stream"] in streams:
                found[row["stream"], row["epoch"]] = row
        # a claim that is warm was a handover, whose event follows
        known = {row["stream"] for row in found.values() if row["kind"] == "handover" or not row.get("warm")}
        if known >= set(streams) or time.monotonic() > deadline:
            return list(found.values())
        await asyncio.sleep(POLL_S)


async def _newest_event(control: BatonClient) -> int:
    events = await _events_after(control, -1)
    return int(events[-1]["id"]) if events else -1


async def _events_after(control: BatonClient, event_id: int) -> list[dict[str, Any]]:
    answer = await control.get("/events", {"group": DEFAULT_GROUP, "after": event_id, "limit": 1000})
    rows: list[dict[str, Any]] = answer["events"]
    return rows
