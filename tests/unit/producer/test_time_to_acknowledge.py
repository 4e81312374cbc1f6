"""How long a request waits for Kafka at most (docs/operations.md). Issue F makes this pass."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from services.producer.core.ingest import Portion
from services.producer.kafka import sink as sink_module
from services.producer.kafka.sink import KafkaFragmentSink
from shared.errors import KafkaUnavailable
from tests.fakes.virtual_time import until, virtual_time

ACK_TIMEOUT_S = 1.0
ANSWERS_AFTER_S = 0.9
"""Each batch alone is in time, so the sink never replaces its client."""
REQUESTS = 9


class FullBatch:
    """A batch that one record fills, as a request of BATON_MAX_BATCH_BYTES does."""

    value = b""

    def append(self, *, timestamp: int | None, key: bytes | None, value: bytes | None) -> Any:
        if self.value:
            return None
        self.value = value or b""
        return timestamp

    def record_count(self) -> int:
        return int(bool(self.value))


class SlowBroker:
    """A broker that acknowledges every batch after ANSWERS_AFTER_S; `sent` has the records that it got."""

    def __init__(self) -> None:
        self.sent: list[bytes] = []

    async def connect(self, *_: Any, **__: Any) -> Any:
        """A connected client."""
        return SimpleNamespace(create_batch=FullBatch)

    async def send_batch(self, _: Any, batch: FullBatch, __: Any) -> tuple[asyncio.Future[Any], None]:
        """Does what the sink's function of this name does."""
        self.sent.append(batch.value)
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Any] = loop.create_future()
        loop.call_later(ANSWERS_AFTER_S, answer.set_result, SimpleNamespace(offset=len(self.sent)))
        return answer, None

    async def discard(self, _: Any) -> None:
        """Nothing is left to close."""


@pytest.mark.xfail(strict=True, raises=AssertionError, reason="a batch ages only while it is in flight")
@virtual_time
async def test_a_request_behind_others_is_answered_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """BATON_ACK_TIMEOUT_S counts from the creation of its batch; then, what has not flown is dropped."""
    loop, broker = asyncio.get_running_loop(), SlowBroker()
    monkeypatch.setattr(sink_module, "time", SimpleNamespace(monotonic=loop.time, time_ns=lambda: 0))
    monkeypatch.setattr(sink_module, "connected_producer", broker.connect)
    monkeypatch.setattr(sink_module, "send_batch", broker.send_batch)
    monkeypatch.setattr(sink_module, "discard_producer", broker.discard)
    monkeypatch.setattr(sink_module, "leader_of", lambda *_: 1)
    sink = KafkaFragmentSink("kafka", ack_timeout_s=ACK_TIMEOUT_S)
    running = asyncio.create_task(sink.run())
    sink.set_topics(["fragments.0000"])
    await until(lambda: not sink.complaint())

    async def request(number: int) -> tuple[float, bool]:
        began_s = loop.time()
        try:
            await sink.send({0: Portion([0], [b"k"], [b"%d" % number])})
        except KafkaUnavailable:
            return loop.time() - began_s, False
        return loop.time() - began_s, True

    answers = await asyncio.gather(*(request(number) for number in range(REQUESTS)))
    await asyncio.sleep(10 * REQUESTS)
    running.cancel()

    assert answers[0][1]
    assert max(took_s for took_s, _ in answers) < 1.3 * ACK_TIMEOUT_S
    assert broker.sent == [b"0", b"1"]
