"""Gives a running stream to another member, live: the donor's part of a handover (docs/handover.md).

First a copy, while the stream runs on; then the stop, the delta, the release. A step that fails before the
release leaves the claim with the donor: the member finds a claim that it does not run, confirms it, and goes
on from memory. The stopped state is kept for a while, in case the recipient has to fetch it.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

from services.consumer.core.commits.stream import Stream
from services.consumer.core.handover.bundle import SentCopy, copying, take_delta
from services.consumer.core.handover.rules import Offer, completion_of, offer_of
from services.consumer.core.ownership.decide import HandOver
from services.consumer.ports import Coordinator, Peers
from services.consumer.stream.slices import in_slices
from services.consumer.stream.worker import StreamWorker

logger = logging.getLogger(__name__)


class Donor:
    """The donor's part, for all streams of a member; `now_s` measures how long the copy takes."""

    def __init__(self, coordinator: Coordinator, peers: Peers, now_s: Callable[[], float]) -> None:
        self._coordinator = coordinator
        self._peers = peers
        self._now_s = now_s

    def __repr__(self) -> str:
        return f"<Donor {self._coordinator.member}>"

    async def offer(self, effect: HandOver, address: str, core: Stream) -> tuple[SentCopy, Offer, float]:
        """Step 1: sends all open sessions. Returns what the recipient now holds and how many ms it took.

        Raises HandoverRefused, PeerUnavailable; nothing has changed then.
        """
        started_s = self._now_s()
        body, base = await in_slices(copying(core))
        offer = offer_of(
            base,
            epoch=effect.epoch,
            donor=self._coordinator.member,
            recipient=effect.target,
            why=effect.why,
        )
        await self._peers.offer(address, offer, body)
        return base, offer, (self._now_s() - started_s) * 1000

    async def finish(
        self,
        effect: HandOver,
        address: str,
        worker: StreamWorker,
        freeze: Callable[[], Awaitable[None]],
        accepted: tuple[SentCopy, Offer, float],
    ) -> bool:
        """Steps 2 and 3: stops, sends what has changed, committed or not, and releases; whether it did.

        Raises HandoverRefused, PeerUnavailable, ZooKeeperUnavailable. The stream is stopped then; after the
        last of these it is unknown whether it was released.
        """
        base, offer, copy_ms = accepted
        await freeze()
        core = worker.core
        # After an unknown commit the worker opened its stream anew, perhaps below the copy: a delta on that
        # copy would skip records.
        if core is None or core is not base.stream or not core.is_memory:
            logger.warning("handover abandoned: unknown commit", extra={"stream": effect.stream})
            return False
        delta = take_delta(core, base)
        completion = completion_of(base, delta, offer, copy_ms=copy_ms, stopped_at_ms=worker.stopped_at_ms)
        await self._peers.complete(address, completion, delta)
        return await self._coordinator.release(effect.stream, effect.epoch, core.head.seq, effect.target)
