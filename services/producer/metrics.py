"""What the producer counts, for `/metrics`; in a registry of its own."""

from __future__ import annotations

from collections import Counter as Tally

from prometheus_client import CollectorRegistry, Counter, Gauge

from services.producer.core.ingest import Ingested


class ProducerMetrics:
    """Counters of one producer process."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = Counter(
            "baton_requests",
            "Requests with fragments, by the status answered",
            ["status"],
            registry=self.registry,
        )
        self.stored = Counter(
            "baton_fragments_stored", "Fragments that Kafka acknowledged", registry=self.registry
        )
        self.stored_bytes = Counter(
            "baton_fragment_bytes_stored",
            "Bytes of the fragments of wholly stored requests",
            registry=self.registry,
        )
        self.rejected = Counter(
            "baton_fragments_rejected", "Fragments refused, by reason", ["reason"], registry=self.registry
        )
        self.unstored = Counter(
            "baton_fragments_unstored", "Fragments that Kafka did not acknowledge", registry=self.registry
        )
        self.replaced = Counter(
            "baton_kafka_producers_replaced", "Kafka producers thrown away", registry=self.registry
        )
        self.inflight = Gauge(
            "baton_inflight_bytes",
            "Bytes of requests being read or waiting for Kafka",
            registry=self.registry,
        )
        # a look-up by label costs more than counting
        self._by_status: dict[int, Counter] = {}

    def answered(self, status: int) -> None:
        """One request with fragments was answered."""
        counter = self._by_status.get(status)
        if counter is None:
            counter = self._by_status[status] = self.requests.labels(str(status))
        counter.inc()

    def refused(self, ingested: Ingested) -> None:
        """Fragments of a request were rejected."""
        for reason, count in Tally(rejected.reason for rejected in ingested.rejected).items():
            self.rejected.labels(reason).inc(count)
