"""Loading a checkpoint ends: a broker that is slow is waited for, one that makes no progress is not."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

import pytest
from aiokafka import TopicPartition
from aiokafka.client import AIOKafkaClient

from services.consumer.adapters.kafka import checkpoints as kafka_checkpoints
from services.consumer.adapters.kafka.clients import START_TIMEOUT_S, SharedClients
from services.consumer.adapters.kafka.sink import KafkaSessionSink
from services.consumer.core.commits.checkpoint import Checkpoint
from services.consumer.core.commits.checkpoint_format import CheckpointRecord, CoveredWire, encode_record
from shared.errors import KafkaUnavailable
from shared.model.group import GroupSettings
from shared.model.head import Head
from shared.model.names import Names
from tests.fakes.virtual_time import in_virtual_time

HEAD = Head(epoch=1, seq=1, position=9, safe_offset=0, checkpoint_from=2, newest=5)
RECORDS = [
    encode_record(
        CheckpointRecord(head=HEAD, begins=n == 2, ends=n == 2, covered=[CoveredWire(f"k{n}", n, 0)])
    )
    for n in range(8)
]


@dataclass(frozen=True)
class Found:
    """A record as a consumer returns it."""

    offset: int
    value: bytes


class SlowConsumer:
    """A consumer in memory that needs `RECORD_S` for each record, and never gets past `stuck_at`."""

    RECORD_S = START_TIMEOUT_S - 1
    stuck_at = 10**9
    running = 0

    def __init__(self, bootstrap_servers: str, **_: object) -> None:
        self._client = AIOKafkaClient(bootstrap_servers=bootstrap_servers)
        self._offset = 0

    async def start(self) -> None:
        type(self).running += 1

    def assign(self, partitions: list[TopicPartition]) -> None:
        (self._partition,) = partitions

    def seek(self, partition: TopicPartition, offset: int) -> None:
        self._offset, self._next_s = offset, asyncio.get_running_loop().time() + self.RECORD_S

    async def getmany(self, timeout_ms: int) -> dict[TopicPartition, list[Found]]:
        await asyncio.sleep(timeout_ms / 1000)
        if self._offset == self.stuck_at or asyncio.get_running_loop().time() < self._next_s:
            return {}
        self._next_s += self.RECORD_S
        self._offset += 1
        return {self._partition: [Found(self._offset - 1, RECORDS[self._offset - 1])]}

    async def position(self, partition: TopicPartition) -> int:
        return self._offset

    async def stop(self) -> None:
        type(self).running -= 1


class StuckConsumer(SlowConsumer):
    """Keeps answering that there is nothing more, although the head points to more."""

    stuck_at = 4


def load_by(consumer: type[SlowConsumer], monkeypatch: pytest.MonkeyPatch) -> tuple[Any, float]:
    """The result or error of loading the checkpoint, and how long it took."""
    monkeypatch.setattr(kafka_checkpoints, "AIOKafkaConsumer", consumer)

    async def load() -> tuple[Any, float]:
        sink = KafkaSessionSink(SharedClients("nowhere:1", Names(), "default"), 0, GroupSettings(), 1)
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(100 * START_TIMEOUT_S):
                return await sink.load(HEAD), loop.time()
        except KafkaUnavailable as error:
            return error, loop.time()
        finally:
            await sink.close()

    return in_virtual_time(load)


def test_a_slow_checkpoint_is_loaded_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """While records arrive, loading may take any time."""
    found, seconds = load_by(SlowConsumer, monkeypatch)

    assert isinstance(found, Checkpoint)
    assert list(found.covered) == ["k2", "k3", "k4", "k5"]
    assert seconds > 3 * START_TIMEOUT_S


def test_loading_a_checkpoint_without_progress_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """If a record that the head points to never arrives, the worker starts again instead of hanging."""
    found, seconds = load_by(StuckConsumer, monkeypatch)

    assert isinstance(found, KafkaUnavailable)
    assert "no checkpoint record 4 to be had, of 5" in found.detail
    assert seconds < 4 * START_TIMEOUT_S
    assert StuckConsumer.running == 0
