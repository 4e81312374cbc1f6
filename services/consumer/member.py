"""One member of a group: joins, looks, and brings what it runs in line with the view.

The shell around `core/ownership.py`: whenever the view or what runs has changed, it asks for the effects
and carries each out as a named task of its own, so that one slow stream holds up no other. Streams with
something under way are `busy` and left alone. Leaving is a drain: everything is handed over or released.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from functools import partial
from typing import Any

import msgspec

from services.consumer.core.handover import HandoverLimits, Situation, Wanted
from services.consumer.core.ownership import (
    Adopt,
    Claim,
    Drop,
    Effect,
    HandOver,
    OwnershipSettings,
    Release,
    Seen,
    decide,
    look,
)
from services.consumer.core.stream import Stream
from services.consumer.donor import Donor, Refusals
from services.consumer.handovers import HandoverDesk
from services.consumer.hold import Ask, Surroundings
from services.consumer.ports import Coordinator, Peers
from services.consumer.runner import StreamRunner
from services.consumer.stream_worker import Outcome, StreamWorker
from services.consumer.watchdog import ReaderWatchdog
from shared.balance import plan
from shared.cluster import MemberNode, View
from shared.errors import BatonError, HandoverRefused, PeerUnavailable, Unavailable
from shared.events import Event, Kind
from shared.heads import Head

log = logging.getLogger(__name__)

LOOK_EVERY_S = 1.0
COALESCE_S = 0.03
"""Changes that come together are looked at together."""
CALLS_AT_ONCE = 16
"""Claims and releases in flight: 288 streams are claimed in about half a second."""
RETRY_S = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How fast a member does things. `drain_s`: how long leaving may take before it leaves without order."""

    drain_s: float = 20.0
    commits_per_s: float = 100.0
    moves_per_s: int = 50
    rest_s: float = 10.0
    """A stream that has come from another member stays for so long, unless this one drains."""


