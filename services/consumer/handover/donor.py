"""Gives a running stream to another member, live: the donor's part of a handover (docs/handover.md).

First a copy while the stream goes on, then the stop, the delta, the release. A step that fails before the
release leaves the claim where it is: the member finds a claim of its own that it does not run, confirms it,
and goes on from memory. What it stopped with is kept, for the recipient to fetch.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

from services.consumer.core.commits.stream import Stream
from services.consumer.core.handover.bundle import SentCopy, take_copy, take_delta
from services.consumer.core.handover.rules import Completion, Offer
from services.consumer.core.ownership.decide import HandOver
from services.consumer.ports import Coordinator, Peers
from services.consumer.stream.worker import StreamWorker
from shared.service.signing import digest_of

logger = logging.getLogger(__name__)


class Donor:
    """The donor's part, for all streams of a member; `now_s` measures how long the copy takes."""

    def __init__(
        self, group: str, coordinator: Coordinator, peers: Peers, now_s: Callable[[], float]
    ) -> None:
        self._group = group
        self._coordinator = coordinator
        self._peers = peers
        self._now_s = now_s

    def __repr__(self) -> str:
        return f"<Donor {self._coordinator.member} of {self._group}>"

    async def offer(self, effect: HandOver, address: str, core: Stream) -> tuple[SentCopy, float]:
        """Step 1: sends all open sessions; what the recipient now has, and how many ms it took.

        Raises HandoverRefused, PeerUnavailable; nothing has changed then.
        """
        began_s = self._now_s()
        body, base = take_copy(core)
        offer = Offer(
            group=self._group,
            stream=effect.stream,
            epoch=effect.epoch,
            donor=self._coordinator.member,
            position=base.position,
            digest=base.digest,
            sessions=len(core.assembler.open),
            bytes=core.assembler.state_bytes,
            why=effect.why,
        )
        await self._peers.offer(address, offer, body)
        return base, (self._now_s() - began_s) * 1000

    async def finish(
        self,
        effect: HandOver,
        address: str,
        worker: StreamWorker,
        freeze: Callable[[], Awaitable[None]],
        base: SentCopy,
        copy_ms: float,
    ) -> bool:
        """Steps 2 and 3: stops, sends what has changed, committed or not, releases. Whether it is released.

        Raises HandoverRefused, PeerUnavailable, ZooKeeperUnavailable: the stream is stopped, the outcome
        of the release, if it came to it, unknown.
        """
        await freeze()
        core = worker.core
        # a worker that had to open its stream anew meanwhile may stand below the copy
        if core is None or core is not base.stream or not core.is_memory:
            logger.warning("stopped after an unknown commit", extra={"stream": effect.stream})
            return False
        delta = take_delta(core, base)
        completion = Completion(
            group=self._group,
            stream=effect.stream,
            epoch=effect.epoch,
            donor=self._coordinator.member,
            head_epoch=core.head.epoch,
            seq=core.head.seq,
            base_position=base.position,
            base_digest=base.digest,
            position=core.assembler.position,
            digest=digest_of(delta),
            why=effect.why,
            copy_ms=round(copy_ms, 1),
            stopped_at_ms=worker.stopped_at_ms,
            node_version=self._coordinator.version_after_release(effect.stream, effect.epoch),
        )
        await self._peers.complete(address, completion, delta)
        return await self._coordinator.release(effect.stream, effect.epoch, core.head.seq, effect.target)
