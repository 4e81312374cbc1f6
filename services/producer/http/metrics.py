"""The producer's metrics for `/metrics`, in a registry of their own.

They are plain numbers, converted when Prometheus asks: a prometheus_client counter costs 2 µs an increment,
and a request with one fragment would pay that four times. `http/door.py` counts most of them.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from prometheus_client import CollectorRegistry, Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

from services.producer.http.access.grants import KeyUse
from services.producer.ports import RejectCounts

ACK_BOUNDS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
"""Upper bounds of the buckets: 2 ms is an idle broker, 10 s the default of BATON_ACK_TIMEOUT_S."""


class ProducerMetrics:
    """The counts of one producer process; the parts that know them add to its fields.

    `inflight_bytes` and `unreadable_znodes` are called when the metrics are read; `rejects` and `keys` are
    the counts of the Rejects and WriteKeys in use.
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
        self.lost_batches = 0
        self.rejects = RejectCounts()
        self.keys = KeyUse()
        self.inflight_bytes: Callable[[], int] = lambda: 0
        self.unreadable_znodes: Callable[[], int] = lambda: 0
        self.registry = CollectorRegistry()
        self.registry.register(self)

    def acknowledged(self, after_s: float) -> None:
        """Counts a request whose fragments Kafka acknowledged after this time.

        Costs 0.4 µs a request with both clock readings, of about 40 (a prometheus_client histogram: 1.6 µs).
        """
        # one list index per request; the cumulative buckets are computed at the scrape
        self.acks[bisect_left(ACK_BOUNDS_S, after_s)] += 1
        self.acks_sum_s += after_s

    def reject(self, status: int, kind: str) -> None:
        """Counts a request that was rejected before it reached the door."""
        self.requests[status] += 1
        self.refused[kind] += 1

    def collect(self) -> Iterator[Metric]:
        """All metrics, in Prometheus' form."""
        yield _labelled("baton_requests", "Requests with fragments, by status", "status", self.requests)
        yield _labelled("baton_fragments_rejected", "Rejected fragments, by reason", "reason", self.rejected)
        yield _labelled(
            "baton_requests_refused", "Rejected requests, by type of problem", "problem", self.refused
        )
        yield self._ack_histogram()
        yield from self._by_key()
        for name, documentation, value in (
            ("baton_fragments_stored", "Fragments that Kafka acknowledged", self.stored),
            ("baton_fragment_bytes_stored", "Bytes of completely acknowledged requests", self.stored_bytes),
            ("baton_fragments_unstored", "Fragments that Kafka did not acknowledge", self.unstored),
            ("baton_kafka_batches_lost", "Batches that Kafka did not acknowledge", self.lost_batches),
            ("baton_rejects_stored", "Rejects that Kafka acknowledged", self.rejects.stored),
            ("baton_rejects_dropped", "Rejects not stored, or not known to be", self.rejects.dropped),
            ("baton_rejects_cut", "Rejects too long to be stored whole", self.rejects.cut),
        ):
            yield CounterMetricFamily(name, documentation, value=value)
        yield _labelled(
            "baton_rejects_over_share",
            "Rejects not stored because their writer had used its part of the reason's share, by reason",
            "reason",
            self.rejects.over_share,
        )
        yield GaugeMetricFamily(
            "baton_inflight_bytes",
            "Bytes of requests that are being read or wait for Kafka",
            value=self.inflight_bytes(),
        )
        yield GaugeMetricFamily(
            "baton_unreadable_znodes",
            "1 while the stream table cannot be decoded",
            value=self.unreadable_znodes(),
        )

    def _by_key(self) -> Iterator[Metric]:
        keys = self.keys
        yield _labelled("baton_key_requests", "Admitted requests, by name of the key", "key", keys.requests)
        yield _labelled("baton_key_fragments", "Posted fragments, by name of the key", "key", keys.fragments)
        refused = CounterMetricFamily(
            "baton_key_requests_refused",
            "Requests with a valid write key that were refused, by its name and type of problem",
            labels=["key", "problem"],
        )
        for labels, count in keys.refused.items():
            refused.add_metric(labels, count)
        yield refused
        rates = GaugeMetricFamily(
            "baton_key_rate",
            "Fragments per second that write keys with a limit may send, by name",
            labels=["key"],
        )
        for name, rate in keys.rates.items():
            rates.add_metric([name], rate)
        yield rates

    def _ack_histogram(self) -> Metric:
        counted, buckets = 0, []  # Prometheus' buckets are cumulative, ours are not
        for bound, count in zip((*ACK_BOUNDS_S, float("inf")), self.acks, strict=True):
            counted += count
            buckets.append(("+Inf" if bound == float("inf") else str(bound), float(counted)))
        return HistogramMetricFamily(
            "baton_acknowledgement_seconds",
            "Time from sending a request's fragments to Kafka until it acknowledged all",
            buckets=buckets,
            sum_value=self.acks_sum_s,
        )


def _labelled(name: str, documentation: str, label: str, counts: Mapping[Any, int]) -> Metric:
    family = CounterMetricFamily(name, documentation, labels=[label])
    for value, count in counts.items():
        family.add_metric([str(value)], count)
    return family
