"""Writes fragments to Kafka: acknowledged by all replicas, within a time limit, through one client at a time.

aiokafka's producer never gives up on a silent broker and keeps every record it was given. So records wait in
our own Backlog, and a watchdog looks at the oldest batch in flight. When Kafka takes too long, we discard the
client with everything it holds, fail the waiting requests, and connect a new client. If one stream is to
blame, its circuit opens (core/circuit_breaker.py) and the other streams continue. The client is idempotent,
so its own retries write nothing twice. Used by `__main__.py`; the only caller of `send` is `http/door.py`.
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

from services.producer.core.circuit_breaker import CircuitBreaker
from services.producer.core.ingest import Portion
from services.producer.kafka.batches import SLOW_ROUND_S, Backlog, Batch, Delivery
from services.producer.kafka.connection import connected_producer, has_topic, leader_of, refresh_metadata
from services.producer.kafka.produce import TOPIC_ERRORS, rewind_sequence, send_batch
from shared.backoff import Backoff
from shared.errors import KafkaUnavailable
from shared.kafka.clients import KAFKA_FAILURES, discard_producer

PROBE_S = 2.0
"""After this long without an acknowledgement the sink asks Kafka for metadata."""
PROBE_TIMEOUT_S = 2.0
_Future = asyncio.Future[Any]
logger = logging.getLogger(__name__)


class KafkaFragmentSink:
    """The FragmentSink on Kafka; it sends only while `run()` is running.

    `topics[n]` is the topic of stream n; `set_topics` may add streams at any time.
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
        self._disconnect_reason = "not connected to Kafka yet"
        self._probe_failure = ""
        self._last_ack_s = 0.0
        self._breaker = CircuitBreaker(trial_s=ack_timeout_s)
        self._wake = asyncio.Event()
        self._broken: asyncio.Future[KafkaUnavailable] | None = None
        self._backoff = Backoff(first_s=0.1, cap_s=0.5)

    def __repr__(self) -> str:
        return f"<KafkaFragmentSink to {self._kafka}: {self.complaint() or self._backlog}>"

    def complaint(self) -> str:
        """Why nothing can be sent now; empty if it can. Correct within 5 s, even without traffic."""
        return self._probe_failure if self._backlog is not None else self._disconnect_reason

    def remarks(self) -> list[str]:
        """Which streams fail, and why, while the others work."""
        return self._breaker.remarks()

    def set_topics(self, topics: Sequence[str]) -> None:
        """Sets the topics of all streams, in the order of the stream table."""
        self._topics = topics
        self._wake.set()

    def send(self, portions: Mapping[int, Portion]) -> Awaitable[list[int]]:
        """See FragmentSink."""
        delivery, now_ms = Delivery(), time.time_ns() // 1_000_000
        backlog = self._open_backlog()
        rejected = self._rejected(portions) if self._breaker.is_any_open else {}
        if rejected and len(rejected) == len(portions):
            raise KafkaUnavailable(next(iter(rejected.values())))
        for stream, portion in portions.items():
            if stream not in rejected:
                backlog.add_portion(stream, portion, delivery, now_ms)
        # rejected streams count as lost at once, so that the answer lists their indexes
        for stream in rejected:
            delivery.expect()
            delivery.lost(portions[stream].indexes)
        if self._breaker.is_any_open:
            self._record_attempts(portions.keys() - rejected.keys())
        self._wake.set()
        # nothing was awaited up to here, so the order of calls is the order of records
        return self._unstored(delivery)

    async def send_to_all(self, value: bytes) -> list[int]:
        """See FragmentSink."""
        delivery, now_ms = Delivery(), time.time_ns() // 1_000_000
        backlog = self._open_backlog()
        count = len(self._topics)
        if rejected := self._rejected(range(count)):
            raise KafkaUnavailable(next(iter(rejected.values())))
        for stream in range(count):
            backlog.add(stream, [(None, value)], [stream], delivery, now_ms)
        self._record_attempts(range(count))
        self._wake.set()
        await delivery.done
        offsets = {indexes[0]: offset for indexes, offset in delivery.offsets}
        # a negative offset: a retry found the record already stored, and the broker did not say where
        if len(offsets) < count or min(offsets.values()) < 0:
            raise KafkaUnavailable("Kafka did not acknowledge the record in every stream")
        return [offsets[stream] for stream in range(count)]

    async def run(self) -> None:
        """Keeps one client connected until cancelled; records in flight are then lost."""
        while True:
            try:
                if not self._topics:
                    self._wake.clear()
                    await self._wake.wait()
                    continue
                producer = await self._connect()
            except KafkaUnavailable as error:
                if error.reason != self._disconnect_reason:
                    logger.warning("kafka not connected", extra={"why": error.detail})
                self._disconnect_reason = error.reason
                await asyncio.sleep(self._backoff.next_s())
                continue
            try:
                why = await self._serve(producer)
                logger.warning("kafka client replaced", extra={"why": why.detail})
                self._disconnect_reason = why.reason
                self._on_replaced()
            finally:
                backlog, self._backlog = self._backlog, None
                if backlog is not None:
                    backlog.fail_all()
                    self._breaker.abandon_trials(time.monotonic())
                await discard_producer(producer)
            # a broker in trouble must not get a new client at once, again and again
            await asyncio.sleep(self._backoff.next_s())

    def _rejected(self, streams: Iterable[int]) -> dict[int, str]:
        """The streams that the circuit breaker rejects now, each with the reason."""
        now_s = time.monotonic()
        return {stream: why for stream in streams if (why := self._breaker.rejection(stream, now_s))}

    def _record_attempts(self, streams: Iterable[int]) -> None:
        for stream in streams:
            self._breaker.record_attempt(stream, time.monotonic())

    def _open_backlog(self) -> Backlog:
        if self._backlog is None:
            raise KafkaUnavailable(self._disconnect_reason)
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
            [topic for stream, topic in enumerate(self._topics) if self._breaker.is_closed(stream)],
            ack_timeout_s=self._ack_timeout_s,
            max_batch_bytes=self._max_batch_bytes,
            compression=self._compression,
        )

    async def _serve(self, producer: AIOKafkaProducer) -> KafkaUnavailable:
        """Sends what is added to a new backlog until the client must be replaced; returns the reason."""
        self._probe_failure, self._last_ack_s = "", time.monotonic()
        self._backlog = Backlog(
            producer.create_batch, lambda stream: leader_of(producer, self._topics[stream])
        )
        self._broken = asyncio.get_running_loop().create_future()
        pump = asyncio.create_task(self._pump(producer, self._backlog), name="kafka sink: pump")
        probe = asyncio.create_task(self._probe(producer), name="kafka sink: probe")
        try:
            while not self._broken.done():
                await asyncio.wait({self._broken}, timeout=min(SLOW_ROUND_S, self._ack_timeout_s / 10))
                now, oldest = time.monotonic(), self._backlog.oldest_sent_at()
                if self._breaker.is_any_open:  # a new leader or topic may end the trouble
                    refresh_metadata(producer, self._topics)
                if oldest is not None and now - oldest > self._ack_timeout_s:
                    why = f"Kafka has not acknowledged for {self._ack_timeout_s:g} s"
                    # other streams were acknowledged meanwhile, so the fault is with these
                    if self._last_ack_s > oldest:
                        for stream in self._backlog.sent_before(now - self._ack_timeout_s):
                            self._open_circuit(stream, why, is_costly=True)
                    return KafkaUnavailable(why)
                # a released lane may send: one slow partition must not hold up its broker's others
                self._backlog.release_slow_rounds(now)
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
                for batch in backlog.take_ready(time.monotonic()):
                    if why := self._obstacle(producer, batch):
                        backlog.complete(batch)
                        batch.lost()
                        self._open_circuit(batch.stream, why)
                        self._wake.set()
                        continue
                    # returns at once: the topic is known, and no other batch of it is in flight
                    where = TopicPartition(self._topics[batch.stream], 0)
                    future, inner = await send_batch(producer, batch.builder, where)
                    future.add_done_callback(
                        functools.partial(self._on_answer, producer, backlog, batch, inner)
                    )
        except KAFKA_FAILURES as error:
            self._break("fragments cannot be sent to Kafka", error)
        except Exception as error:  # without the pump nothing is sent, so every error ends the client
            logger.exception("sending to kafka failed")
            self._break("sending failed", error)

    async def _probe(self, producer: AIOKafkaProducer) -> None:
        """Asks Kafka for metadata whenever it is quiet: without traffic nothing else notices an outage."""
        while True:
            await asyncio.sleep(PROBE_S)
            if time.monotonic() - self._last_ack_s < PROBE_S:
                continue
            answers = False
            with contextlib.suppress(*KAFKA_FAILURES):
                async with asyncio.timeout(PROBE_TIMEOUT_S):
                    answers = await producer.client.force_metadata_update()
            if not answers:
                if not self._probe_failure:
                    logger.warning("kafka does not answer", extra={"kafka": self._kafka})
                self._probe_failure = "Kafka does not answer"
            elif all(leader_of(producer, topic) < 0 for topic in self._topics):
                self._probe_failure = "no fragments topic has a leader"
            else:
                self._probe_failure = ""

    def _on_answer(
        self, producer: AIOKafkaProducer, backlog: Backlog, batch: Batch, inner: Any, future: _Future
    ) -> None:
        error = None if future.cancelled() else future.exception()
        if not backlog.complete(batch):  # too late: fail_all has reported the batch as lost
            return
        if error is None and not future.cancelled():
            batch.stored(future.result().offset)
            self._probe_failure, self._last_ack_s = "", time.monotonic()
            self._backoff.reset()
            self._breaker.record_success(batch.stream)
            self._wake.set()
            return
        batch.lost()
        if isinstance(error, TOPIC_ERRORS):
            self._open_circuit(batch.stream, f"Kafka rejects the batch: {type(error).__name__}")
            # without a gap in the sequence numbers the client stays usable for the other streams
            if rewind_sequence(producer, inner):
                self._wake.set()
                return
        # the lost batch leaves a gap in the sequence numbers, and the broker rejects all that follows one
        self._break("Kafka rejected a batch", error)

    def _open_circuit(self, stream: int, why: str, *, is_costly: bool = False) -> None:
        logger.warning("stream circuit opened", extra={"stream": stream, "why": why})
        self._breaker.record_failure(stream, why, time.monotonic(), is_costly=is_costly)

    def _obstacle(self, producer: AIOKafkaProducer, batch: Batch) -> str:
        """Why the batch cannot be stored; empty if it should be sent.

        A missing leader is an obstacle only to a trial: a stream that worked may wait for its new leader.
        """
        topic = self._topics[batch.stream]
        if leader_of(producer, topic) >= 0:
            return ""
        if not has_topic(producer, topic):
            return f"there is no topic {topic}"
        return "" if self._breaker.is_closed(batch.stream) else f"{topic} has no leader"

    def _break(self, why: str, cause: BaseException | None) -> None:
        if self._broken is not None and not self._broken.done():
            self._broken.set_result(KafkaUnavailable(why, cause=repr(cause)))
