"""Measures in the background how fresh the lake is, so `GET /tables` and `/metrics` answer from memory."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Collection

from services.control.core.lake.freshness import FreshnessRow, Positions, row_of
from services.control.live.view.cluster_view import ClusterView
from services.control.ports import HeldPositions, SessionsTopics
from shared.errors import BatonError, NotFound
from shared.model.names import Names

logger = logging.getLogger(__name__)


class Freshness:
    """`run()` measures until cancelled; `rows()` answers from memory.

    `scheduled`: the groups that have a schedule for `lake`. Without a table, they lack everything, and nobody
    expects one of the others.
    """

    def __init__(
        self,
        lake: HeldPositions,
        topics: SessionsTopics,
        view: ClusterView,
        names: Names,
        *,
        every_s: float,
        scheduled: Collection[str] = (),
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        self._lake = lake
        self._topics = topics
        self._view = view
        self._names = names
        self._every_s = every_s
        self._scheduled = scheduled
        self._now_ms = now_ms
        self._rows: dict[str, FreshnessRow] = {}
        self._error = ""

    def __repr__(self) -> str:
        return f"<Freshness of {len(self._rows)} groups>"

    async def run(self) -> None:
        """Measures every `every_s` until cancelled."""
        while True:
            await self.step()
            await asyncio.sleep(self._every_s)

    def rows(self) -> list[FreshnessRow]:
        """The last rows, by group. While measuring fails they grow old, which `measured_at` shows."""
        return [self._rows[group] for group in sorted(self._rows)]

    async def step(self) -> None:
        """Measures once. A failure keeps the last rows and is logged once."""
        try:
            groups: Collection[str] = self._view.served(with_offsets=False).observed.cluster.groups
            try:
                positions = await asyncio.to_thread(self._lake.read, frozenset(groups))
            except NotFound:
                positions, groups = {}, [group for group in groups if group in self._scheduled]
            self._rows, self._error = await self._rows_of(groups, positions), ""
        except BatonError as error:
            if self._error != error.detail:
                logger.warning("freshness not measured", extra={"why": error.detail})
            self._error = error.detail

    async def _rows_of(self, groups: Collection[str], positions: Positions) -> dict[str, FreshnessRow]:
        rows = {}
        for group in groups:
            state = await self._topics.describe(group)
            if state is not None:
                held = positions.get((group, state.topic_id), {})
                state = await self._topics.with_oldest(group, state, held)
                rows[group] = row_of(group, self._names.sessions(group), held, state, self._now_ms())
        return rows
