"""Carries out what a member decided: claims, handovers, releases and drops, each in a task of its own.

A slow stream therefore holds up no other. While an effect is being carried out its stream is `busy`, and the
decisions leave it alone. Where an outcome stays unknown nothing is assumed: the next view shows it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from functools import partial
from typing import Any

from services.consumer.core.commits.stream import Stream
from services.consumer.core.handover.rules import BundleRequest, Offer
from services.consumer.core.handover.sent import SentCopy
from services.consumer.core.ownership.dampers import Dampers
from services.consumer.core.ownership.decide import Adopt, Claim, Drop, Effect, HandOver, Release
from services.consumer.core.ownership.lost_owners import LostOwners
from services.consumer.handover.donor import Copied, Donor
from services.consumer.handover.hints import HintStore
from services.consumer.member.events import MemberEvents
from services.consumer.member.workers import StreamWorkers, Vacancy
from services.consumer.ports import Coordinator, Peers
from services.consumer.stream.context import Ask, GroupContext
from services.consumer.stream.slices import in_slices
from services.consumer.stream.worker import Outcome, StreamWorker
from shared.errors import (
    BatonError,
    BundleRejected,
    HandoverRefused,
    HandoverUnreadable,
    PeerUnavailable,
    Unavailable,
)
from shared.model.cluster import View
from shared.model.head import Head

logger = logging.getLogger(__name__)

CALLS_AT_ONCE = 16
"""Claims and releases in flight: 288 streams are claimed in about half a second."""
RETRY_S = 0.5
"""A stream stays busy this much longer after a call whose outcome is unknown: ZooKeeper may be away."""
DRAIN_OFFERS = 5
REOFFER_S = 0.1
"""How often and after which pause a draining member repeats an offer that was refused. The recipient may see
the drain a moment later than the donor, and until then its share is full."""
UNRELEASED = "it ended without releasing its streams: killed, or cut off from ZooKeeper"
FAILURES = (HandoverRefused, PeerUnavailable, BundleRejected)
"""Why a handover fails: the recipient refuses, or does not answer, or the stream is too large to copy."""
LASTING = (BundleRejected, HandoverUnreadable)
"""Another try would fail, too: the stream is too large, or the recipient is of another version."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """`drain_s`: how long a drain may take before the member leaves without releasing the rest;
    `commits_per_s`: of all streams of the group together.

    Each stream commits at the rate divided by the number of the group's streams, owned or not. So a member
    has the share of the streams that it owns, and the shares never exceed the rate, whatever a member sees of
    the others: that number is the same for all. Commits out of turn (too much waits) come on top.
    """

    drain_s: float = 20.0
    commits_per_s: float = 300.0


class EffectRunner:
    """The effects under way for the streams of a member; calls `wake` when one has ended."""

    def __init__(
        self,
        *,
        coordinator: Coordinator,
        context: GroupContext,
        peers: Peers,
        hint_store: HintStore,
        dampers: Dampers,
        pace: Pace,
        events: MemberEvents,
        wake: Callable[[], None],
    ) -> None:
        self.busy: set[int] = set()
        self.drain_until_s: float | None = None
        """By when everything must have been handed over, once the member drains."""
        self.workers = StreamWorkers(
            coordinator=coordinator,
            context=context,
            hint_store=hint_store,
            events=events,
            commits_per_s=pace.commits_per_s,
            # the next one may be opened
            on_open=wake,
            on_end=self._on_end,
        )
        self._coordinator = coordinator
        self._context = context
        self._peers = peers
        self._hint_store = hint_store
        self._dampers = dampers
        self._events = events
        self._wake = wake
        self._lost_owners = LostOwners(coordinator.member)
        self._donor = Donor(coordinator, peers, context.now_s, hint_store.limits.max_body_bytes)
        self._slots = asyncio.Semaphore(CALLS_AT_ONCE)
        self._tasks: asyncio.TaskGroup | None = None
        self._under_way: set[asyncio.Task[None]] = set()

    def __repr__(self) -> str:
        return f"<EffectRunner of {self._coordinator.member}: {sorted(self.busy)}>"

    def work_in(self, tasks: asyncio.TaskGroup) -> None:
        """Starts all effects and streams in this group from now on."""
        self._tasks = self.workers.tasks = tasks

    def cancel(self) -> None:
        """Ends all effects and all streams at once."""
        for task in self._under_way:
            task.cancel()
        self.workers.cancel()

    def start(self, effect: Effect, view: View) -> None:
        """Starts to carry out an effect that was decided by this view."""
        stream = effect.stream
        logger.info("effect started", extra={"effect": effect})
        match effect:
            case Drop():
                doing = self.workers.drop(stream)
            case Adopt():
                doing = self._own(stream, self._coordinator.adopt, "adopted", view, None)
            case Claim(why=why):
                doing = self._own(stream, self._coordinator.claim, why, view, self._vacancy(stream, view))
            case HandOver():
                doing = self._hand_over(effect, view)
            case Release():
                doing = self._release(effect)
        self._spawn(f"{type(effect).__name__} {stream}", stream, doing)

    def _spawn(self, name: str, stream: int, doing: Coroutine[Any, Any, None]) -> None:
        async def carry_out() -> None:
            try:
                await doing
            except Unavailable as error:
                logger.warning("outcome unknown", extra={"task": name, "stream": stream, "why": error.detail})
                await asyncio.sleep(RETRY_S)
            finally:
                self.busy.discard(stream)
                self._wake()

        assert self._tasks is not None
        self.busy.add(stream)
        task = self._tasks.create_task(carry_out(), name=name)
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)

    async def _own(
        self,
        stream: int,
        acquire: Callable[[int], Awaitable[int | None]],
        why: str,
        view: View,
        vacancy: Vacancy | None,
    ) -> None:
        ask = self._last_owner(stream, view)
        async with self._slots:
            epoch = await acquire(stream)
        if epoch is None:
            self._hint_store.withdraw(stream)
            return
        lost = self._lost_owners.note(stream, view, int(self._context.now_s() * 1000))
        if lost is not None:
            logger.warning("owner lost", extra={"owner": lost, "stream": stream})
            self._events.emit("expiry", member=lost, why=UNRELEASED)
        self.workers.start(stream, epoch, of_streams=view.count, why=why, ask=ask, vacancy=vacancy)
        logger.info("stream claimed", extra={"stream": stream, "epoch": epoch, "why": why})

    def _vacancy(self, stream: int, view: View) -> Vacancy | None:
        """Who had the unowned stream last, and since when nobody has it; None if nobody ever had."""
        owner, since_ms = view.node(stream).owner, self._context.wall_ms() - self._dampers.unowned_ms(stream)
        return Vacancy(owner, since_ms) if owner else None

    def _last_owner(self, stream: int, view: View) -> Ask | None:
        """How to ask the unowned stream's last owner for a bundle, if that is another member and present."""
        node = view.node(stream)
        if node.owner == self._coordinator.member or node.seq is None or node.owner not in view.members:
            return None

        # the address at the stream's node may be that of an earlier process of this member
        address = view.members[node.owner].address

        async def ask(head: Head) -> Stream | None:
            request = BundleRequest(
                group=self._context.group,
                stream=stream,
                epoch=head.epoch,
                seq=head.seq,
                member=self._coordinator.member,
                recipient=node.owner,
            )
            try:
                bundle = await self._peers.fetch(address, request)
                return await in_slices(self._hint_store.opening_fetched(stream, bundle))
            except BatonError as error:
                logger.info("bundle not fetched", extra={"stream": stream, "why": error.detail})
                return None

        return ask

    def _on_end(self, worker: StreamWorker, outcome: Outcome) -> None:
        if outcome == "outgrown" and worker.stream not in self.busy:
            self._spawn(f"outgrow {worker.stream}", worker.stream, self._outgrow(worker))
        self._wake()

    async def _outgrow(self, worker: StreamWorker) -> None:
        """Raises the epoch of a claim that is really this member's: ZooKeeper was reset and Kafka was not."""
        epoch = await self._coordinator.raise_epoch(worker.stream, worker.stored_epoch)
        if epoch is not None:
            logger.warning("ZooKeeper was reset", extra={"stream": worker.stream, "epoch": epoch})
            self._events.emit("reset", stream=worker.stream, epoch=epoch)

    async def _hand_over(self, effect: HandOver, view: View) -> None:
        worker, node = self.workers.worker(effect.stream), view.members.get(effect.target)
        if worker is None or node is None:
            return
        accepted = await self._offer(effect, node.address, worker)
        if accepted is not None:
            try:
                freeze = partial(self.workers.freeze, effect.stream)
                try:
                    released = await self._donor.finish(effect, node.address, worker, freeze, accepted)
                finally:
                    await self.workers.stop(effect.stream)
            except FAILURES as error:
                self._note_failure(effect, error)
            else:
                self._note_release(effect, released)
        elif effect.or_release:
            await self._release(
                Release(stream=effect.stream, epoch=effect.epoch, target=effect.target, why=effect.why)
            )

    async def _offer(
        self, effect: HandOver, address: str, worker: StreamWorker
    ) -> tuple[SentCopy, Offer, float] | None:
        """What the recipient has accepted, and how many ms that took; None if it has not."""
        offers = DRAIN_OFFERS if effect.or_release else 1
        copied: Copied | None = None
        while (core := worker.core) is not None:
            try:
                # a refused copy can be offered again: the delta will have what has changed since
                if copied is None or copied.base.stream is not core:
                    copied = await self._donor.copy(core)
                return await self._donor.offer(effect, address, copied, self._left_ms())
            except FAILURES as error:
                self._note_failure(effect, error)
                offers -= 1
                if offers == 0 or isinstance(error, LASTING) or not isinstance(error, HandoverRefused):
                    break
            await asyncio.sleep(REOFFER_S)
        return None

    def _left_ms(self) -> int:
        """How much time is left for all moves; 0 if the member does not drain."""
        if self.drain_until_s is None:
            return 0
        return max(1, int((self.drain_until_s - self._context.now_s()) * 1000))

    async def _release(self, release: Release) -> None:
        worker = self.workers.worker(release.stream)
        await self.workers.stop(release.stream)
        async with self._slots:
            released = await self._coordinator.release(
                release.stream, release.epoch, worker.seq if worker is not None else None, release.target
            )
        self._note_release(release, released)

    def _note_failure(self, effect: HandOver, error: BatonError) -> None:
        logger.info("handover failed", extra={"effect": effect, "why": error.detail})
        now_ms = int(self._coordinator.now_s() * 1000)
        if isinstance(error, LASTING):  # not for the target to mend: it gets other streams
            self._dampers.failed_moves.note(effect.stream, now_ms, is_lasting=True)
            return
        silent = isinstance(error, PeerUnavailable)
        self._dampers.note_failed_handover(effect.stream, effect.target, now_ms, silent=silent)

    def _note_release(self, effect: HandOver | Release, released: bool) -> None:
        logger.info("stream released", extra={"stream": effect.stream, "to": effect.target, "done": released})
        if released:
            self._events.emit(
                "release",
                stream=effect.stream,
                epoch=effect.epoch,
                target=effect.target or "",
                why=effect.why,
            )
