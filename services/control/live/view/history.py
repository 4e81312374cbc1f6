"""Takes a sample of every group every 15 s, keeps the last hour, and hands each sample on to the topic.

A slot in which the cluster could not be read has no sample: a gap says more than an old number.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable

from services.control.core.history.group_history import (
    GroupHistory,
    HistoryRing,
    StreamHistory,
    encode_sample,
    parse_sample,
    sample_of,
    sessions_between,
)
from services.control.core.history.hour import STEP_MS, Number
from services.control.core.lake.freshness import FreshnessRow
from services.control.core.report.rows import StreamRow
from services.control.live.view.cluster_view import ClusterView
from shared.errors import InvalidInput, Unavailable

FRESH_MS = 4 * STEP_MS
"""An older measurement of the lake is not one of this slot."""

logger = logging.getLogger(__name__)


class History:
    """`run()` takes samples until cancelled; `of_group` and `of_stream` answer from memory.

    `write` gets each sample as the topic stores it; `writer` names this control in it.
    """

    def __init__(
        self,
        view: ClusterView,
        freshness: Callable[[], list[FreshnessRow]],
        write: Callable[[bytes], None],
        *,
        writer: str,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        self._view = view
        self._freshness = freshness
        self._write = write
        self._writer = writer
        self._now_ms = now_ms
        self._ring = HistoryRing()
        self._sessions: dict[str, dict[int, int]] = {}
        self._taken_ms = 0

    def __repr__(self) -> str:
        return f"<History by {self._writer}: {self._ring!r}>"

    async def run(self) -> None:
        """Takes a sample at the begin of each slot until cancelled."""
        while True:
            await asyncio.sleep((STEP_MS - self._now_ms() % STEP_MS) / 1000)
            self.step()

    def step(self) -> None:
        """Takes a sample of every group, unless the view is older than a step."""
        try:
            served = self._view.served()
        except Unavailable:
            return
        if self._view.stale_ms() >= STEP_MS:
            return
        now_ms = self._now_ms()
        for group, rows in served.report.streams.items():
            sample = sample_of(
                rows,
                served.report.producers,
                at=now_ms,
                group=group,
                writer=self._writer,
                sessions_per_s=self._sessions_per_s(group, rows, now_ms - self._taken_ms),
                lake_behind_s=self._lake_behind_s(group, now_ms),
            )
            self._ring.add(sample, now_ms)
            self._write(encode_sample(sample))
        self._taken_ms = now_ms

    def restore(self, values: Iterable[bytes | None]) -> None:
        """Takes in samples as the topic stores them; others than samples are skipped."""
        skipped = 0
        for raw in values:
            try:
                self._ring.add(parse_sample(raw or b""), self._now_ms())
            except InvalidInput:
                skipped += 1
        if skipped:
            logger.warning("history records unreadable", extra={"records": skipped})

    def of_group(self, group: str) -> GroupHistory:
        """The last hour of a group. Raises UnknownGroup, Unavailable."""
        self._view.check_group(group)
        return self._ring.of_group(group, self._now_ms())

    def of_stream(self, group: str, stream: int) -> StreamHistory:
        """The last hour of a stream. Raises UnknownGroup, UnknownStream, Unavailable."""
        self._view.stream(group, stream)
        return self._ring.of_stream(group, stream, self._now_ms())

    def _sessions_per_s(self, group: str, rows: Iterable[StreamRow], since_ms: int) -> Number:
        before = self._sessions.get(group)
        gained, self._sessions[group] = sessions_between(before or {}, rows)
        return None if before is None or since_ms <= 0 else gained * 1000 / since_ms

    def _lake_behind_s(self, group: str, now_ms: int) -> Number:
        rows = (row for row in self._freshness() if row.group == group)
        return next((row.behind_s for row in rows if now_ms - row.measured_at <= FRESH_MS), None)
