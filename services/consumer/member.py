"""One member of a group: joins, looks, and brings what it runs in line with the view.

The shell around `core/ownership.py`: whenever the view or what runs has changed, it asks for the effects
and carries each out as a named task of its own, so that one slow stream holds up no other. Streams with
something under way are `busy` and left alone. Leaving is an orderly release of everything.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any

import msgspec

from services.consumer.core.ownership import (
    Adopt,
    Claim,
    Drop,
    Effect,
    OwnershipSettings,
    Release,
    Seen,
    decide,
    look,
)
from services.consumer.hold import Hold, Surroundings
from services.consumer.log_ports import StreamLog
from services.consumer.ports import Coordinator
from services.consumer.stream_worker import StreamWorker
from services.consumer.watchdog import ReaderWatchdog
from shared.balance import plan
from shared.cluster import MemberNode, View
from shared.errors import Unavailable

log = logging.getLogger(__name__)

LOOK_EVERY_S = 1.0
COALESCE_S = 0.03
"""Changes that come together are looked at together."""
CALLS_AT_ONCE = 16
"""Claims and releases in flight: 288 streams are claimed in about half a second."""
RETRY_S = 0.5


@dataclass(slots=True)
class _Running:
    worker: StreamWorker
    task: asyncio.Task[None]


class Member:
    """Runs the streams that it owns; `run` returns after everything was released."""

    def __init__(
        self,
        *,
        coordinator: Coordinator,
        log: StreamLog,
        around: Surroundings,
        node: MemberNode,
        settings: OwnershipSettings,
        release_s: float,
        commits_per_s: float = 100.0,
    ) -> None:
        self.coordinator = coordinator
        self.node = node
        self.streams: dict[int, _Running] = {}
        self.view: View | None = None
        self._watchdog = ReaderWatchdog(
            log,
            lambda: self.view.count if self.view is not None else 0,
            lambda: self.workers,
            around.now_s,
        )
        self._around = around
        self._settings = settings
        self._release_s = release_s
        self._commits_per_s = commits_per_s
        self._seen = Seen()
        self._busy: set[int] = set()
        self._wake = asyncio.Event()
        self._slots = asyncio.Semaphore(CALLS_AT_ONCE)
        self._tasks: asyncio.TaskGroup | None = None

    def __repr__(self) -> str:
        return f"<Member {self.coordinator.member} {self.node.state}, {len(self.streams)} streams>"

    @property
    def workers(self) -> list[StreamWorker]:
        """The workers of the streams that it runs, by stream."""
        return [self.streams[stream].worker for stream in sorted(self.streams)]

    @property
    def lease_ms(self) -> int:
        """How long it may act without another word from ZooKeeper."""
        lease = self.coordinator.lease
        return int(lease.left_s(self.coordinator.now_s()) * 1000) if lease is not None else 0

    def complaints(self) -> list[str]:
        """Why it is not ready; empty when it is."""
        if self.view is None:
            return ["not joined yet"]
        return [] if self.lease_ms else ["the lease is over: ZooKeeper does not answer"]

    async def run(self, stop: asyncio.Event) -> None:
        """Takes part until `stop`; then releases all it has, within `release_s`, and leaves."""
        async with asyncio.TaskGroup() as self._tasks:
            watchdog = self._tasks.create_task(self._watchdog.run(), name="watchdog")
            waker = self._tasks.create_task(self._wake_on_stop(stop), name="stop")
            while not stop.is_set():
                await self.step()
                await self._until_something_changes()
            try:
                async with asyncio.timeout(self._release_s):
                    await self._leave()
            except TimeoutError:
                log.warning("left without an orderly release", extra={"streams": sorted(self.streams)})
            for running in self.streams.values():
                running.task.cancel()
            watchdog.cancel()
            waker.cancel()

    async def step(self) -> None:
        """Once: join if need be, look, decide, begin what is to be done."""
        try:
            await self.coordinator.join(self.node)
            view = self.view = await self.coordinator.view()
        except Unavailable as error:
            log.warning("cannot look", extra={"why": error.detail})
            await self._remake_group()
            return
        now_ms = int(self.coordinator.now_s() * 1000)
        self._seen = look(self._seen, view, now_ms, self._settings)
        effects = decide(
            view,
            self.coordinator.member,
            {stream: running.worker.epoch for stream, running in self.streams.items()},
            busy=self._busy,
            session_age_ms=self.coordinator.session_age_ms,
            seen=self._seen,
            settings=self._settings,
        )
        for effect in effects:
            self._begin(effect)

    async def _remake_group(self) -> None:
        """When ZooKeeper was reset under a running member, somebody has to make the group again."""
        try:
            await self.coordinator.ensure_group(self._around.settings)
        except Unavailable as error:
            log.warning("cannot make the group", extra={"why": error.detail})

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

    def _begin(self, effect: Effect) -> None:
        stream = effect.stream
        self._busy.add(stream)
        log.info("begins", extra={"effect": effect})
        match effect:
            case Drop():
                self._spawn(f"drop {stream}", stream, self._drop(stream))
            case Adopt():
                self._spawn(f"adopt {stream}", stream, self._own(stream, self.coordinator.adopt, "adopted"))
            case Claim(why=why):
                self._spawn(f"claim {stream}", stream, self._own(stream, self.coordinator.claim, why))
            case Release():
                self._spawn(f"release {stream}", stream, self._release(effect))

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
        self._tasks.create_task(carry_out(), name=name)

    async def _own(self, stream: int, take: Callable[[int], Awaitable[int | None]], why: str) -> None:
        session_id = self.coordinator.session_id
        async with self._slots:
            epoch = await take(stream)
        if epoch is None:
            return
        self._start(stream, epoch, session_id)
        log.info("claimed", extra={"stream": stream, "epoch": epoch, "why": why})

    def _start(self, stream: int, epoch: int, session_id: int | None) -> None:
        coordinator = self.coordinator

        def lease_alive() -> bool:
            # a later ZooKeeper session vouches for nothing that was claimed in an earlier one
            lease = coordinator.lease
            if lease is None or coordinator.session_id != session_id:
                return False
            return lease.is_alive(coordinator.now_s())

        async def is_mine() -> bool:
            claim = await coordinator.read_claim(stream)
            return claim is not None and claim.member == coordinator.member and claim.epoch == epoch

        hold = Hold(is_mine=is_mine, lease_alive=lease_alive, commit_s=self._commit_s)
        worker = StreamWorker(stream, epoch, self._around, hold)
        assert self._tasks is not None
        task = self._tasks.create_task(self._run(worker), name=f"stream {stream}")
        self.streams[stream] = _Running(worker, task)

    async def _run(self, worker: StreamWorker) -> None:
        outcome = "cancelled"
        try:
            outcome = await worker.run()
        finally:
            if (running := self.streams.get(worker.stream)) is not None and running.worker is worker:
                del self.streams[worker.stream]
        if outcome == "lost" and worker.stored_epoch > worker.epoch and worker.stream not in self._busy:
            self._busy.add(worker.stream)
            self._spawn(f"outgrow {worker.stream}", worker.stream, self._outgrow(worker))
        self._wake.set()

    async def _outgrow(self, worker: StreamWorker) -> None:
        """ZooKeeper was reset and Kafka kept: a claim that is really mine gets a higher epoch."""
        epoch = await self.coordinator.raise_epoch(worker.stream, worker.stored_epoch)
        if epoch is not None:
            log.warning("ZooKeeper was reset", extra={"stream": worker.stream, "epoch": epoch})

    async def _release(self, release: Release) -> None:
        stream, seq = release.stream, None
        running = self.streams.get(stream)
        if running is not None:
            running.worker.stop()
            await asyncio.wait([running.task])
            seq = running.worker.seq
            self.streams.pop(stream, None)
        async with self._slots:
            released = await self.coordinator.release(stream, release.epoch, seq, release.target)
        log.info("released", extra={"stream": stream, "to": release.target, "done": released})

    async def _drop(self, stream: int) -> None:
        running = self.streams.pop(stream, None)
        if running is not None:
            running.task.cancel()
            await asyncio.wait([running.task])

    async def _leave(self) -> None:
        """Orderly: drains, and is gone when nothing is left that it owns."""
        self.node = msgspec.structs.replace(self.node, state="draining")
        while True:
            await self.step()
            claimed = self.view is not None and self.view.streams_of(self.coordinator.member)
            if not (self.streams or self._busy or claimed):
                break
            await self._until_something_changes()
        with contextlib.suppress(Unavailable):  # the ZooKeeper session ends soon, and the node with it
            await self.coordinator.leave()

    async def _until_something_changes(self) -> None:
        changed, woken = self.coordinator.changed, self._wake
        waits = [asyncio.ensure_future(changed.wait()), asyncio.ensure_future(woken.wait())]
        try:
            await asyncio.wait(waits, timeout=LOOK_EVERY_S, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
        woken.clear()
        await asyncio.sleep(COALESCE_S)

    async def _wake_on_stop(self, stop: asyncio.Event) -> None:
        await stop.wait()
        self._wake.set()

    def _commit_s(self) -> float:
        """Seconds between a stream's commits: more with many streams, so that commits stay affordable."""
        return max(self._around.limits.commit_s, len(self.streams) / self._commits_per_s)
