"""Looks for a key to blame when a stream falls behind: the newest records may be nearly all of one key.

Only such streams are looked at, those with the most lag first, a few of them every few seconds. `Problems`
says what was found.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from services.control.core.found import COUNTED, HotKey, hot_key
from services.control.core.report.rows import StreamRow
from services.control.ports import RecordSource
from shared.errors import Unavailable

LOOK_EVERY_S: Final = 5.0
MOST_STREAMS: Final = 3
"""Whose records are read at each look."""


class HotKeys:
    """`run()` looks until cancelled; `known` answers from memory, by stream.

    `rows`: the streams of all groups; may raise Unavailable.
    """

    def __init__(self, rows: Callable[[], Iterable[StreamRow]], records: RecordSource) -> None:
        self._rows = rows
        self._records = records
        self._found: dict[int, HotKey] = {}

    def __repr__(self) -> str:
        return f"<HotKeys of {len(self._found)} streams>"

    async def run(self) -> None:
        """Looks every LOOK_EVERY_S until cancelled."""
        while True:
            await self.step()
            await asyncio.sleep(LOOK_EVERY_S)

    async def step(self) -> None:
        """Looks once. What cannot be read is not known."""
        found: dict[int, HotKey] = {}
        for stream in self._behind():
            with contextlib.suppress(Unavailable):
                hot = hot_key((await self._records.newest(stream, COUNTED, None)).fragments)
                if hot is not None:
                    found[stream] = hot
        self._found = found

    def known(self) -> Mapping[int, HotKey]:
        """What the last look has found."""
        return self._found

    def _behind(self) -> list[int]:
        try:
            rows = [row for row in self._rows() if row.status == "WARN"]
        except Unavailable:
            return []
        rows.sort(key=lambda row: (-(row.lag or 0), row.stream))
        return list(dict.fromkeys(row.stream for row in rows))[:MOST_STREAMS]