class Member:
    """Runs the streams that it owns; `run` returns after everything was given up."""

    def __init__(
        self,
        *,
        coordinator: Coordinator,
        around: Surroundings,
        node: MemberNode,
        peers: Peers,
        settings: OwnershipSettings,
        pace: Pace,
        limits: HandoverLimits,
        tell: Callable[[Event], None] = lambda event: None,
    ) -> None:
        self.coordinator = coordinator
        self.node = node
        self.view: View | None = None
        self._around = around
        self._peers = peers
        self._settings = settings
        self._pace = pace
        self._tell = tell
        self._seen = Seen()
        self._busy: set[int] = set()
        self._wake = asyncio.Event()
        self._slots = asyncio.Semaphore(CALLS_AT_ONCE)
        self._tasks: asyncio.TaskGroup | None = None
        self._leaving = asyncio.Event()
        self._has_left = False
        self._moved_s: deque[float] = deque()
        self._session_id: int | None = None
        self.desk = HandoverDesk(
            settings=around.settings,
            stream_limits=around.limits,
            limits=limits,
            now_s=around.now_s,
            situation=self._situation,
            on_expected=self._wake.set,
        )
        self.runner = StreamRunner(
            coordinator=coordinator,
            around=around,
            desk=self.desk,
            tell=tell,
            commits_per_s=pace.commits_per_s,
            on_end=self._on_end,
        )
        self._donor = Donor(around.group, coordinator, peers, around.now_s)
        self._refusals = Refusals(around.now_s)
        self._watchdog = ReaderWatchdog(
            around.log,
            lambda: self.view.count if self.view is not None else 0,
            lambda: self.workers,
            around.now_s,
        )

    def __repr__(self) -> str:
        return f"<Member {self.coordinator.member} {self.state}, {len(self.runner.streams)} streams>"

    @property
    def workers(self) -> list[StreamWorker]:
        """The workers of the streams that it runs, by stream."""
        return self.runner.workers

    @property
    def state(self) -> str:
        """`joining`, `active`, `draining`, or `drained`: it has left the group and only answers."""
        if self._has_left:
            return "drained"
        return self.node.state if self.view is not None else "joining"

    @property
    def lease_ms(self) -> int:
        """How long it may act without another word from ZooKeeper."""
        lease = self.coordinator.lease
        return int(lease.left_s(self.coordinator.now_s()) * 1000) if lease is not None else 0

    def complaints(self) -> list[str]:
        """Why it is not ready; empty when it is."""
        if self._has_left:
            return ["drained: it has left the group"]
        if self.view is None:
            return ["not joined yet"]
        return [] if self.lease_ms else ["the lease is over: ZooKeeper does not answer"]

    def drain(self, why: str) -> None:
        """Begins to leave: everything is handed over, or released where nobody takes it."""
        if not self._leaving.is_set():
            log.info("drains", extra={"why": why})
            self._leaving.set()
            self._wake.set()

    async def run(self, stop: asyncio.Event) -> None:
        """Takes part until `stop` or `drain`; then gives up all it has, within `drain_s`, and leaves."""
        async with asyncio.TaskGroup() as tasks:
            self._tasks = self.runner.tasks = tasks
            watchdog = tasks.create_task(self._watchdog.run(), name="watchdog")
            waker = tasks.create_task(self._drain_on(stop), name="stop")
            while not self._leaving.is_set():
                await self.step()
                await self._until_something_changes()
            try:
                async with asyncio.timeout(self._pace.drain_s):
                    await self._leave()
            except TimeoutError:
                log.warning("left without an orderly release", extra={"streams": sorted(self.runner.streams)})
            self.runner.cancel()
            watchdog.cancel()
            waker.cancel()
        self._has_left = True

    async def step(self) -> None:
        """Once: join if need be, look, decide, begin what is to be done."""
        coordinator = self.coordinator
        try:
            await coordinator.join(self.node)
            view = self.view = await coordinator.view()
        except Unavailable as error:
            log.warning("cannot look", extra={"why": error.detail})
            await self._remake_group()
            return
        self._note_session()
        now_ms = int(coordinator.now_s() * 1000)
        self._seen = look(self._seen, view, now_ms, self._settings)
        effects = decide(
            view,
            coordinator.member,
            self.runner.running(self._pace.rest_s, self._refusals.has_failed),
            busy=self._busy,
            session_age_ms=coordinator.session_age_ms,
            seen=self._seen,
            settings=self._settings,
            shunned=self._refusals.members,
            moves_left=self._moves_left(),
        )
        for effect in effects:
            self._begin(effect)

    def plan(self) -> dict[str, Any]:
        """What would move, and everyone's quota, by this member's view."""
        found = plan(self.view) if self.view is not None else None
        if found is None:
            return {"moves": [], "quota": {}}
        moves = [
            {"stream": move.stream, "from": move.source, "to": move.target, "why": move.why}
            for move in found.moves
        ]
        return {"moves": moves, "quota": dict(found.quota)}

    async def _remake_group(self) -> None:
        """When ZooKeeper was reset under a running member, somebody has to make the group again."""
        try:
            await self.coordinator.ensure_group(self._around.settings)
        except Unavailable as error:
            log.warning("cannot make the group", extra={"why": error.detail})

    def _note_session(self) -> None:
        """Tells of a ZooKeeper session that ended, and that this member is there (again)."""
        before, self._session_id = self._session_id, self.coordinator.session_id
        if before == self._session_id:
            return
        if before is not None:
            log.warning("the ZooKeeper session has expired")
            self._say("expiry")
        self._say("join")

    def _situation(self) -> Situation | None:
        """How this member stands when an offer comes."""
        if self.view is None or self._has_left:
            return None
        wanted, me = plan(self.view), self.coordinator.member
        return Situation(
            group=self._around.group,
            member=me,
            view=self.view,
            planned=wanted.owner,
            quota=wanted.quota.get(me, 0),
            promised=self.desk.promised,
            lease_ms=self.lease_ms,
        )

    def _moves_left(self) -> int:
        second_ago_s = self._around.now_s() - 1.0
        while self._moved_s and self._moved_s[0] <= second_ago_s:
            self._moved_s.popleft()
        return self._pace.moves_per_s - len(self._moved_s)

    def _begin(self, effect: Effect) -> None:
        stream = effect.stream
        log.info("begins", extra={"effect": effect})
        match effect:
            case Drop():
                doing = self.runner.drop(stream)
            case Adopt():
                doing = self._own(stream, self.coordinator.adopt, "adopted")
            case Claim(why=why):
                doing = self._own(stream, self.coordinator.claim, why)
            case HandOver():
                self._moved_s.append(self._around.now_s())
                doing = self._hand_over(effect)
            case Release():
                doing = self._release(effect)
        self._spawn(f"{type(effect).__name__} {stream}", stream, doing)

    def _spawn(self, name: str, stream: int, doing: Coroutine[Any, Any, None]) -> None:
        async def carry_out() -> None:
            try:
                await doing
            except Unavailable as error:
                # unknown: the next view tells what came of it
                log.warning(f"{name}: unknown outcome", extra={"stream": stream, "why": error.detail})
                await asyncio.sleep(RETRY_S)
            finally:
                self._busy.discard(stream)
                self._wake.set()

        assert self._tasks is not None
        self._busy.add(stream)
        self._tasks.create_task(carry_out(), name=name)

    async def _own(self, stream: int, take: Callable[[int], Awaitable[int | None]], why: str) -> None:
        session_id = self.coordinator.session_id
        ask, came = self._owner_before(stream)
        async with self._slots:
            epoch = await take(stream)
        if epoch is None:
            self.desk.withdraw(stream)
            return
        self.runner.start(stream, epoch, session_id, why=why, ask=ask, came=came)
        log.info("claimed", extra={"stream": stream, "epoch": epoch, "why": why})

    def _owner_before(self, stream: int) -> tuple[Ask | None, bool]:
        """How to ask the unowned stream's last owner for a bundle; whether that was another member."""
        assert self.view is not None
        node = self.view.node(stream)
        if node.owner in ("", self.coordinator.member):
            return None, False
        if node.seq is None or node.owner not in self.view.members:
            return None, True

        async def ask(head: Head) -> Stream | None:
            wanted = Wanted(
                group=self._around.group,
                stream=stream,
                epoch=head.epoch,
                seq=head.seq,
                member=self.coordinator.member,
            )
            try:
                return self.desk.open_fetched(stream, await self._peers.fetch(node.address, wanted))
            except BatonError as error:
                log.info("no bundle to be had", extra={"stream": stream, "why": error.detail})
                return None

        return ask, True

    def _on_end(self, worker: StreamWorker, outcome: Outcome) -> None:
        if outcome == "lost" and worker.stored_epoch > worker.epoch and worker.stream not in self._busy:
            self._spawn(f"outgrow {worker.stream}", worker.stream, self._outgrow(worker))
        self._wake.set()

    async def _outgrow(self, worker: StreamWorker) -> None:
        """ZooKeeper was reset and Kafka kept: a claim that is really mine gets a higher epoch."""
        epoch = await self.coordinator.raise_epoch(worker.stream, worker.stored_epoch)
        if epoch is not None:
            log.warning("ZooKeeper was reset", extra={"stream": worker.stream, "epoch": epoch})
            self._say("reset", stream=worker.stream, epoch=epoch)

    async def _hand_over(self, effect: HandOver) -> None:
        assert self.view is not None
        worker, node = self.runner.worker(effect.stream), self.view.members.get(effect.target)
        if worker is None or worker.core is None or node is None:
            return
        try:
            base, copy_ms = await self._donor.offer(effect, node.address, worker.core)
            stop = partial(self.runner.stop, effect.stream)
            released = await self._donor.finish(effect, node.address, worker, stop, base, copy_ms)
        except (HandoverRefused, PeerUnavailable) as error:
            log.info("not handed over", extra={"effect": effect, "why": error.detail})
            self._refusals.note(effect, error)
            return
        self._note_release(effect, released)

    async def _release(self, release: Release) -> None:
        worker = self.runner.worker(release.stream)
        await self.runner.stop(release.stream)
        async with self._slots:
            released = await self.coordinator.release(
                release.stream, release.epoch, worker.seq if worker is not None else None, release.target
            )
        self._note_release(release, released)

    def _note_release(self, effect: HandOver | Release, released: bool) -> None:
        log.info("released", extra={"stream": effect.stream, "to": effect.target, "done": released})
        if released:
            self._say(
                "release",
                stream=effect.stream,
                epoch=effect.epoch,
                target=effect.target or "",
                why=effect.why,
            )

    async def _leave(self) -> None:
        """Orderly: drains, and is gone when nothing is left that it owns."""
        self.node = msgspec.structs.replace(self.node, state="draining")
        while True:
            await self.step()
            claimed = self.view is not None and self.view.streams_of(self.coordinator.member)
            if not (self.runner.streams or self._busy or claimed):
                break
            await self._until_something_changes()
        with contextlib.suppress(Unavailable):  # the ZooKeeper session ends soon, and the node with it
            await self.coordinator.leave()
        self._say("leave")

    async def _until_something_changes(self) -> None:
        changed, woken = self.coordinator.changed, self._wake
        waits = [asyncio.ensure_future(changed.wait()), asyncio.ensure_future(woken.wait())]
        try:
            await asyncio.wait(waits, timeout=LOOK_EVERY_S, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
        woken.clear()
        if not self.desk.expects:
            await asyncio.sleep(COALESCE_S)

    async def _drain_on(self, stop: asyncio.Event) -> None:
        await stop.wait()
        self.drain("stopped")

    def _say(self, kind: Kind, **fields: Any) -> None:
        self._tell(
            Event(
                at=self._around.wall_ms(),
                group=self._around.group,
                kind=kind,
                member=self.coordinator.member,
                **fields,
            )
        )
