"""A sink sends a large commit a few records at a time, so that other tasks run in between."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator
from typing import Any

import pytest
from aiokafka import TopicPartition

from services.consumer.adapters.kafka.clients import SharedClients
from services.consumer.adapters.kafka.sink import SENT_AT_ONCE, KafkaSessionSink
from shared.model.group import GroupSettings
from shared.model.names import Names

TO = TopicPartition("sessions", 0)


class InstantProducer:
    """Accepts every record without waiting, as aiokafka's does until a batch is full."""

    def __init__(self, fails_at: int = -1) -> None:
        self.sent = 0
        self.fails_at = fails_at

    async def send(self, topic: str, **record: Any) -> asyncio.Future[int]:
        answer: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        if self.sent == self.fails_at:
            answer.set_exception(OSError("gone"))
        else:
            answer.set_result(self.sent)
        self.sent += 1
        return answer


def records(count: int, encoded: list[int]) -> Iterator[tuple[bytes, bytes]]:
    """Records that note when they are encoded."""
    for number in range(count):
        encoded.append(number)
        yield b"k", b"v"


async def send_all(producer: Any, count: int, encoded: list[int]) -> list[int]:
    return await KafkaSessionSink._send_all(producer, TO, records(count, encoded))


async def test_other_tasks_run_while_a_large_commit_is_encoded_and_sent() -> None:
    """No turn of the loop encodes or sends more than a slice, and the results keep their order."""
    producer, encoded = InstantProducer(), list[int]()
    sending = asyncio.ensure_future(send_all(producer, 5 * SENT_AT_ONCE + 1, encoded))
    steps = [0]
    while not sending.done():
        await asyncio.sleep(0)
        steps.append(len(encoded))

    slices = [after - before for before, after in itertools.pairwise(steps)]
    assert max(slices) == SENT_AT_ONCE
    assert await sending == list(range(5 * SENT_AT_ONCE + 1))


async def test_a_record_that_cannot_be_written_fails_the_whole_call() -> None:
    """The others' outcomes are looked at as well, so that asyncio reports none of them as forgotten."""
    with pytest.raises(OSError, match="gone"):
        await send_all(InstantProducer(fails_at=3), 10, [])


class SilentProducer:
    """Takes records and never reports an outcome."""

    async def send(self, topic: str, **record: Any) -> asyncio.Future[int]:
        return asyncio.get_running_loop().create_future()


@pytest.mark.xfail(
    strict=True, raises=AssertionError, reason="a cancelled send drops the producer that all streams share"
)
async def test_a_cancelled_send_leaves_the_shared_producer_to_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Under `at_most_once` the heads are committed first, so what the others send by it would be lost."""
    shared, dropped = SharedClients("127.0.0.1:1", Names(), "default"), list[Any]()

    async def plain_producer() -> Any:
        return SilentProducer()

    async def drop(producer: Any) -> None:
        dropped.append(producer)

    monkeypatch.setattr(shared, "plain_producer", plain_producer)
    monkeypatch.setattr(shared, "drop", drop)
    sink = KafkaSessionSink(shared, 0, GroupSettings(delivery="at_most_once"), 1)
    sending = asyncio.ensure_future(sink._deliver_apart([(b"k", b"v")]))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    sending.cancel()
    with pytest.raises(asyncio.CancelledError):
        await sending

    await sink.close()
    assert dropped == []
