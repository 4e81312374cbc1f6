"""One member of a group: joins, looks, and brings what it runs in line with the view.

The shell around `core/ownership/decide.py`: whenever the view or what runs has changed, it asks for the
effects and has them carried out (`effects.py`). Leaving is a drain: everything is handed over or released.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from typing import Any

import msgspec

from services.consumer.core.handover.rules import Completion, HandoverLimits, Situation, node_after_release
from services.consumer.core.ownership.decide import decide
from services.consumer.core.ownership.observations import Observations, OwnershipSettings, observe
from services.consumer.handover.hints import HintStore
from services.consumer.member.effects import EffectRunner, Pace
from services.consumer.member.events import MemberEvents
from services.consumer.ports import Coordinator, Peers
from services.consumer.stream.context import GroupContext
from services.consumer.stream.watchdog import ReaderWatchdog
from services.consumer.stream.worker import StreamWorker
from shared.errors import NotFound, Unavailable
from shared.model.balance import Plan, plan
from shared.model.cluster import MemberNode, View
from shared.model.events import Event

logger = logging.getLogger(__name__)

LOOK_EVERY_S = 1.0
BLIND_S = 0.2
"""Pause after a look that failed; the change stays flagged until a look succeeds."""
COALESCE_S = 0.03
"""Changes that come together are looked at together."""


class Member:
    """Runs the streams that it owns; `run` returns after everything was given up."""

    def __init__(
        self,
        *,
        coordinator: Coordinator,
        context: GroupContext,
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
        self._context = context
        self._settings = settings
        self._drain_s = pace.drain_s
        self._observed = Observations()
        self._wake = asyncio.Event()
        self._leaving = asyncio.Event()
        self._has_left = False
        self._session_id: int | None = None
        self._plan: tuple[View, Plan] | None = None
        self._events = MemberEvents(tell, context.group, coordinator.member, context.wall_ms)
        self.hint_store = HintStore(
            settings=context.settings,
            stream_limits=context.limits,
            limits=limits,
            now_s=context.now_s,
            situation=self._situation,
            on_promised=self._on_promised,
            on_expected=self._on_expected,
        )
        self.effect_runner = EffectRunner(
            coordinator=coordinator,
            context=context,
            peers=peers,
            hint_store=self.hint_store,
            pace=pace,
            events=self._events,
            wake=self._wake.set,
        )
        self._watchdog = ReaderWatchdog(
            context.log,
            lambda: self.view.count if self.view is not None else 0,
            lambda: self.workers,
            context.now_s,
        )

    def __repr__(self) -> str:
        return f"<Member {self.coordinator.member} {self.state}, {len(self.workers)} streams>"

    @property
    def workers(self) -> list[StreamWorker]:
        """The workers of the streams that it runs, by stream."""
        return self.effect_runner.workers.all

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
            logger.info("drains", extra={"why": why})
            self._leaving.set()
            self._wake.set()

    async def run(self, stop: asyncio.Event) -> None:
        """Takes part until `stop` or `drain`; then gives up all it has, within `drain_s`, and leaves."""
        async with asyncio.TaskGroup() as tasks:
            self.effect_runner.work_in(tasks)
            watchdog = tasks.create_task(self._watchdog.run(), name="watchdog")
            waker = tasks.create_task(self._drain_on(stop), name="stop")
            while not self._leaving.is_set():
                await self.step()
                await self._until_something_changes()
            try:
                async with asyncio.timeout(self._drain_s):
                    await self._leave()
            except TimeoutError:
                logger.warning(
                    "left without an orderly release",
                    extra={"streams": [worker.stream for worker in self.workers]},
                )
            self.effect_runner.cancel()
            watchdog.cancel()
            waker.cancel()
            await self.effect_runner.workers.warm.close()
        self._has_left = True

    async def step(self) -> None:
        """One turn: joins if it must, observes, decides, and begins what was decided."""
        coordinator = self.coordinator
        try:
            await coordinator.join(self.node)
            view = self.view = await coordinator.view()
        except Unavailable as error:
            logger.warning("cannot look", extra={"why": error.detail})
            await self._remake_group()
            await asyncio.sleep(BLIND_S)
            return
        self._note_session()
        self.hint_store.forget_old()
        self.effect_runner.workers.warm.forget_old()
        now_ms = int(coordinator.now_s() * 1000)
        self._observed = observe(self._observed, view, now_ms, self._settings)
        effects = decide(
            view,
            coordinator.member,
            self.effect_runner.running(),
            busy=self.effect_runner.busy,
            session_age_ms=coordinator.session_age_ms,
            observed=self._observed,
            settings=self._settings,
            shunned=self.effect_runner.shunned,
            moves_left=self.effect_runner.moves_left(),
        )
        for effect in effects:
            self.effect_runner.begin(effect, view)

    def plan(self) -> dict[str, Any]:
        """What would move, and everyone's quota, by this member's view."""
        if self.view is None:
            return {"moves": [], "quota": {}}
        found = self._planned(self.view)
        moves = [
            {"stream": move.stream, "from": move.source, "to": move.target, "why": move.why}
            for move in found.moves
        ]
        return {"moves": moves, "quota": dict(found.quota)}

    async def _remake_group(self) -> None:
        """When ZooKeeper was reset under a running member, somebody has to make the group again."""
        try:
            await self.coordinator.ensure_group(self._context.settings)
        except (Unavailable, NotFound) as error:  # it may be reset once more meanwhile
            logger.warning("cannot make the group", extra={"why": error.detail})

    def _note_session(self) -> None:
        """Tells of a ZooKeeper session that ended, and that this member is there (again)."""
        before, self._session_id = self._session_id, self.coordinator.session_id
        if before == self._session_id:
            return
        if before is not None:
            logger.warning("the ZooKeeper session has expired")
            self._events.emit("expiry")
        self._events.emit("join")

    def _on_promised(self, stream: int) -> None:
        self.effect_runner.workers.warm.prepare(stream)

    def _on_expected(self, completion: Completion) -> None:
        self.effect_runner.workers.warm.seek_ahead(completion.stream, completion.position)
        if completion.node_version >= 0:
            self.coordinator.expect(
                completion.stream,
                node_after_release(completion, self.coordinator.member),
                completion.node_version,
            )
        self._wake.set()

    def _planned(self, view: View) -> Plan:
        """The plan for the view, computed once: a stream stands still while its delta is judged by it."""
        if self._plan is None or self._plan[0] is not view:
            self._plan = view, plan(view)
        return self._plan[1]

    def _situation(self) -> Situation | None:
        """How this member stands when an offer comes."""
        if self.view is None or self._has_left:
            return None
        wanted, me = self._planned(self.view), self.coordinator.member
        return Situation(
            group=self._context.group,
            member=me,
            view=self.view,
            planned=wanted.owner,
            quota=wanted.quota.get(me, 0),
            promised=self.hint_store.promised,
            lease_ms=self.lease_ms,
        )

    async def _leave(self) -> None:
        """Orderly: drains, and is gone when nothing is left that it owns."""
        self.node = msgspec.structs.replace(self.node, state="draining")
        while True:
            await self.step()
            claimed = self.view is not None and self.view.streams_of(self.coordinator.member)
            if not (self.workers or self.effect_runner.busy or claimed):
                break
            await self._until_something_changes()
        with contextlib.suppress(Unavailable):  # the ZooKeeper session ends soon, and the node with it
            await self.coordinator.leave()
        self._events.emit("leave")

    async def _until_something_changes(self) -> None:
        changed, woken = self.coordinator.changed, self._wake
        waits = [asyncio.ensure_future(changed.wait()), asyncio.ensure_future(woken.wait())]
        try:
            await asyncio.wait(waits, timeout=LOOK_EVERY_S, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
        woken.clear()
        if not self.hint_store.expects:
            await asyncio.sleep(COALESCE_S)

    async def _drain_on(self, stop: asyncio.Event) -> None:
        await stop.wait()
        self.drain("stopped")
