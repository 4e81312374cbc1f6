"""What a change of owner costs a stream under a steady load, on real servers.

Measures the pause of a planned handover with 2 and 20 MB of open sessions, in turns with the plain way (stop,
release, claim, replay) in the same processes; then a drain, a join and a failover of many streams. A pause
lasts from the donor's last record (or its later stop) to the recipient's first new one, as the members folded
them.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import random
import statistics

from bench import failover
from bench.failover import is_caught_up
from bench.group import DEADLINE_S, Group, Rows, now_ms
from bench.report import Row
from bench.trace import Line, pauses_ms
from services.consumer.core.ownership.dampers import OwnershipSettings

WARM_UP, MOVES = 5, 30
"""Uncounted moves of each kind, while the broker and the members warm up, and counted ones."""
SIZES = {0: 2_000_000, 1: 20_000_000}
"""Stream → bytes of its open sessions."""
MOVE_RATE = 1_000.0
"""Fragments of 1 KB per second over all streams, while single streams move."""
STREAMS, RATE = 24, 5_000.0
OPEN_BYTES = 1_500_000
"""Per stream: a replay then has 3,300 fragments, plus those since the last commit."""
MOVE_AT_WILL = {"BATON_REST_S": "0", "BATON_STEADY_S": "0"}


def run(kafka: str, zookeeper: str) -> list[Row]:
    """All figures of handovers; takes about 3 minutes."""
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)  # it logs errors while topics are created
    return [*asyncio.run(moves(kafka, zookeeper)), *asyncio.run(members(kafka, zookeeper))]


def _row(name: str, unit: str, values: list[float], target: str = "") -> Row:
    return Row(name=name, unit=unit, baton=values, baseline=[], target=target)


async def moves(kafka: str, zookeeper: str) -> list[Row]:
    """The pauses of single moves of each size, live and plain in turns."""
    async with Group(kafka, zookeeper, "bench-moves", len(SIZES), MOVE_AT_WILL) as group:
        for name in "ab":
            group.start(name)
        pins = dict.fromkeys(SIZES, "a")
        await group.pin(pins)
        group.start_load(MOVE_RATE, list(SIZES.values()))
        await _until_full(group)
        rows: list[Row] = []
        for stream, size in SIZES.items():
            live: list[float] = []
            plain: list[float] = []
            since = 0
            for turn in range(-WARM_UP, MOVES):
                if turn == 0:
                    live, plain, since = [], [], len(group.events)
                for pauses, plainly in ((live, False), (plain, True)):
                    group.move_plainly(plainly)
                    pins[stream] = "b" if pins[stream] == "a" else "a"
                    pauses.append(await _move(group, stream, pins))
            rows += _rows_of_moves(group, stream, f"{size // 1_000_000} MB", live, plain, since)
        return rows


async def _until_full(group: Group) -> None:
    """Waits until the load has filled the streams and the members have read everything."""

    def is_full(rows: Rows) -> bool:
        return all(
            row["state_bytes"] > 0.7 * SIZES[row["stream"]] and row["end"] - row["position"] < 500
            for row in itertools.chain(*rows.values())
        )

    await group.until(is_full)
    await asyncio.sleep(2)  # lets the last clients settle; a measurement, not a synchronisation


async def _move(group: Group, stream: int, pins: dict[int, str]) -> float:
    """Moves the stream to its pinned member and returns the pause."""
    since_ms = now_ms()
    await group.pin(pins)
    async with asyncio.timeout(DEADLINE_S):
        while not (found := pauses_ms(group.trace(), stream, since_ms)):
            await asyncio.sleep(0.02)
    await asyncio.sleep(random.uniform(0.1, 0.9))  # avoid running in step with the commits
    return found[-1]


def _rows_of_moves(
    group: Group, stream: int, size: str, live: list[float], plain: list[float], since: int
) -> list[Row]:
    events = [event for event in group.events[since:] if event.kind == "handover" and event.stream == stream]
    events = events[-len(live) :]  # the event of the last warm-up move may have come late
    warm = sum(event.warm is True for event in events)
    held = statistics.median(event.bytes or 0 for event in events) / 1e6
    return [
        Row(
            name=f"pause of a handover, {size} open ({held:.1f} MB, {warm} of {len(live)} warm)",
            unit="ms",
            baton=live,
            baseline=plain,
            target="median ≤ 45",
        ),
        _row(f"the same, 99th percentile of {len(live)}", "ms", [_p99(live)], "≤ 100"),
        _row("the same, from baton.events", "ms", [event.pause_ms or 0.0 for event in events]),
        _row("first copy, while the donor runs", "ms", [event.copy_ms or 0.0 for event in events]),
    ]


def _p99(values: list[float]) -> float:
    """The 99th percentile; with fewer than a hundred values the largest."""
    return sorted(values)[max(0, -(-len(values) * 99 // 100) - 1)]


async def members(kafka: str, zookeeper: str) -> list[Row]:
    """A drain, a join and a failover, with 24 streams under load and default settings."""
    async with Group(kafka, zookeeper, "bench-group", STREAMS, {}) as group:
        for name in "abc":
            group.start(name)
        await group.pin(dict.fromkeys(range(STREAMS), "a"))
        group.start_load(RATE, OPEN_BYTES)
        await group.until(lambda rows: len(rows["a"]) == STREAMS and is_caught_up(rows))
        await asyncio.sleep(2)  # lets the last clients settle
        rows = await _drain(group)
        rows += await _join(group)
        seconds = (await failover.fail_over(group, "c")).since_kill_s
        return [
            *rows,
            _row(f"SIGKILL with {len(seconds)} streams, at {RATE:,.0f} fragments/s", "s", seconds),
        ]


def _all_pauses(lines: list[Line], since_ms: float) -> list[float]:
    return [pause for stream in range(STREAMS) for pause in pauses_ms(lines, stream, since_ms)]


async def _drain(group: Group) -> list[Row]:
    began_ms, since = now_ms(), len(group.events)
    await group.stop("a")
    gone_ms = now_ms()
    await group.until(lambda rows: True)
    await asyncio.sleep(1)  # so that a pause at the end shows up
    lines = group.trace()
    events = [event for event in group.events[since:] if event.kind == "handover"]
    warm = sum(event.warm is True for event in events)
    pauses = _all_pauses(lines, began_ms)
    last_ms = max(line.at_ms for line in lines if line.what == "stop")
    return [
        _row(f"drain, {STREAMS} streams: until all are stopped", "s", [(last_ms - began_ms) / 1000]),
        _row("the same, from SIGTERM until the process is gone", "s", [(gone_ms - began_ms) / 1000]),
        _row(f"the same, pause of a stream ({warm} of {len(pauses)} warm)", "ms", pauses),
    ]


async def _join(group: Group) -> list[Row]:
    """A fourth member joins, after the first has returned and the group is balanced."""
    await group.pin({})
    group.start("a")
    await group.until_balanced()
    await asyncio.sleep(OwnershipSettings().rest_ms / 1000)  # streams that have just come rest for a while
    began_ms, since = now_ms(), len(group.events)
    group.start("d")
    joined = await group.until_event(lambda event: event.kind == "join" and event.member == "d", since)
    balanced_ms = await group.until_balanced()
    await asyncio.sleep(1)
    pauses = _all_pauses(group.trace(), began_ms)
    return [
        _row("join of a fourth member: until balanced", "s", [(balanced_ms - joined.at) / 1000]),
        _row(f"the same, pause of a stream ({len(pauses)} moved)", "ms", pauses),
    ]
