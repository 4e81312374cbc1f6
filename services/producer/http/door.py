"""The door: answers `POST /fragments` without a task, a future or an ASGI message of its own.

A request is judged by its headers before its body is read, then counted as it arrives, and sorted by
core/ingest.py once it is whole. The sink takes the accepted fragments and calls back when Kafka has
acknowledged them; that call writes the answer. `face.py` makes the exchanges, `connection.py` runs them.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from time import perf_counter

import msgspec
from fastapi import Response

from services.producer.core.ingest import Limits, Rejected, ingest
from services.producer.http.access.grants import Scope as KeyScope
from services.producer.http.gate import Gate
from services.producer.http.metrics import ProducerMetrics
from services.producer.http.refusals import all_rejected, partly_stored, refusal
from services.producer.ports import FragmentSink, Rejects
from shared.errors import BatonError, KafkaUnavailable, Unavailable, ZooKeeperUnavailable
from shared.model.form import wrapping_for
from shared.model.items import RequestUnreadable
from shared.model.rejects import UNREADABLE
from shared.model.routing import StreamTable
from shared.server.answers import Pairs
from shared.server.counted import CountedExchange
from shared.server.exchange import Head, Line
from shared.server.face import Leaving
from shared.service.http import kind_for, problem
from shared.service.inflight import Inflight, InflightShare

logger = logging.getLogger(__name__)


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """The body of a 200."""

    accepted: int
    rejected: list[Rejected]


class Door:
    """What all requests with fragments share. `inflight` bounds them together."""

    def __init__(
        self,
        *,
        gate: Gate,
        sink: FragmentSink,
        rejects: Rejects,
        table: Callable[[], StreamTable | None],
        limits: Limits,
        max_inflight_bytes: int,
        metrics: ProducerMetrics,
    ) -> None:
        self.gate = gate
        self.sink = sink
        self.rejects = rejects
        self.table = table
        self.limits = limits
        self.inflight = Inflight(max_inflight_bytes)
        self.metrics = metrics
        self.is_leaving = False
        metrics.inflight_bytes = lambda: self.inflight.bytes
        metrics.rejects = rejects.counts

    def __repr__(self) -> str:
        return f"<Door with {self.inflight.bytes} bytes in flight{', leaving' * self.is_leaving}>"

    @property
    def inflight_bytes(self) -> int:
        """Bytes of requests that are being read or wait for Kafka."""
        return self.inflight.bytes

    def complaint(self) -> str:
        """Why the door rejects fragments; empty if it accepts them."""
        return "the producer is stopping" if self.is_leaving else ""

    def leave(self) -> None:
        """Rejects new requests from now on; requests in flight go on."""
        self.is_leaving = True

    def refused(self, error: BatonError) -> Response:
        """The answer to a request that failed with this error, counted."""
        self.metrics.refused[kind_for(error)] += 1
        return refusal(error)


class FragmentsExchange(CountedExchange):
    """One `POST /fragments`. It occupies its share until Kafka has answered or it is refused."""

    _is_sent = False

    def __init__(self, line: Line, head: Head, door: Door) -> None:
        super().__init__(line, head)
        self._door = door

    def start(self) -> None:
        door, head = self._door, self.head
        self._share = share = InflightShare(door.inflight, door.limits.max_request_bytes)
        try:
            if door.is_leaving:
                raise Leaving
            # everything that the headers decide comes before the body is read
            self._key = door.gate.check(head.headers, head.query, KeyScope.WRITE)
            self._wrapping = wrapping_for(head.values(b"content-type"), head.values(b"content-encoding"))
            share.check_announced(head.length)  # so that an upload is not wasted
        except BatonError as error:
            self._refuse(error)
            return
        if head.expects_continue:
            self.ask_for_body()
        if self.is_whole or self.body:
            self.arrived()

    def arrived(self) -> None:
        assert self._share is not None
        try:
            self._count_body(self._share)
            if self.is_whole and not self.is_answered:
                self._store(self._whole_body(self._share))
        except BatonError as error:
            self._refuse(error)
        except Exception:
            logger.exception("request failed")
            self._respond(problem(500, "internal-server-error", "an internal error; it has been logged"))

    def lose(self) -> None:
        super().lose()
        if not self._is_sent:  # else the batches hold it until Kafka answers
            self._release()

    def cut(self) -> None:
        # Kafka may store it all the same, so the client retries
        if self._is_sent:
            self._door.metrics.unstored += self._count
        self._refuse(Leaving())

    def _store(self, body: bytes) -> None:
        door = self._door
        table = door.table()
        if table is None:
            raise ZooKeeperUnavailable("there is no stream table yet")
        try:
            ingested = ingest(body, self._wrapping.form, table, door.limits)
        except RequestUnreadable as error:
            self._reject([Rejected(index=0, reason=UNREADABLE, detail=error.detail)], [body])
            raise
        if self._key is not None:
            self._key.count(ingested.total)
        self._count, self._size = ingested.count, ingested.bytes
        self._rejected, self._values = ingested.rejected, ingested.rejected_values
        if self._rejected:
            door.metrics.rejected.update(item.reason for item in self._rejected)
            if not self._count:
                self._reject(self._rejected, self._values)
                self._respond(all_rejected(self._rejected))
                return
        if not self._count:
            self._accept()
            return
        self._is_sent = True
        self._sent_s = perf_counter()
        try:
            # from here on only the batches hold the fragments
            door.sink.send(ingested.accepted, self._on_outcome)
        except Unavailable:
            self._is_sent = False
            door.metrics.unstored += self._count
            raise

    def _on_outcome(self, unstored: list[int]) -> None:
        """Kafka has acknowledged all fragments but these."""
        metrics, count = self._door.metrics, self._count
        self._is_sent = False
        if self.is_answered:  # it was cut, and counted then
            return
        metrics.unstored += len(unstored)
        if len(unstored) == count:
            self._refuse(KafkaUnavailable("Kafka did not acknowledge the fragments in time"))
            return
        if self._rejected:  # not earlier: after a failure the client sends everything again
            self._reject(self._rejected, self._values)
        metrics.stored += count - len(unstored)
        if unstored:
            self._respond(partly_stored(count, unstored, self._rejected))
            return
        metrics.acknowledged(perf_counter() - self._sent_s)
        metrics.stored_bytes += self._size
        self._accept()

    def _reject(self, rejected: list[Rejected], values: list[bytes]) -> None:
        """Keeps the rejects for a later look."""
        writer = "" if self._key is None else self._key.grant.name
        self._door.rejects.put(rejected, values, writer)

    def _accept(self) -> None:
        """The common answer, without the cost of a Response object."""
        self._door.metrics.requests[200] += 1
        headers, body = _answer_of(self._rejected, self._count) if self._rejected else _accepted(self._count)
        self._finish(200, headers, body)

    def _refuse(self, error: BatonError) -> None:
        if not self.is_answered and not self.is_lost:
            self._respond(self._door.refused(error))
        else:
            self._release()

    def _respond(self, answer: Response) -> None:
        self._door.metrics.requests[answer.status_code] += 1
        self._finish(answer.status_code, tuple(answer.raw_headers), bytes(answer.body))

    def _finish(self, status: int, headers: Pairs, body: bytes) -> None:
        self._release()
        if not self.is_lost:
            origin = self._door.gate.headers(self.head.named.get(b"origin"))
            self.line.respond(self, status, headers + origin, body)


@functools.lru_cache(4_096)
def _accepted(count: int) -> tuple[Pairs, bytes]:
    """The answer if nothing was rejected: there are few different ones."""
    return _answer_of([], count)


def _answer_of(rejected: list[Rejected], count: int) -> tuple[Pairs, bytes]:
    body = msgspec.json.encode(Answer(accepted=count, rejected=rejected))
    return ((b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))), body
