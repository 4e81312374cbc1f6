"""Control's metrics, computed from the view, the runner and the feed at each scrape."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping

from prometheus_client import CollectorRegistry, Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from services.control.core.lake.freshness import FreshnessRow, loss_in_s
from services.control.core.runs.last_runs import DIFFERENCES, LastAudit
from services.control.core.runs.schedules import ScheduleRow
from services.control.live.feed.feed import EventFeed
from services.control.live.view.cluster_view import ClusterView
from services.control.ports import JobRunner
from shared.errors import Unavailable

VERDICTS: Mapping[bool | None, str] = {True: "sound", False: "unsound", None: "empty"}
"""What `baton_last_audit` says, by `LastAudit.is_sound`."""


class _ControlMetrics(Collector):
    def __init__(
        self, view: ClusterView, runner: JobRunner, feed: EventFeed, unreadable_znodes: Callable[[], int]
    ) -> None:
        self._view = view
        self._unreadable_znodes = unreadable_znodes
        self._runner = runner
        self._feed = feed

    def collect(self) -> Iterator[Metric]:
        yield GaugeMetricFamily(
            "baton_view_age_seconds", "Age of the oldest reading in the view", self._view.stale_ms() / 1000
        )
        yield GaugeMetricFamily(
            "baton_unreadable_znodes", "Znodes that cannot be decoded", self._unreadable_znodes()
        )
        runs = GaugeMetricFamily("baton_runs", "Runs that control remembers", labels=["job", "state"])
        counts = Counter((run.job, run.state) for run in self._runner.runs())
        for (job, state), count in sorted(counts.items()):
            runs.add_metric([job, state], count)
        yield runs
        yield GaugeMetricFamily(
            "baton_event_followers", "Clients that follow the events", len(self._feed.followers)
        )
        yield CounterMetricFamily(
            "baton_events_unreadable",
            "Records of the events topic that are not events",
            self._feed.recent_events.unreadable,
        )
        try:
            served = self._view.served()
        except Unavailable:
            return
        lag = GaugeMetricFamily("baton_lag_fragments", "Records not yet accounted for", labels=["group"])
        streams = GaugeMetricFamily("baton_streams", "Streams by status", labels=["group", "status"])
        unowned = GaugeMetricFamily("baton_streams_unowned", "Streams without an owner", labels=["group"])
        failing = GaugeMetricFamily(
            "baton_streams_failing", "Streams that fail without progress", labels=["group"]
        )
        for group, rows in served.report.streams.items():
            lag.add_metric([group], sum(row.lag for row in rows if row.lag is not None))
            unowned.add_metric([group], sum(row.owner is None for row in rows))
            failing.add_metric([group], sum(bool(row.failures) for row in rows))
            for status, count in sorted(Counter(row.status or "UNKNOWN" for row in rows).items()):
                streams.add_metric([group, status], count)
        yield from (lag, streams, unowned, failing)


class _JobMetrics(Collector):
    """How fresh the lake is, whether the schedules succeed, and what the last audits say."""

    def __init__(
        self,
        freshness: Callable[[], list[FreshnessRow]],
        schedules: Callable[[], list[ScheduleRow]],
        audits: Callable[[], Mapping[str, LastAudit]],
    ) -> None:
        self._freshness = freshness
        self._schedules = schedules
        self._audits = audits

    def collect(self) -> Iterator[Metric]:
        gauges = {
            "baton_lake_behind_records": ("Offsets of the sessions topic that the lake lacks", _records),
            "baton_lake_behind_seconds": ("Age of the oldest session that the lake lacks", _seconds),
            "baton_lake_lost_records": ("Offsets that were deleted before the lake read them", _lost),
            "baton_lake_loss_in_seconds": (
                "Time until retention deletes a session that the lake lacks",
                loss_in_s,
            ),
            "baton_lake_measured_timestamp_seconds": ("When the baton_lake gauges were measured", _measured),
        }
        fresh = self._freshness()
        for name, (help_text, value_of) in gauges.items():
            gauge = GaugeMetricFamily(name, help_text, labels=["group"])
            for one in fresh:
                gauge.add_metric([one.group], value_of(one))
            yield gauge
        failures = GaugeMetricFamily(
            "baton_schedule_failures", "Rounds that have failed since the last good one", labels=["schedule"]
        )
        succeeded = GaugeMetricFamily(
            "baton_schedule_success_timestamp_seconds", "When a round last succeeded", labels=["schedule"]
        )
        periods = GaugeMetricFamily(
            "baton_schedule_period_seconds", "Time from one round to the next", labels=["schedule"]
        )
        for row in self._schedules():
            periods.add_metric([row.name], row.every_s)
            failures.add_metric([row.name], row.failures)
            if row.succeeded_at is not None:
                succeeded.add_metric([row.name], row.succeeded_at / 1000)
        verdicts = GaugeMetricFamily(
            "baton_last_audit",
            "1 for the verdict of the group's last audit: sound, unsound, or empty (it judged nothing)",
            labels=["group", "verdict"],
        )
        found = GaugeMetricFamily(
            "baton_last_audit_differences",
            "What the group's last audit found, by kind",
            labels=["group", "kind"],
        )
        for group, audit in self._audits().items():
            for is_sound, verdict in VERDICTS.items():
                verdicts.add_metric([group, verdict], audit.is_sound is is_sound)
            for kind in DIFFERENCES:
                found.add_metric([group, kind], audit.differences.get(kind, 0))
        yield from (failures, succeeded, periods, verdicts, found)


def _records(row: FreshnessRow) -> float:
    return row.behind_records


def _seconds(row: FreshnessRow) -> float:
    return row.behind_s


def _lost(row: FreshnessRow) -> float:
    return row.lost_records


def _measured(row: FreshnessRow) -> float:
    return row.measured_at / 1000


def registry_for(
    view: ClusterView,
    runner: JobRunner,
    feed: EventFeed,
    unreadable_znodes: Callable[[], int] = lambda: 0,
    *,
    freshness: Callable[[], list[FreshnessRow]] = list,
    schedules: Callable[[], list[ScheduleRow]] = list,
    audits: Callable[[], Mapping[str, LastAudit]] = dict,
) -> CollectorRegistry:
    """A registry with control's metrics."""
    registry = CollectorRegistry()
    registry.register(_ControlMetrics(view, runner, feed, unreadable_znodes))
    registry.register(_JobMetrics(freshness, schedules, audits))
    return registry
