"""Looks every second at what is wrong in each group, so that `GET /problems` says since when."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import msgspec

from services.control.core.found import HotKey
from services.control.core.lake.freshness import FreshnessRow
from services.control.core.problems.problems import Facts, ProblemLog, ProblemRow, problems_in
from services.control.core.queues import QueueRow
from services.control.core.report.report import owner_statuses
from services.control.core.runs.last_runs import LastAudit, failed_last, last_audit, last_audit_run
from services.control.core.runs.run import Run
from services.control.live.view.cluster_view import ClusterView, Served
from services.control.ports import JobRunner
from shared.errors import Unavailable
from shared.model.names import DEFAULT_GROUP

LOOK_EVERY_S = 1.0


class ProblemList(msgspec.Struct, frozen=True, kw_only=True):
    """What is wrong in a group, the worst first, and the last audit of it."""

    group: str
    problems: list[ProblemRow]
    last_audit: LastAudit | None
    stale_ms: int


class Problems:
    """`run()` looks until cancelled; `of_group` answers from memory."""

    def __init__(
        self,
        view: ClusterView,
        runner: JobRunner,
        freshness: Callable[[], list[FreshnessRow]],
        *,
        queues: Callable[[], Sequence[QueueRow]] = tuple,
        hot: Callable[[], Mapping[int, HotKey]] = dict,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        self._view = view
        self._runner = runner
        self._freshness = freshness
        self._queues = queues
        self._hot = hot
        self._now_ms = now_ms
        self._logs: dict[str, ProblemLog] = {}
        self._audits: dict[str, LastAudit] = {}
        self._found: dict[str, ProblemList] = {}

    def __repr__(self) -> str:
        return f"<Problems of {len(self._logs)} groups>"

    async def run(self) -> None:
        """Looks every LOOK_EVERY_S until cancelled."""
        while True:
            self.step()
            await asyncio.sleep(LOOK_EVERY_S)

    def step(self) -> None:
        """Looks once at every group; at `default` alone while the cluster has not been read."""
        try:
            groups = list(self._view.served(with_offsets=False).report.streams)
        except Unavailable:
            groups = [DEFAULT_GROUP]
        self._logs = {group: log for group, log in self._logs.items() if group in groups}
        self._found = {group: self._look(group) for group in groups}

    def of_group(self, group: str) -> ProblemList:
        """What is wrong in the group. Raises UnknownGroup, but only once the cluster has been read."""
        with contextlib.suppress(Unavailable):
            self._view.check_group(group)
        return self._found.get(group) or self._look(group)

    def audits(self) -> Mapping[str, LastAudit]:
        """The last audit of each group that has one."""
        return {group: one.last_audit for group, one in self._found.items() if one.last_audit is not None}

    def _look(self, group: str) -> ProblemList:
        runs = self._runner.runs()
        audit = self._last_audit(last_audit_run(runs, group))
        lake = next((row for row in self._freshness() if row.group == group), None)
        facts = Facts(
            unread=self._view.unread(),
            is_read=False,
            lake=lake,
            last_audit=audit,
            failed=failed_last(runs, group),
            queues=self._queues(),
            hot=self._hot(),
        )
        with contextlib.suppress(Unavailable):
            facts = _with_cluster(facts, self._view.served(with_offsets=False), group)
        log = self._logs.setdefault(group, ProblemLog())
        return ProblemList(
            group=group,
            problems=log.observe(problems_in(facts), self._now_ms()),
            last_audit=audit,
            stale_ms=self._view.stale_ms(),
        )

    def _last_audit(self, run: Run | None) -> LastAudit | None:
        if run is None:
            return None
        # the result lies on disk, and never changes
        known = self._audits.get(run.group)
        if known is None or known.run != run.id:
            known = self._audits[run.group] = last_audit(run, self._runner.result_of(run.id) or {})
        return known


def _with_cluster(facts: Facts, served: Served, group: str) -> Facts:
    observed = served.observed
    found = observed.cluster.groups.get(group)
    reported = owner_statuses(found.view, group, observed.answers.statuses) if found else {}
    return replace(
        facts,
        is_read=True,
        has_offsets=served.has_offsets,
        is_paused=found is not None and found.view.pause is not None,
        rows=served.report.streams.get(group, ()),
        first=observed.offsets.first,
        cut={stream: status.cut for stream, status in reported.items()},
        members=[row for row in served.report.members if row.group == group],
        producers=served.report.producers,
    )
