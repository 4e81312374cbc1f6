"""Paces a demo's import, so that each incident finds open sessions and arriving fragments.

Without it the whole log is in Kafka, and its sessions are closed, before the first stream has moved. An
incident begins when its share of the log is in Kafka. While it lasts, the import is slow, and stops after
another share; otherwise it runs as fast as it can.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

from cli.http.receipts import Receipt
from cli.importing.sending.lanes import Post

QUARTERS = 4
PAUSE_S = 0.5
"""How long a request waits while an incident lasts."""
MOST_FRAGMENTS = 500
"""Of one request."""


class Pace:
    """The pace of a log of about `lines` lines, with an incident at each quarter but the last.

    Until the incident at a quarter is over, at most another eighth of the log (and one request) follows.
    """

    def __init__(self, lines: int, pause_s: float = PAUSE_S) -> None:
        self._lines = lines
        self._pause_s = pause_s
        self._started = 0
        """Lines that were posted, or are being posted."""
        self._answered = 0
        self._over = 0
        """How many incidents are over."""
        self._under_way = False
        self._changed = asyncio.Condition()

    def __repr__(self) -> str:
        return f"<Pace: {self._answered} of {self._lines} lines, {self._over} incidents over>"

    @property
    def batch(self) -> int:
        """How many fragments a request may have: an eighth of the log takes at least 20 requests."""
        return max(1, min(MOST_FRAGMENTS, self._lines // (20 * 2 * QUARTERS)))

    def around(self, post: Post) -> Post:
        """The same post at this pace."""

        async def paced(body: bytes) -> Receipt:
            await self._turn()
            lines = body.count(b"\n") + 1
            self._started += lines
            try:
                receipt = await post(body)
            except BaseException:
                self._started -= lines
                raise
            async with self._changed:
                self._answered += lines
                self._changed.notify_all()
            return receipt

        return paced

    @contextlib.asynccontextmanager
    async def incident(self) -> AsyncIterator[None]:
        """The next incident: the block begins when its quarter of the log is in Kafka."""
        quarter = self._over + 1
        async with self._changed:
            await self._changed.wait_for(lambda: QUARTERS * self._answered >= quarter * self._lines)
        self._under_way = True
        try:
            yield
        finally:
            async with self._changed:
                self._under_way = False
                self._over += 1
                self._changed.notify_all()

    async def release(self) -> None:
        """No other incident comes, even if one has failed: nothing holds the import back any more."""
        async with self._changed:
            self._over = QUARTERS - 1
            self._changed.notify_all()

    async def _turn(self) -> None:
        """Returns when the next request may start."""
        async with self._changed:
            if self._under_way:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(self._pause_s):
                        await self._changed.wait_for(lambda: not self._under_way)
            await self._changed.wait_for(self._has_room)

    def _has_room(self) -> bool:
        if self._over >= QUARTERS - 1:
            return True
        # an eighth beyond the quarter of the incident that comes next or is under way
        return 2 * QUARTERS * self._started < (2 * self._over + 3) * self._lines
