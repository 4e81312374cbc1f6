"""What the producer counts, for `/metrics`; in a registry of its own.

Plain numbers, read when asked: a prometheus_client counter costs 2 µs an increment, of which a request
with one fragment would pay four.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry, Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

from services.producer.ports import RejectCounts

ACK_BOUNDS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
"""Upper ends of the buckets: 2 ms is an idle broker, 10 s where BATON_ACK_TIMEOUT_S gives up by default."""


class ProducerMetrics:
    """Counts of one producer process; its fields are added to by whoever knows.

    `inflight_bytes` is asked when metrics are read; `rejects` are the counts of whoever keeps them.
    """

    def __init__(self) -> None:
        self.requests: Counter[int] = Counter()
        self.rejected: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()
        self.acks = [0] * (len(ACK_BOUNDS_S) + 1)
        self.acks_sum_s = 0.0
        self.stored = 0
        self.stored_bytes = 0
        self.unstored = 0
        self.replaced = 0
        self.rejects = RejectCounts()
        self.inflight_bytes: Callable[[], int] = lambda: 0
        self.registry = CollectorRegistry()
        self.registry.register(self)

    def acknowledged(self, after_s: float) -> None:
        """Kafka has acknowledged a request's fragments so long after they were given to it.

        With both readings of the clock 0.4 µs a request, of about 40 (a prometheus_client histogram: 1.6 µs).
        """
        self.acks[bisect_left(ACK_BOUNDS_S, after_s)] += 1
        self.acks_sum_s += after_s

    def refuse(self, status: int, kind: str) -> None:
        """A request was refused before the door saw it."""
        self.requests[status] += 1
        self.refused[kind] += 1

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
        refused = CounterMetricFamily(
            "baton_requests_refused", "Requests refused as a whole, by the problem's type", labels=["problem"]
        )
        for kind, count in self.refused.items():
            refused.add_metric([kind], count)
        yield refused
        yield self._ack_histogram()
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

    def _ack_histogram(self) -> Metric:
        counted, buckets = 0, []
        for bound, count in zip((*ACK_BOUNDS_S, float("inf")), self.acks, strict=True):
            counted += count
            buckets.append(("+Inf" if bound == float("inf") else str(bound), float(counted)))
        return HistogramMetricFamily(
            "baton_acknowledgement_seconds",
            "From giving a request's fragments to Kafka until it acknowledged all of them",
            buckets=buckets,
            sum_value=self.acks_sum_s,
        )
