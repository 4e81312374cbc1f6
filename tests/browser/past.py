"""An hour of numbers and five hours of movements, for the topics `baton.history` and `baton.events`.

The console's tests begin on a stack that is seconds old. What is written here, in the formats of the real
writers and before these start, lets the charts show what they are for.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence

from services.control.core.history.group_history import GroupSample, Sample, encode_sample
from services.control.core.history.hour import SLOTS, STEP_MS, slot_of
from shared.kafka.admin.topics import ensure_topics, events_topic, history_topic
from shared.kafka.connect.cluster import Cluster
from shared.kafka.send.sender import Sender
from shared.model.events import Event, encode_event
from shared.model.names import DEFAULT_GROUP, Names

MINUTE_MS = 60_000
SEED = 7
OPEN = 18
"""Open sessions of a stream, about."""
RATE = 2.5
"""Fragments per second of a stream, about."""


def samples(streams: int, now_ms: int) -> Iterator[Sample]:
    """An hour of a group that keeps up; ten minutes ago one stream fell behind for a while."""
    chance = random.Random(SEED)
    first = slot_of(now_ms) - SLOTS * STEP_MS
    for slot in range(SLOTS):
        share = slot / SLOTS
        rate = [
            round(RATE * (1 + 0.2 * math.sin(stream + 9 * share)) + chance.uniform(-0.4, 0.4), 1)
            for stream in range(streams)
        ]
        held = [OPEN + stream % 5 + round(3 * math.sin(stream + 6 * share)) for stream in range(streams)]
        lag = [chance.randrange(9) for _ in range(streams)]
        lag[3] += round(max(0.0, 400 * (1 - abs(share - 0.83) / 0.1)))
        yield Sample(
            at=first + slot * STEP_MS,
            group=DEFAULT_GROUP,
            writer="control-before",
            totals=GroupSample(
                fragments_per_s=round(sum(rate), 1),
                sessions_per_s=round(sum(rate) / 4 + chance.uniform(-0.4, 0.4), 1),
                open_sessions=sum(held),
                lag=sum(lag),
                lag_ms=round(1000 * max(lag) / RATE),
                unowned=streams // 3 if slot in (100, 101) else 0,
                refused_per_s={
                    "time": round(chance.uniform(0.1, 0.4) if share < 0.7 else chance.uniform(1.5, 2.2), 1)
                },
                lake_behind_s=(slot * STEP_MS / 1000) % 900,
            ),
            lag=lag,
            rate=rate,
            open_sessions=held,
        )


def movements(streams: int, now_ms: int) -> Iterator[Event]:
    """Five hours: single moves, a member that restarts, one that is killed, and one that joins again.

    Without epochs, so that none stands for a claim that the test's own members make.
    """
    chance = random.Random(SEED)

    def handover(minutes: float, stream: int, source: str, target: str, why: str) -> Event:
        pause_ms = round(chance.lognormvariate(3.8, 0.5), 1)
        return Event(
            at=now_ms - int(minutes * MINUTE_MS),
            group=DEFAULT_GROUP,
            kind="handover",
            member=source,
            stream=stream % streams,
            source=source,
            target=target,
            why=why,
            sessions=chance.randrange(15, 30),
            bytes=chance.randrange(3_000, 9_000),
            copy_ms=round(chance.uniform(20, 90), 1),
            pause_ms=pause_ms,
            warm=True,
        )

    for n in range(6):
        target = f"consumer-{n % 3}"
        yield handover(300 - 11 * n, n * 5, f"consumer-{(n + 1) % 3}", target, f"pinned to {target}")
    for n in range(9):
        yield handover(180 - n / 60, n, "consumer-0", f"consumer-{1 + n % 2}", "consumer-0 is draining")
    for n in range(9):
        yield handover(
            178 - n / 60, n, f"consumer-{1 + n % 2}", "consumer-0", "the share of consumer-0 is 4 of 12"
        )
    for n in range(streams // 3):
        yield Event(
            at=now_ms - 35 * MINUTE_MS + 40 * n,
            group=DEFAULT_GROUP,
            kind="takeover",
            member=f"consumer-{n % 2}",
            target=f"consumer-{n % 2}",
            stream=3 * n + 2,
            source="consumer-2",
            why="consumer-2 is gone",
            sessions=40 + n,
            bytes=21_000 + 900 * n,
            pause_ms=1_150.0 + 55 * n,
            warm=False,
        )
    for n in range(streams // 3):
        yield handover(33 - n / 60, 3 * n + 2, f"consumer-{n % 2}", "consumer-2", "consumer-2 has joined")


async def write(kafka: str, names: Names, streams: int, now_ms: int) -> None:
    """Creates both topics and fills them. Raises KafkaUnavailable."""
    await ensure_topics(kafka, [events_topic(names), history_topic(names)], 1)
    topics: dict[str, Sequence[bytes]] = {
        names.history: [encode_sample(sample) for sample in samples(streams, now_ms)],
        names.events: [encode_event(event) for event in movements(streams, now_ms)],
    }
    async with Cluster(kafka) as cluster:
        sender = Sender(cluster, deliver_s=30.0, max_batch_bytes=512 * 1024, compression="zstd")
        try:
            for topic, values in topics.items():
                await sender.send((topic, 0), [(None, value, []) for value in values])
        finally:
            await sender.close()
