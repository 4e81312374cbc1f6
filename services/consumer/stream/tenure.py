"""Decides when a worker may act: while the lease is alive, and after a pause if the claim is still its own.

A lease that ends does not end the claim: the ZooKeeper session may survive. So a worker whose lease is over
pauses, and when the lease is back it reads the claim afresh, because another member may have claimed the
stream meanwhile. Used by `worker.py`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging

from services.consumer.stream.context import Claimed
from shared.errors import NotOwner, Unavailable

logger = logging.getLogger(__name__)

LEASE_POLL_S = 0.1


class Tenure:
    """A stream claimed in one epoch. Every wait ends early when `still`, the request to stop, is set."""

    def __init__(self, stream: int, epoch: int, claimed: Claimed, still: asyncio.Event) -> None:
        self._stream, self._epoch = stream, epoch
        self._claimed, self._still = claimed, still

    def __repr__(self) -> str:
        return f"<Tenure of stream {self._stream} in epoch {self._epoch}>"

    async def await_lease(self) -> bool:
        """Past its lease the member neither reads nor commits; back in it, the claim is read afresh. Returns
        whether it had to wait.

        Raises NotOwner when the claim is gone.
        """
        if self._claimed.lease_alive() or self._still.is_set():
            return False
        logger.warning("lease expired, pausing", extra={"stream": self._stream})
        while not self._claimed.lease_alive() and not self._still.is_set():
            await self.pause(LEASE_POLL_S)
        if not await self.is_still_mine():
            raise NotOwner(f"stream {self._stream}: the claim of epoch {self._epoch} is gone")
        return True

    async def is_still_mine(self) -> bool:
        """Whether the claim, read afresh, is this worker's; False as well once it is asked to stop."""
        while not self._still.is_set():
            try:
                return await self._claimed.is_mine()
            except Unavailable:  # no answer says nothing about the claim, so ask again
                await self.pause(LEASE_POLL_S)
        return False

    async def pause(self, seconds: float) -> None:
        """Waits, but not beyond a request to stop."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._still.wait()
