"""Carries out what a member decided: claims, handovers, releases, drops, each as a task of its own.

So one slow stream holds up no other; a stream with something under way is `busy` and left alone by the
decisions. An outcome that stays unknown is nobody's here: the next view tells what came of it.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from functools import partial
from typing import Any

from services.consumer.core.commits.stream import Stream
from services.consumer.core.handover.rules import Wanted
from services.consumer.core.ownership.decide import Adopt, Claim, Drop, Effect, HandOver, Release, Running
from services.consumer.handover.donor import Donor, Refusals
from services.consumer.handover.hints import HintStore
from services.consumer.member.events import MemberEvents
from services.consumer.member.workers import StreamWorkers
from services.consumer.ports import Coordinator, Peers
from services.consumer.stream.context import Ask, GroupContext
from services.consumer.stream.worker import Outcome, StreamWorker
from shared.errors import BatonError, HandoverRefused, PeerUnavailable, Unavailable
from shared.model.cluster import View
from shared.model.head import Head

logger = logging.getLogger(__name__)

CALLS_AT_ONCE = 16
"""Claims and releases in flight: 288 streams are claimed in about half a second."""
RETRY_S = 0.5
REFUSED_PAUSE_S = 0.1
"""After a refusal, for both sides to see what has changed: then it is decided anew."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How fast a member does things. `drain_s`: how long leaving may take before it leaves without order."""

    drain_s: float = 20.0
    commits_per_s: float = 100.0
    moves_per_s: int = 50
    rest_s: float = 10.0
    """A stream that has come from another member stays for so long, unless this one drains."""


