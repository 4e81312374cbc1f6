"""Whether a member is to leave its group: asked by `drain`, taken back by `undrain`, final with its process.

Used by `member.py`, which hands everything over while the departure is wanted.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from shared.errors import Conflict

logger = logging.getLogger(__name__)


class Departure:
    """`is_wanted`: the member is to leave. `is_final`: it no longer can take that back.

    `wake` is called when either has changed.
    """

    def __init__(self, member: str, wake: Callable[[], None]) -> None:
        self._member = member
        self._wake = wake
        self.is_wanted = self.is_final = False

    def __repr__(self) -> str:
        return f"<Departure of {self._member}: wanted {self.is_wanted}, final {self.is_final}>"

    def drain(self, why: str) -> None:
        """The member is to leave."""
        if not self.is_wanted:
            logger.info("draining", extra={"why": why})
            self.is_wanted = True
            self._wake()

    def undrain(self, why: str) -> None:
        """The member is to stay. Raises Conflict if it does not drain, has left, or ends with its process."""
        if not self.is_wanted:
            raise Conflict(f"{self._member} is not draining")
        if self.is_final:
            raise Conflict(f"{self._member} has left, or its process ends: a restart makes it join again")
        logger.info("no longer draining", extra={"why": why})
        self.is_wanted = False
        self._wake()

    async def follow(self, stop: asyncio.Event) -> None:
        """Drains for good once the process is stopped."""
        await stop.wait()
        self.is_final = True
        self.drain("stopped")
