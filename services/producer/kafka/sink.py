"""Fragments into Kafka: acknowledged by all replicas, bounded in time, by one producer at a time.

aiokafka's producer has no bound of its own when the broker is mute, and keeps everything that was given to
it. So records wait in a Backlog of ours, a watchdog looks at the oldest batch on its way, and when Kafka took
too long, the producer is thrown away with all that it holds, everybody is told, and a new one is made. Where
it was one stream's fault, that stream is refused for a while (core/circuit_breaker.py). The producer is
idempotent: its own retries double nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any

from aiokafka import AIOKafkaProducer, TopicPartition
from aiokafka.errors import (
    InvalidTimestampError,
    InvalidTopicError,
    MessageSizeTooLargeError,
    PolicyViolationError,
    RecordListTooLargeError,
    TopicAuthorizationFailedError,
)

from services.producer.core.circuit_breaker import CircuitBreaker
from services.producer.core.ingest import Portion
from services.producer.kafka.batches import PATIENCE_S, Backlog, Batch, Delivery
from services.producer.kafka.connection import connected_producer, has_topic, leader_of, look_again
from services.producer.kafka.produce import send_batch, take_back
from shared.backoff import Backoff
from shared.errors import KafkaUnavailable
from shared.kafka.clients import KAFKA_FAILURES, discard_producer

PROBE_S = 2.0
"""How long nothing may have been acknowledged before Kafka is asked whether it is there."""
PROBE_TIMEOUT_S = 2.0
REFUSALS = (
    InvalidTimestampError,
    InvalidTopicError,
    MessageSizeTooLargeError,
    PolicyViolationError,
    RecordListTooLargeError,
    TopicAuthorizationFailedError,
)
"""What a broker says of one topic: nothing of this attempt was written."""
_Future = asyncio.Future[Any]
logger = logging.getLogger(__name__)


class KafkaFragmentSink:
    """The FragmentSink on Kafka; `run()` must be running for anything to be sent.

    `topics[n]` is stream n's topic; `set_topics` may add streams while it runs.
    """

    def __init__(
        self,
        kafka: str,
        *,
        ack_timeout_s: float = 10.0,
        max_batch_bytes: int = 512 * 1024,
        compression: str = "none",
        on_replaced: Callable[[], None] = lambda: None,
    ) -> None:
        self._kafka = kafka
        self._ack_timeout_s = ack_timeout_s
        self._max_batch_bytes = max_batch_bytes
        self._compression = None if compression == "none" else compression
        self._on_replaced = on_replaced
        self._topics: Sequence[str] = ()
        self._backlog: Backlog | None = None
        self._why_not = "not connected to Kafka yet"
        self._silence = ""
        self._heard_s = 0.0
        self._ailing = CircuitBreaker(try_s=ack_timeout_s)
        self._wake = asyncio.Event()
        self._broken: asyncio.Future[str] | None = None
        self._backoff = Backoff(first_s=0.1, cap_s=0.5)

    def __repr__(self) -> str:
        return f"<KafkaFragmentSink to {self._kafka}: {self.complaint() or self._backlog}>"

    def complaint(self) -> str:
        """Why nothing can be sent just now; empty when all is well. True within 5 s, without traffic too."""
        return self._silence if self._backlog is not None else self._why_not

    def remarks(self) -> list[str]:
        """What ails single streams, while others are taken."""
        return self._ailing.told()

    def set_topics(self, topics: Sequence[str]) -> None:
        """The topics of all streams, as the stream table has them."""
        self._topics = topics
        self._wake.set()

    def send(self, portions: Mapping[int, Portion]) -> Awaitable[list[int]]:
        """See FragmentSink."""
        delivery, now_ms = Delivery(), time.time_ns() // 1_000_000
        backlog = self._open_backlog()
        refused = self._refused(portions) if self._ailing else {}
        if refused and len(refused) == len(portions):
            raise KafkaUnavailable(next(iter(refused.values())))
        for stream, portion in portions.items():
            if stream not in refused:
                backlog.add_portion(stream, portion, delivery, now_ms)
        for stream in refused:
            delivery.expect()
            delivery.lost(portions[stream].indexes)
        if self._ailing:
            self._note_sent(portions.keys() - refused.keys())
        self._wake.set()
        return self._unstored(delivery)

    async def send_to_all(self, value: bytes) -> list[int]:
        """See FragmentSink."""
        delivery, now_ms = Delivery(), time.time_ns() // 1_000_000
        backlog = self._open_backlog()
        count = len(self._topics)
        if refused := self._refused(range(count)):
            raise KafkaUnavailable(next(iter(refused.values())))
        for stream in range(count):
            backlog.add(stream, [(None, value)], [stream], delivery, now_ms)
        self._note_sent(range(count))
        self._wake.set()
        await delivery.done
        offsets = {indexes[0]: offset for indexes, offset in delivery.offsets}
        if len(offsets) < count or min(offsets.values()) < 0:
            raise KafkaUnavailable("Kafka did not acknowledge the record in every stream")
        return [offsets[stream] for stream in range(count)]

    async def run(self) -> None:
        """Keeps one producer connected, for ever; ends by cancellation, records on their way are lost."""
        while True:
            try:
                if not self._topics:
                    self._wake.clear()
                    await self._wake.wait()
                    continue
                producer = await self._connect()
            except KafkaUnavailable as error:
                self._why_not = error.detail
                await asyncio.sleep(self._backoff.next_s())
                continue
            try:
                self._why_not = await self._serve(producer)
                logger.warning("producer replaced", extra={"why": self._why_not})
                self._on_replaced()
            finally:
                backlog, self._backlog = self._backlog, None
                if backlog is not None:
                    backlog.give_up()
                    self._ailing.forget_trials(time.monotonic())
                await discard_producer(producer)
            await asyncio.sleep(self._backoff.next_s())

    def _refused(self, streams: Iterable[int]) -> dict[int, str]:
        """Those that are in trouble, and why."""
        now_s = time.monotonic()
        return {stream: why for stream in streams if (why := self._ailing.refusal(stream, now_s))}

    def _note_sent(self, streams: Iterable[int]) -> None:
        for stream in streams:
            self._ailing.sent(stream, time.monotonic())

    def _open_backlog(self) -> Backlog:
        if self._backlog is None:
            raise KafkaUnavailable(self._why_not)
        return self._backlog

    async def _unstored(self, delivery: Delivery) -> list[int]:
        await delivery.done
        if delivery.unstored and not delivery.offsets:
            raise KafkaUnavailable("Kafka did not acknowledge the fragments in time")
        return sorted(delivery.unstored)

    async def _connect(self) -> AIOKafkaProducer:
        return await connected_producer(
            self._kafka,
            self._topics,
            [topic for stream, topic in enumerate(self._topics) if not self._ailing.has(stream)],
            ack_timeout_s=self._ack_timeout_s,
            max_batch_bytes=self._max_batch_bytes,
            compression=self._compression,
        )

    async def _serve(self, producer: AIOKafkaProducer) -> str:
        """Sends what is added to a new backlog until the producer is of no use; the reason."""
        self._silence, self._heard_s = "", time.monotonic()
        self._backlog = Backlog(
            producer.create_batch, lambda stream: leader_of(producer, self._topics[stream])
        )
        self._broken = asyncio.get_running_loop().create_future()
        pump = asyncio.create_task(self._pump(producer, self._backlog), name="kafka sink: pump")
        probe = asyncio.create_task(self._probe(producer), name="kafka sink: probe")
        try:
            while not self._broken.done():
                await asyncio.wait({self._broken}, timeout=min(PATIENCE_S, self._ack_timeout_s / 10))
                now, oldest = time.monotonic(), self._backlog.oldest()
                if self._ailing:
                    look_again(producer, self._topics)
                if oldest is not None and now - oldest > self._ack_timeout_s:
                    why = f"Kafka has not acknowledged for {self._ack_timeout_s:g} s"
                    if self._heard_s > oldest:  # others are taken
                        for stream in self._backlog.sent_before(now - self._ack_timeout_s):
                            self._ail(stream, why, is_costly=True)
                    return why
                self._backlog.lose_patience(now)
                self._wake.set()
            return self._broken.result()
        finally:
            pump.cancel()
            probe.cancel()
            await asyncio.wait({pump, probe})

    async def _pump(self, producer: AIOKafkaProducer, backlog: Backlog) -> None:
        try:
            while True:
                await self._wake.wait()
                self._wake.clear()
                for batch in backlog.take(time.monotonic()):
                    if why := self._hopeless(producer, batch):
                        backlog.landed(batch)
                        batch.lost()
                        self._ail(batch.stream, why)
                        self._wake.set()
                        continue
                    # returns at once: the topic is known, and no other batch of it is under way
                    where = TopicPartition(self._topics[batch.stream], 0)
                    future, inner = await send_batch(producer, batch.builder, where)
                    future.add_done_callback(functools.partial(self._landed, producer, backlog, batch, inner))
        except KAFKA_FAILURES as error:
            self._break(f"Kafka does not take fragments: {error!r}")
        except Exception as error:
            logger.exception("pump failed")
            self._break(f"sending failed: {error!r}")

    async def _probe(self, producer: AIOKafkaProducer) -> None:
        """Asks Kafka for metadata whenever it has said nothing for a while: without traffic nobody would."""
        while True:
            await asyncio.sleep(PROBE_S)
            if time.monotonic() - self._heard_s < PROBE_S:
                continue
            answers = False
            with contextlib.suppress(*KAFKA_FAILURES):
                async with asyncio.timeout(PROBE_TIMEOUT_S):
                    answers = await producer.client.force_metadata_update()
            if not answers:
                self._silence = f"Kafka at {self._kafka} does not answer"
            elif all(leader_of(producer, topic) < 0 for topic in self._topics):
                self._silence = "no fragments topic has a leader"
            else:
                self._silence = ""

    def _landed(
        self, producer: AIOKafkaProducer, backlog: Backlog, batch: Batch, inner: Any, future: _Future
    ) -> None:
        error = None if future.cancelled() else future.exception()
        if not backlog.landed(batch):
            return
        if error is None and not future.cancelled():
            batch.stored(future.result().offset)
            self._silence, self._heard_s = "", time.monotonic()
            self._backoff.reset()
            self._ailing.heal(batch.stream)
            self._wake.set()
            return
        batch.lost()
        if isinstance(error, REFUSALS):
            self._ail(batch.stream, f"Kafka refuses what is sent: {error!r}")
            if take_back(producer, inner):
                self._wake.set()
                return
        self._break(f"Kafka refused a batch: {error!r}")

    def _ail(self, stream: int, why: str, *, is_costly: bool = False) -> None:
        logger.warning("a stream takes no fragments", extra={"stream": stream, "why": why})
        self._ailing.fail(stream, why, time.monotonic(), is_costly=is_costly)

    def _hopeless(self, producer: AIOKafkaProducer, batch: Batch) -> str:
        """Why a batch need not be sent; only one of a stream that was well may wait for a leader."""
        topic = self._topics[batch.stream]
        if leader_of(producer, topic) >= 0:
            return ""
        if not has_topic(producer, topic):
            return f"there is no topic {topic}"
        return f"{topic} has no leader" if self._ailing.has(batch.stream) else ""

    def _break(self, why: str) -> None:
        if self._broken is not None and not self._broken.done():
            self._broken.set_result(why)
