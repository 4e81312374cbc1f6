"""An hour of a queue's numbers for the topic `baton.history`, in the format of the real writer.

The console's tests begin on a stack that is seconds old; with it, the charts of a queue show something.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator

from services.control.core.history.hour import SLOTS, STEP_MS, slot_of
from services.control.core.history.queue_history import QueueNumbers, QueuesSample, encode_queues_sample
from shared.kafka.admin.topics import ensure_topics, history_topic
from shared.kafka.connect.cluster import Cluster
from shared.kafka.send.sender import Sender
from shared.model.names import Names

SEED = 11


def samples(queue: str, now_ms: int) -> Iterator[QueuesSample]:
    """A queue that keeps up, but for a quarter of an hour in which nobody worked on it."""
    chance = random.Random(SEED)
    first, backlog = slot_of(now_ms) - SLOTS * STEP_MS, 0.0
    for slot in range(SLOTS):
        is_idle = 120 <= slot < 180
        backlog = max(0.0, backlog + (1.0 if is_idle else -4.0))
        ready = 8 + round(backlog + 3 * math.sin(slot / 9) + chance.uniform(-2, 2))
        leased = 0 if is_idle else chance.randrange(1, 5)
        dead = sum(slot >= at for at in (95, 190, 215))
        age_s = 2.0 + (slot - 120) * STEP_MS / 1000 if is_idle else chance.uniform(1, 4)
        yield QueuesSample(
            at=first + slot * STEP_MS,
            writer="control-before",
            queues={queue: QueueNumbers(ready, leased, 0, dead, round(age_s, 1))},
        )


async def write(kafka: str, names: Names, queue: str, now_ms: int) -> None:
    """Creates the topic and fills it. Raises KafkaUnavailable."""
    await ensure_topics(kafka, [history_topic(names)], 1)
    async with Cluster(kafka) as cluster:
        sender = Sender(cluster, deliver_s=30.0, max_batch_bytes=512 * 1024, compression="zstd")
        try:
            values = [encode_queues_sample(sample) for sample in samples(queue, now_ms)]
            await sender.send((names.history, 0), [(None, value, []) for value in values])
        finally:
            await sender.close()
