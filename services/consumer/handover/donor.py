"""Gives a running stream to another member, live: the donor's part of a handover (docs/handover.md).

First a copy, while the stream runs on; then the stop, the delta, the release. A step that fails before the
release leaves the claim with the donor: the member finds a claim that it does not run, confirms it, and goes
on from memory. The stopped state is kept for a while, in case the recipient has to fetch it.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from services.consumer.core.commits.stream import Stream
from services.consumer.core.handover.bundle_format import digesting
from services.consumer.core.handover.rules import Offer, completion_of, offer_of
from services.consumer.core.handover.sent import SentCopy, copying, taking_delta
from services.consumer.core.ownership.decide import HandOver
from services.consumer.ports import Coordinator, Peers
from services.consumer.stream.slices import in_slices
from services.consumer.stream.worker import StreamWorker
from shared.errors import BundleRejected

logger = logging.getLogger(__name__)


class Copied(NamedTuple):
    """A stream's first copy, encoded, and how many ms that took."""

    body: bytes
    base: SentCopy
    ms: float


class Donor:
    """The donor's part, for all streams of a member; `now_s` measures how long the copy takes.

    It sends no body of more than `max_body_bytes`: the recipients have the same bound.
    """

    def __init__(
        self, coordinator: Coordinator, peers: Peers, now_s: Callable[[], float], max_body_bytes: int
    ) -> None:
        self._coordinator = coordinator
        self._peers = peers
        self._now_s = now_s
        self._max_body_bytes = max_body_bytes

    def __repr__(self) -> str:
        return f"<Donor {self._coordinator.member}>"

    async def copy(self, core: Stream) -> Copied:
        """All open sessions, to be offered. Raises BundleRejected if they are too large to hand over."""
        began_s = self._now_s()
        # a bundle contains the fragments as they are, so these alone may show that encoding is in vain
        self._check_size(core.state_bytes)
        body, base = await in_slices(copying(core))
        self._check_size(len(body))
        return Copied(body, base, (self._now_s() - began_s) * 1000)

    async def offer(
        self, effect: HandOver, address: str, copied: Copied, within_ms: int
    ) -> tuple[SentCopy, Offer, float]:
        """Step 1: sends a copy; returns when it is the stream's turn to stand still: what the recipient holds
        now, and how many ms this took with copying. `within_ms`: the time left for all moves, 0 for any.

        Raises HandoverRefused, PeerUnavailable; nothing has changed then, and the copy can be offered again.
        """
        began_s = self._now_s()
        body, base, copy_ms = copied
        offer = offer_of(
            base,
            epoch=effect.epoch,
            donor=self._coordinator.member,
            recipient=effect.target,
            why=effect.why,
            left=effect.left,
            within_ms=within_ms,
        )
        await self._peers.offer(address, offer, body)
        return base, offer, copy_ms + (self._now_s() - began_s) * 1000

    async def finish(
        self,
        effect: HandOver,
        address: str,
        worker: StreamWorker,
        freeze: Callable[[], Awaitable[None]],
        accepted: tuple[SentCopy, Offer, float],
    ) -> bool:
        """Steps 2 and 3: stops, sends what has changed, committed or not, and releases; whether it did.

        Raises HandoverRefused, PeerUnavailable, BundleRejected if the delta is too large, and
        ZooKeeperUnavailable. The stream is stopped then; after the last of these it is unknown whether it was
        released.
        """
        base, offer, copy_ms = accepted
        await freeze()
        core = worker.core
        # After an unknown commit the worker opened its stream anew, perhaps below the copy: a delta on that
        # copy would skip records.
        if core is None or core is not base.stream or not core.is_memory:
            logger.warning("handover abandoned: unknown commit", extra={"stream": effect.stream})
            return False
        delta = await in_slices(taking_delta(core, base))
        self._check_size(len(delta))
        digest = await in_slices(digesting(delta))
        completion = completion_of(
            offer, digest, copy_ms=copy_ms, stopped_at_ms=worker.timeline.stopped_at_ms
        )
        await self._peers.complete(address, completion, delta)
        return await self._coordinator.release(effect.stream, effect.epoch, core.head.seq, effect.target)

    def _check_size(self, size: int) -> None:
        if size > self._max_body_bytes:
            raise BundleRejected(f"too large to hand over: {size} bytes, at most {self._max_body_bytes}")
