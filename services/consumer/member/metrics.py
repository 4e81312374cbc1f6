"""A member's metrics for Prometheus, read from its workers when they are scraped."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec
from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from services.consumer.member.member import Member

_COUNTERS = {
    "fragments": "Fragments read, repeats included",
    "bytes": "Bytes of those fragments",
    "repeats": "Fragments dropped because their id was repeated",
    "markers": "Markers read",
    "ticks": "Ticks read",
    "unreadable": "Records set aside because they could not be read",
    "sessions": "Sessions closed",
}


class ConsumerMetrics(Collector):
    """Totals of the streams that the member owns, counted from their first records on, under all owners.

    `joined` is empty until the member has joined.
    """

    def __init__(self, joined: Sequence[Member]) -> None:
        self._joined = joined
        self.registry = CollectorRegistry()
        self.registry.register(self)

    def collect(self) -> Iterator[Metric]:
        """The metrics as of now."""
        member = self._joined[0] if self._joined else None
        workers = member.workers if member is not None else []
        totals = [msgspec.structs.asdict(worker.counts) for worker in workers]
        for name, text in _COUNTERS.items():
            yield CounterMetricFamily(f"baton_{name}", text, value=sum(total[name] for total in totals))
        cores = [worker.core for worker in workers if worker.core is not None]
        gauges = {
            "streams": ("Streams owned", len(workers)),
            "streams_failing": (
                "Streams that fail and make no progress",
                sum(w.retries.failures > 0 for w in workers),
            ),
            "open_sessions": ("Sessions open", sum(core.open_sessions for core in cores)),
            "state_bytes": ("Bytes of open sessions", sum(core.state_bytes for core in cores)),
            "remembered_ids": (
                "Ids remembered of closed sessions",
                sum(core.remembered_ids for core in cores),
            ),
            "checkpoint_bytes": (
                "Bytes of checkpoint records that new owners would load",
                sum(core.checkpoint_bytes for core in cores),
            ),
            "lag": ("Records not read yet", sum(max(0, w.end - w.position) for w in workers)),
            "unreadable_znodes": (
                "Znodes of the group that cannot be decoded",
                member.coordinator.unreadable_znodes if member is not None else 0,
            ),
            "lease_seconds": ("Until the lease ends", member.lease_ms / 1000 if member is not None else 0.0),
        }
        yield CounterMetricFamily(
            "baton_suspected",
            "Killed processes of other members that this member has found and ended",
            value=member.neighbours.suspected if member is not None else 0,
        )
        for name, (text, value) in gauges.items():
            yield GaugeMetricFamily(f"baton_{name}", text, value=value)
