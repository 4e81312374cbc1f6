"""Writes fragments to Kafka: acknowledged by all replicas, or reported as unstored within a time limit.

The sender bounds the time of each batch and keeps faults to their partition. Here is decided what a loss
means for the requests to come: if Kafka has acknowledged others meanwhile, that stream's circuit opens
(core/circuit_breaker.py); if it has acknowledged nothing, requests are refused at once until it answers
again. Used by `__main__.py`; the only caller of `send` is `http/door.py`.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence

from services.producer.core.circuit_breaker import CircuitBreaker
from services.producer.core.ingest import Portion
from shared.backoff import Backoff
from shared.errors import KafkaUnavailable
from shared.kafka.connect.cluster import Cluster
from shared.kafka.record import Headers, Partition
from shared.kafka.send.outcome import Delivery, Loss, Outcome
from shared.kafka.send.sender import Sender

AT_ONCE = 2
"""Requests on their way to a broker: while it writes one half of the fragments, the other half is served."""
PROBE_S = 2.0
"""After this long without an acknowledgement the sink asks Kafka for metadata."""
PROBE_TIMEOUT_S = 2.0
_NOT_YET = "not connected to Kafka yet"
_SILENT = "Kafka does not answer"
_NO_HEADERS: Headers = []
logger = logging.getLogger(__name__)


class KafkaFragmentSink:
    """The FragmentSink on Kafka; it sends only while `run()` is running.

    `topics[n]` is the topic of stream n; `set_topics` may add streams at any time. `on_lost` is called for
    each batch that was not acknowledged.
    """

    def __init__(
        self,
        cluster: Cluster,
        *,
        ack_timeout_s: float = 10.0,
        max_batch_bytes: int = 512 * 1024,
        compression: str = "none",
        on_lost: Callable[[], None] = lambda: None,
    ) -> None:
        self._cluster = cluster
        self._now_s = asyncio.get_running_loop().time
        self._on_lost = on_lost
        self._sender = Sender(
            cluster,
            deliver_s=ack_timeout_s,
            max_batch_bytes=max_batch_bytes,
            compression=compression,
            at_once=AT_ONCE,
            on_stored=self._stored,
            on_lost=self._lost,
        )
        self._places: list[Partition] = []
        self._streams: dict[Partition, int] = {}
        self._refusal = _NOT_YET
        """Why requests are refused at once; empty: they are not."""
        self._probe_failure = ""
        self._acknowledged_s: dict[int, float] = {}
        """Stream → when Kafka acknowledged its last batch."""
        self._last_ack_s = -math.inf
        self._breaker = CircuitBreaker(trial_s=ack_timeout_s)
        self._wake = asyncio.Event()
        self._backoff = Backoff(first_s=0.1, cap_s=0.5)

    def __repr__(self) -> str:
        return f"<KafkaFragmentSink: {self.complaint() or self._sender!r}>"

    def complaint(self) -> str:
        """Why nothing can be sent now; empty if it can. Correct within 5 s, even without traffic."""
        return self._refusal or self._probe_failure

    def remarks(self) -> list[str]:
        """Which streams fail, and why, while the others work."""
        return self._breaker.remarks()

    def set_topics(self, topics: Sequence[str]) -> None:
        """Sets the topics of all streams, in the order of the stream table."""
        self._places = [(topic, 0) for topic in topics]
        self._streams = {place: stream for stream, place in enumerate(self._places)}
        self._wake.set()

    def send(self, portions: Mapping[int, Portion], on_outcome: Callable[[list[int]], None]) -> None:
        """See FragmentSink."""
        self._check_open()
        rejected = self._rejected(portions) if self._breaker.is_any_open else {}
        if rejected and len(rejected) == len(portions):
            raise KafkaUnavailable(next(iter(rejected.values())))
        outcome = Outcome(lambda known: on_outcome(sorted(known.unstored)))
        now_ms = time.time_ns() // 1_000_000
        for stream, portion in portions.items():
            if stream not in rejected:
                records = zip(portion.keys, portion.values, itertools.repeat(_NO_HEADERS), strict=False)
                shares = self._sender.add(self._places[stream], records, portion.indexes, outcome, now_ms)
                outcome.expect(shares)
        # rejected streams count as lost at once, so that the answer lists their indexes
        for stream in rejected:
            outcome.unstored += portions[stream].indexes
        if self._breaker.is_any_open:
            self._record_attempts(portions.keys() - rejected.keys())

    async def send_to_all(self, value: bytes) -> list[int]:
        """See FragmentSink."""
        self._check_open()
        count = len(self._places)
        if rejected := self._rejected(range(count)):
            raise KafkaUnavailable(next(iter(rejected.values())))
        delivery = Delivery()
        for stream, place in enumerate(self._places):
            delivery.expect(self._sender.add(place, [(None, value, _NO_HEADERS)], [stream], delivery))
        self._record_attempts(range(count))
        await delivery.done
        offsets = {indexes[0]: offset for indexes, offset in delivery.offsets}
        # a negative offset: a retry found the record already stored, and the broker did not say where
        if len(offsets) < count or min(offsets.values()) < 0:
            raise KafkaUnavailable("Kafka did not acknowledge the record in every stream")
        return [offsets[stream] for stream in range(count)]

    async def run(self) -> None:
        """Sends, and watches Kafka, until cancelled; records in flight are then lost."""
        try:
            while True:
                self._wake.clear()
                if self._places:
                    await self._probe()
                await self._pause()
        finally:
            await self._sender.close()

    def _check_open(self) -> None:
        if self._refusal:
            raise KafkaUnavailable(self._refusal)

    def _rejected(self, streams: Iterable[int]) -> dict[int, str]:
        """The streams that the circuit breaker rejects now, each with the reason."""
        now_s, rejected = self._now_s(), {}
        for stream in streams:
            why = self._breaker.rejection(stream, now_s)
            # a stream that worked waits for its new leader; a trial is not worth the time
            if not why and not self._breaker.is_closed(stream):
                why = self._obstacle(self._places[stream])
                if why:
                    self._breaker.record_attempt(stream, now_s)
                    self._breaker.record_failure(stream, why, now_s)
            if why:
                rejected[stream] = why
        return rejected

    def _obstacle(self, place: Partition) -> str:
        """Why nothing can be written there; empty if that is not known."""
        topic, number = place
        if self._cluster.leader(topic, number) is not None:
            return ""
        if self._cluster.denies(topic):
            return f"no right to the topic {topic}"
        return f"{topic} has no leader" if self._cluster.has(topic) else f"there is no topic {topic}"

    def _record_attempts(self, streams: Iterable[int]) -> None:
        for stream in streams:
            self._breaker.record_attempt(stream, self._now_s())

    def _stored(self, place: Partition) -> None:
        stream = self._streams[place]
        self._last_ack_s = self._acknowledged_s[stream] = self._now_s()
        self._probe_failure = ""
        self._breaker.record_success(stream)

    def _lost(self, place: Partition, loss: Loss) -> None:
        self._on_lost()
        stream = self._streams[place]
        if loss.kind == "closed" or self._acknowledged_s.get(stream, -math.inf) > loss.created_s:
            return  # the stream works, but has too much to do
        if loss.kind != "late" or self._last_ack_s > loss.created_s:
            fields = {"stream": stream, "why": loss.reason, "cause": loss.cause}
            logger.warning("stream circuit opened", extra=fields)
            self._breaker.record_failure(stream, loss.reason, self._now_s())
        elif not self._refusal:
            logger.warning("kafka does not acknowledge", extra={"why": loss.cause or loss.reason})
            self._refusal = loss.reason
            self._wake.set()

    async def _probe(self) -> None:
        """Asks Kafka for metadata: without traffic nothing else notices an outage, or its end."""
        try:
            async with asyncio.timeout(PROBE_TIMEOUT_S):
                await self._cluster.refresh({topic for topic, _ in self._places})
        except (KafkaUnavailable, TimeoutError) as error:
            self._note_failure(_SILENT, getattr(error, "detail", f"no answer within {PROBE_TIMEOUT_S:g} s"))
            return
        if all(self._cluster.leader(*place) is None for place in self._places):
            self._note_failure("no fragments topic has a leader", "")
        else:
            self._refusal = self._probe_failure = ""
            self._backoff.reset()

    def _note_failure(self, why: str, cause: str) -> None:
        fields = {"why": f"{why}: {cause}" if cause else why}
        if self._refusal == _NOT_YET:
            logger.warning("kafka not connected", extra=fields)
            self._refusal = why
        elif self._probe_failure != why:
            logger.warning("kafka does not answer", extra=fields)
        self._probe_failure = why

    async def _pause(self) -> None:
        """Waits until Kafka should be asked again."""
        if not self._places:
            await self._wake.wait()
            return
        pause_s = PROBE_S
        if self.complaint():
            pause_s = self._backoff.next_s()
        elif self._breaker.is_any_open:  # a new leader or topic may end the trouble
            pause_s = PROBE_S / 4
        while not self._wake.is_set():
            try:
                async with asyncio.timeout(pause_s):
                    await self._wake.wait()
            except TimeoutError:
                is_busy = self._now_s() - self._last_ack_s < PROBE_S
                if not is_busy or self.complaint() or self._breaker.is_any_open:
                    return
