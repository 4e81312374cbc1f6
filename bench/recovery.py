"""How soon a killed owner's stream is open again, with 100,000 fragments to replay above its safe offset.

Measures the real stream worker on real Kafka, from the claim to the end of the replay: on a new stream; on
one that a million sessions have passed through before, which must not cost anything now; and with parking,
which keeps replays short by default.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace

from aiokafka import AIOKafkaProducer

from bench.report import Row
from services.consumer.adapters.kafka.log import KafkaStreamLog
from services.consumer.core.commits.turn import StreamLimits
from services.consumer.stream.context import Claimed, GroupContext
from services.consumer.stream.worker import StreamWorker
from shared.kafka.admin.topics import checkpoints_topic, ensure_topics, fragments_topics, sessions_topic
from shared.model.group import GroupSettings
from shared.model.names import Names

REPLAY = 100_000
PASSED = 1_000_000
SIZE = 200
OWNERS = 3
NAMES = Names("bench-recovery")
NO_PARKING = StreamLimits(max_replay_fragments=10_000_000, max_replay_bytes=10_000_000_000)


async def _append(kafka: str, stream: int, keys: int, fragments: int, *, end: bool) -> None:
    """Appends fragments of `keys` keys in turns; with `end` each is a session of its own."""
    pad = "x" * SIZE
    async with AIOKafkaProducer(
        bootstrap_servers=kafka, max_batch_size=500_000, request_timeout_ms=120_000
    ) as producer:
        for number in range(fragments):
            key = f"k{number % keys}"
            value = f'{{"key":"{key}","end":{str(end).lower()},"data":"{"" if end else pad}"}}'.encode()
            await producer.send(NAMES.fragments(stream), value, key=key.encode(), partition=0)


async def _run_until(
    context: GroupContext, stream: int, epoch: int, position: int, limits: StreamLimits
) -> StreamWorker:
    """Runs an owner up to `position`; it commits and stops."""
    worker = _worker(replace(context, limits=limits), stream, epoch)
    working = asyncio.create_task(worker.run())
    async with asyncio.timeout(300):
        while worker.position < position:
            await asyncio.sleep(0.05)
    worker.stop()
    await working
    return worker


def _worker(context: GroupContext, stream: int, epoch: int) -> StreamWorker:
    async def is_mine() -> bool:
        return True

    claimed = Claimed(is_mine=is_mine, lease_alive=lambda: True, commit_s=1.0)
    return StreamWorker(stream, epoch, context, claimed)


async def _open_again_s(context: GroupContext, stream: int, epoch: int) -> tuple[float, int]:
    """Seconds from the claim to the end of the replay, and the number of replayed offsets."""
    began_s = time.perf_counter()
    worker = _worker(context, stream, epoch)
    working = asyncio.create_task(worker.run())
    async with asyncio.timeout(300):
        while worker.state != "running":
            await asyncio.sleep(0.002)
    seconds = time.perf_counter() - began_s
    assert worker.core is not None
    replayed = worker.core.head.position - worker.core.head.safe_offset
    working.cancel()
    await asyncio.wait([working])
    return seconds, replayed


async def _measure(kafka: str) -> list[Row]:
    await ensure_topics(
        kafka,
        [
            *fragments_topics(NAMES, 3, 604_800_000),
            sessions_topic(NAMES, "default", 1, -1),
            checkpoints_topic(NAMES, "default", 3),
        ],
        1,
    )
    settings = GroupSettings(max_session_fragments=1_000_000)
    log = KafkaStreamLog(kafka, NAMES, "default", settings, 1)
    context = GroupContext(
        group="default",
        settings=settings,
        limits=NO_PARKING,
        log=log,
        now_s=time.monotonic,
        wall_ms=lambda: time.time_ns() // 1_000_000,
    )
    rows = []
    for stream, passed, limits, name in (
        (0, 0, NO_PARKING, f"{REPLAY:,} fragments to replay"),
        (1, PASSED, NO_PARKING, f"the same after {PASSED:,} sessions"),
        (2, 0, StreamLimits(), "the same stream with parking as by default"),
    ):
        if passed:
            await _append(kafka, stream, 50_000, passed, end=True)
        await _append(kafka, stream, 2_000, REPLAY, end=False)
        await _run_until(context, stream, 1, passed + REPLAY, limits)
        found = [await _open_again_s(context, stream, 2 + owner) for owner in range(OWNERS)]
        label = f"open again: {name} (replayed {found[0][1]:,})"
        target = "< 3" if limits is NO_PARKING else ""
        rows.append(Row(name=label, unit="s", baton=[s for s, _ in found], baseline=[], target=target))
    await log.close()
    return rows


def run(kafka: str) -> list[Row]:
    """All figures of recovery."""
    return asyncio.run(_measure(kafka))
