"""The queues' metrics for Prometheus, read from this worker's copies when they are scraped.

Each worker has all queues, so each reports the same totals: take the maximum over workers, not the sum.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from services.queue.worker.queues import Queues
from shared.errors import BatonError

_COUNTERS = {
    "leased": ("leases", "Leases of items, repeated ones included"),
    "acked": ("acks", "Items that were acknowledged"),
    "expired": ("expired", "Leases that ended by time, so that their items were leased again"),
    "released": ("releases", "Leases that were given back"),
    "repeats": ("repeats", "Items dropped because another one had their id"),
    "dead": ("dead", "Items that became dead letters"),
    "bare": ("bare_letters", "Dead letters without their value, which Kafka refuses"),
}


class QueueMetrics(Collector):
    """What the queues hold, and what has happened to them since they were created."""

    def __init__(self, queues: Queues) -> None:
        self._queues = queues
        self.registry = CollectorRegistry()
        self.registry.register(self)

    def collect(self) -> Iterator[Metric]:
        """The metrics as of now."""
        items = GaugeMetricFamily(
            "baton_queue_items", "Items by what they wait for", labels=("queue", "state")
        )
        ages = GaugeMetricFamily(
            "baton_queue_oldest_age_seconds", "Age of the oldest item that is not done", labels=("queue",)
        )
        counters = {
            field: CounterMetricFamily(f"baton_queue_{name}", text, labels=("queue",))
            for field, (name, text) in _COUNTERS.items()
        }
        for name, leasing in self._queues.all():
            try:
                status, counts = leasing.engine.status(), leasing.engine.state.counts
            except BatonError:
                continue  # it is still being read
            for state, count in msgspec.structs.asdict(status).items():
                items.add_metric((name, state), count)
            if (age_s := self._queues.ages_s.get(name)) is not None:
                ages.add_metric((name,), age_s)
            for field, family in counters.items():
                family.add_metric((name,), getattr(counts, field))
        yield items
        yield ages
        yield from counters.values()