class EffectRunner:
    """What is under way for the streams of a member; `wake` is called when something has come to an end."""

    def __init__(
        self,
        *,
        coordinator: Coordinator,
        context: GroupContext,
        peers: Peers,
        hint_store: HintStore,
        pace: Pace,
        events: MemberEvents,
        wake: Callable[[], None],
    ) -> None:
        self.busy: set[int] = set()
        self.workers = StreamWorkers(
            coordinator=coordinator,
            context=context,
            hint_store=hint_store,
            events=events,
            commits_per_s=pace.commits_per_s,
            on_end=self._on_end,
        )
        self._coordinator = coordinator
        self._context = context
        self._peers = peers
        self._hint_store = hint_store
        self._pace = pace
        self._events = events
        self._wake = wake
        self._donor = Donor(context.group, coordinator, peers, context.now_s)
        self._refusals = Refusals(context.now_s)
        self._moved_s: deque[float] = deque()
        self._slots = asyncio.Semaphore(CALLS_AT_ONCE)
        self._tasks: asyncio.TaskGroup | None = None
        self._under_way: set[asyncio.Task[None]] = set()

    def __repr__(self) -> str:
        return f"<EffectRunner of {self._coordinator.member}: {sorted(self.busy)}>"

    def work_in(self, tasks: asyncio.TaskGroup) -> None:
        """Everything that is begun runs in this group."""
        self._tasks = self.workers.tasks = tasks

    def cancel(self) -> None:
        """Ends all of it, and all streams, at once."""
        for task in self._under_way:
            task.cancel()
        self.workers.cancel()

    def running(self) -> dict[int, Running]:
        """What runs, as `core/ownership/decide.py` wants to know it."""
        return self.workers.running(self._pace.rest_s, self._refusals.has_failed)

    @property
    def shunned(self) -> set[str]:
        """Members that have lately refused an offer, or did not answer."""
        return self._refusals.members

    def moves_left(self) -> int:
        """How many handovers may begin now, but for a drain's."""
        second_ago_s = self._context.now_s() - 1.0
        while self._moved_s and self._moved_s[0] <= second_ago_s:
            self._moved_s.popleft()
        return self._pace.moves_per_s - len(self._moved_s)

    def begin(self, effect: Effect, view: View) -> None:
        """Begins to carry out what was decided by this view."""
        stream = effect.stream
        logger.info("begins", extra={"effect": effect})
        match effect:
            case Drop():
                doing = self.workers.drop(stream)
            case Adopt():
                doing = self._own(stream, self._coordinator.adopt, "adopted", view)
            case Claim(why=why):
                doing = self._own(stream, self._coordinator.claim, why, view)
            case HandOver():
                self._moved_s.append(self._context.now_s())
                doing = self._hand_over(effect, view)
            case Release():
                doing = self._release(effect)
        self._spawn(f"{type(effect).__name__} {stream}", stream, doing)

    def _spawn(self, name: str, stream: int, doing: Coroutine[Any, Any, None]) -> None:
        async def carry_out() -> None:
            try:
                await doing
            except Unavailable as error:
                # unknown: the next view tells what came of it
                logger.warning(f"{name}: unknown outcome", extra={"stream": stream, "why": error.detail})
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
        self, stream: int, take: Callable[[int], Awaitable[int | None]], why: str, view: View
    ) -> None:
        session_id = self._coordinator.session_id
        ask, came = self._owner_before(stream, view)
        async with self._slots:
            epoch = await take(stream)
        if epoch is None:
            self._hint_store.withdraw(stream)
            return
        self.workers.start(stream, epoch, session_id, why=why, ask=ask, came=came)
        logger.info("claimed", extra={"stream": stream, "epoch": epoch, "why": why})

    def _owner_before(self, stream: int, view: View) -> tuple[Ask | None, bool]:
        """How to ask the unowned stream's last owner for a bundle; whether that was another member."""
        node = view.node(stream)
        if node.owner in ("", self._coordinator.member):
            return None, False
        if node.seq is None or node.owner not in view.members:
            return None, True

        address = view.members[node.owner].address  # what the stream's node says may be of an earlier life

        async def ask(head: Head) -> Stream | None:
            wanted = Wanted(
                group=self._context.group,
                stream=stream,
                epoch=head.epoch,
                seq=head.seq,
                member=self._coordinator.member,
            )
            try:
                return self._hint_store.open_fetched(stream, await self._peers.fetch(address, wanted))
            except BatonError as error:
                logger.info("no bundle to be had", extra={"stream": stream, "why": error.detail})
                return None

        return ask, True

    def _on_end(self, worker: StreamWorker, outcome: Outcome) -> None:
        if outcome == "outgrown" and worker.stream not in self.busy:
            self._spawn(f"outgrow {worker.stream}", worker.stream, self._outgrow(worker))
        self._wake()

    async def _outgrow(self, worker: StreamWorker) -> None:
        """ZooKeeper was reset and Kafka kept: a claim that is really mine gets a higher epoch."""
        epoch = await self._coordinator.raise_epoch(worker.stream, worker.stored_epoch)
        if epoch is not None:
            logger.warning("ZooKeeper was reset", extra={"stream": worker.stream, "epoch": epoch})
            self._events.emit("reset", stream=worker.stream, epoch=epoch)

    async def _hand_over(self, effect: HandOver, view: View) -> None:
        worker, node = self.workers.worker(effect.stream), view.members.get(effect.target)
        if worker is None or worker.core is None or node is None:
            return
        try:
            base, copy_ms = await self._donor.offer(effect, node.address, worker.core)
            freeze = partial(self.workers.freeze, effect.stream)
            try:
                released = await self._donor.finish(effect, node.address, worker, freeze, base, copy_ms)
            finally:
                await self.workers.stop(effect.stream)
        except (HandoverRefused, PeerUnavailable) as error:
            logger.info("not handed over", extra={"effect": effect, "why": error.detail})
            self._refusals.note(effect, error)
            await asyncio.sleep(REFUSED_PAUSE_S)
            return
        self._note_release(effect, released)

    async def _release(self, release: Release) -> None:
        worker = self.workers.worker(release.stream)
        await self.workers.stop(release.stream)
        async with self._slots:
            released = await self._coordinator.release(
                release.stream, release.epoch, worker.seq if worker is not None else None, release.target
            )
        self._note_release(release, released)

    def _note_release(self, effect: HandOver | Release, released: bool) -> None:
        logger.info("released", extra={"stream": effect.stream, "to": effect.target, "done": released})
        if released:
            self._events.emit(
                "release",
                stream=effect.stream,
                epoch=effect.epoch,
                target=effect.target or "",
                why=effect.why,
            )
