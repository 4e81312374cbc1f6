"""What the producer counts, for `/metrics`; in a registry of its own.

Plain numbers, read when asked: a prometheus_client counter costs 2 µs an increment, of which a request
with one fragment would pay four.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry, Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

from services.producer.ports import RejectCounts


class ProducerMetrics:
    """Counts of one producer process; its fields are added to by whoever knows.

    `inflight_bytes` is asked when metrics are read; `rejects` are the counts of whoever keeps them.
    """

    def __init__(self) -> None:
        self.requests: Counter[int] = Counter()
        self.rejected: Counter[str] = Counter()
        self.stored = 0
        self.stored_bytes = 0
        self.unstored = 0
        self.replaced = 0
        self.rejects = RejectCounts()
        self.inflight_bytes: Callable[[], int] = lambda: 0
        self.registry = CollectorRegistry()
        self.registry.register(self)

    def collect(self) -> Iterator[Metric]:
        """The metrics as Prometheus wants them."""
        requests = CounterMetricFamily(
            "baton_requests", "Requests with fragments, by the status answered", labels=["status"]
        )
        for status, count in self.requests.items():
            requests.add_metric([str(status)], count)
        yield requests
        rejected = CounterMetricFamily(
            "baton_fragments_rejected", "Fragments refused, by reason", labels=["reason"]
        )
        for reason, count in self.rejected.items():
            rejected.add_metric([reason], count)
        yield rejected
        yield CounterMetricFamily(
            "baton_fragments_stored", "Fragments that Kafka acknowledged", value=self.stored
        )
        yield CounterMetricFamily(
            "baton_fragment_bytes_stored", "Bytes of wholly acknowledged requests", value=self.stored_bytes
        )
        yield CounterMetricFamily(
            "baton_fragments_unstored", "Fragments that Kafka did not acknowledge", value=self.unstored
        )
        yield CounterMetricFamily(
            "baton_kafka_producers_replaced", "Kafka producers thrown away", value=self.replaced
        )
        yield CounterMetricFamily(
            "baton_rejects_stored", "Rejects that Kafka acknowledged", value=self.rejects.stored
        )
        yield CounterMetricFamily(
            "baton_rejects_dropped",
            "Rejects that are not kept, or not known to be: Kafka was away",
            value=self.rejects.dropped,
        )
        yield CounterMetricFamily(
            "baton_rejects_cut", "Rejects too long to be kept whole", value=self.rejects.cut
        )
        yield GaugeMetricFamily(
            "baton_inflight_bytes",
            "Bytes of requests that are being read or wait for Kafka",
            value=self.inflight_bytes(),
        )
