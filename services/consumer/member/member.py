"""One member of a group: joins, looks at the group, and brings what it runs in line with what it sees.

The shell around `core/ownership/decide.py`: whenever the view or what runs has changed, it asks for the
effects and starts them (`effects.py`). To leave it drains: it hands everything over, or releases it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from typing import Any

import msgspec

from services.consumer.core.handover.rules import HandoverLimits, Situation
from services.consumer.core.ownership.dampers import Dampers, OwnershipSettings
from services.consumer.core.ownership.decide import decide
from services.consumer.handover.hints import HintStore
from services.consumer.member.departure import Departure
from services.consumer.member.effects import EffectRunner, Pace
from services.consumer.member.events import MemberEvents
from services.consumer.member.neighbours import Neighbours
from services.consumer.ports import Coordinator, Listeners, Peers
from services.consumer.stream.context import GroupContext
from services.consumer.stream.watchdog import ReaderWatchdog
from services.consumer.stream.worker import StreamWorker
from shared.errors import NotFound, Unavailable
from shared.model.balance import Plan, plan
from shared.model.cluster import MemberNode, View
from shared.model.events import Event

logger = logging.getLogger(__name__)

LOOK_EVERY_S = 1.0
"""Even without a change: dampers and openings end by time alone, and a watch may be lost."""
BLIND_S = 0.2
"""Pause after a look that failed; the change stays flagged until a look succeeds."""
COALESCE_S = 0.03
"""Changes within this time are looked at together: members that start together cause one new plan, not one
each. It also bounds how many handovers a member can start in a second, to about 60."""


class Member:
    """Runs the streams that it owns; `run` returns once it owns nothing more and has left the group."""

    def __init__(
        self,
        *,
        coordinator: Coordinator,
        context: GroupContext,
        node: MemberNode,
        peers: Peers,
        listeners: Listeners,
        settings: OwnershipSettings,
        pace: Pace,
        limits: HandoverLimits,
        emit: Callable[[Event], None] = lambda event: None,
    ) -> None:
        self.coordinator = coordinator
        self.node = node
        self.view: View | None = None
        self._context = context
        self._drain_s = pace.drain_s
        self._dampers = Dampers(coordinator.member, settings)
        self._wake = asyncio.Event()
        self.departure = Departure(coordinator.member, self._wake.set)
        self._expecting = asyncio.Event()
        self._has_left = False
        self._session_id: int | None = None
        self._plan: tuple[View, Plan] | None = None
        self._events = MemberEvents(emit, context.group, coordinator.member, context.wall_ms)
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
            dampers=self._dampers,
            pace=pace,
            events=self._events,
            wake=self._wake.set,
        )
        self.neighbours = Neighbours(coordinator, listeners)
        self._listeners = listeners
        self._watchdog = ReaderWatchdog(context.log, lambda: self.workers, context.now_s)

    def __repr__(self) -> str:
        return f"<Member {self.coordinator.member} {self.state}, {len(self.workers)} streams>"

    @property
    def workers(self) -> list[StreamWorker]:
        """The workers of the streams that it runs, by stream."""
        return self.effect_runner.workers.all

    @property
    def state(self) -> str:
        """`joining`, `active`, `draining`, or `drained`: it has left the group and only answers requests."""
        if self._has_left:
            return "drained"
        return self.node.state if self.view is not None else "joining"

    @property
    def lease_ms(self) -> int:
        """How long it may act without another answer from ZooKeeper."""
        lease = self.coordinator.lease
        return int(lease.left_s(self.coordinator.now_s()) * 1000) if lease is not None else 0

    @property
    def is_paused(self) -> bool:
        """Whether it reads nothing, because the group is paused."""
        return self._context.pause.is_on

    def complaints(self) -> list[str]:
        """Why it is not ready; empty when it is."""
        if self._has_left:
            return ["drained: it has left the group"]
        if self.view is None:
            return ["not joined yet"]
        if self.coordinator.is_suspected:
            return ["another member has found its port closed; it joins again when the port answers"]
        return [] if self.lease_ms else ["the lease has expired: ZooKeeper does not answer"]

    async def run(self, stop: asyncio.Event) -> None:
        """Takes part until `stop`, or until it is drained; then drains, for at most `drain_s`, and leaves.

        Leaving ends the ZooKeeper session, because the process may live on: what was not released in time
        would otherwise stay claimed, and unread.
        """
        async with asyncio.TaskGroup() as tasks:
            self.effect_runner.work_in(tasks)
            watchdog = tasks.create_task(self._watchdog.run(), name="watchdog")
            waker = tasks.create_task(self.departure.follow(stop), name="stop")
            has_let_go = False
            while not has_let_go:
                while not self.departure.is_wanted:
                    await self.step()
                    self._watch_neighbours(tasks)
                    await self._next_change()
                has_let_go = await self._hand_over_in_time()
            self.effect_runner.cancel()
            watchdog.cancel()
            waker.cancel()
            await self.effect_runner.workers.warm.close()
        # only after the last worker has ended: until then the claims keep other owners away
        await self.coordinator.leave()
        self._events.emit("leave")
        self._has_left = True

    async def step(self) -> None:
        """One turn: joins if it must, looks, decides, and starts the effects."""
        coordinator = self.coordinator
        try:
            if not coordinator.is_suspected or await self._may_rejoin():
                await coordinator.join(self.node)
            view = self.view = await coordinator.view()
        except Unavailable as error:
            logger.warning("group not read", extra={"why": error.detail})
            await self._remake_group()
            await asyncio.sleep(BLIND_S)
            return
        self._note_session()
        self._note_pause(view)
        self.hint_store.forget_old()
        self.effect_runner.workers.warm.forget_old()
        self._dampers.observe(view, int(coordinator.now_s() * 1000), coordinator.session_age_ms)
        running, busy = self.effect_runner.workers.running, self.effect_runner.busy
        is_suspected = coordinator.is_suspected
        planned = self._plan_for(view)
        for effect in decide(
            view, running, self._dampers, busy=busy, is_suspected=is_suspected, planned=planned
        ):
            self.effect_runner.start(effect, view)

    def plan(self) -> dict[str, Any]:
        """What would move, and every member's quota, by this member's view."""
        if self.view is None:
            return {"moves": [], "quota": {}}
        found = self._plan_for(self.view)
        moves = [
            {"stream": move.stream, "from": move.source, "to": move.target, "why": move.why}
            for move in found.moves
        ]
        return {"moves": moves, "quota": dict(found.quota)}

    async def _remake_group(self) -> None:
        """Creates the group's znodes again if ZooKeeper was reset while this member ran."""
        try:
            await self.coordinator.ensure_group(self._context.settings, self._context.start)
        except (Unavailable, NotFound) as error:  # it may be reset once more meanwhile
            logger.warning("group not created", extra={"why": error.detail})

    async def _may_rejoin(self) -> bool:
        """Whether others would find this suspected member's port open now."""
        is_open = await self._listeners.is_open(self.node.address)
        logger.warning("suspected by another member", extra={"port_answers": is_open is True})
        return is_open is True

    def _watch_neighbours(self, tasks: asyncio.TaskGroup) -> None:
        # a second owner is harmless only where earlier ones are fenced from all that they deliver
        if self.view is not None and self._context.settings.delivery == "exactly_once":
            self.neighbours.watch(self.view, tasks)

    def _note_session(self) -> None:
        """Reports that a ZooKeeper session has ended, and that this member has joined (again)."""
        before, self._session_id = self._session_id, self.coordinator.session_id
        if before == self._session_id:
            return
        if before is not None:
            logger.warning("ZooKeeper session expired")
            self._events.emit("expiry")
        self._events.emit("join")

    def _note_pause(self, view: View) -> None:
        if not self._context.pause.note(is_on=view.pause is not None):
            return
        logger.warning("group paused" if view.pause is not None else "group resumed")
        for worker in self.workers:
            worker.note_pause()

    def _on_promised(self, stream: int) -> None:
        self.effect_runner.workers.warm.prepare(stream)

    def _on_expected(self, stream: int, position: int) -> None:
        self.effect_runner.workers.warm.seek_ahead(stream, max(0, position - 1))
        self._expecting.set()
        self._wake.set()

    def _plan_for(self, view: View) -> Plan:
        """The plan for the view, computed once: a stream stands still while its delta is checked."""
        if self._plan is None or self._plan[0] is not view:
            self._plan = view, plan(view)
        return self._plan[1]

    def _situation(self) -> Situation | None:
        """What an offer is checked against."""
        if self.view is None or self._has_left:
            return None
        planned, me = self._plan_for(self.view), self.coordinator.member
        return Situation(
            group=self._context.group,
            member=me,
            view=self.view,
            planned=planned.owner,
            quota=planned.quota.get(me, 0),
            promised=self.hint_store.promised,
            lease_ms=self.lease_ms,
        )

    async def _hand_over_in_time(self) -> bool:
        """Drains for at most `drain_s`. Whether it may leave; False once it is to take part again."""
        self.neighbours.cancel()
        self.effect_runner.drain_until_s = self._context.now_s() + self._drain_s
        self.node = msgspec.structs.replace(self.node, state="draining")
        try:
            async with asyncio.timeout(self._drain_s):
                await self._hand_over_everything()
        except TimeoutError:
            logger.warning("drain timed out", extra={"streams": [one.stream for one in self.workers]})
        if self.departure.is_wanted:
            self.departure.is_final = True
            return True
        self.effect_runner.drain_until_s = None
        self.node = msgspec.structs.replace(self.node, state="active")
        return False

    async def _hand_over_everything(self) -> None:
        """Returns once this member owns nothing more, or is to take part again."""
        while self.departure.is_wanted:
            await self.step()
            claimed = self.view is not None and self.view.streams_of(self.coordinator.member)
            if not (self.workers or self.effect_runner.busy or claimed):
                return
            await self._next_change()

    async def _next_change(self) -> None:
        """Returns when the view may have changed, an effect has ended, or it is time to look anyway."""
        changed, woken = self.coordinator.changed, self._wake
        waits = [asyncio.ensure_future(changed.wait()), asyncio.ensure_future(woken.wait())]
        try:
            await asyncio.wait(waits, timeout=LOOK_EVERY_S, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
        woken.clear()
        # a stream that was handed over stands still until it is claimed here
        self._expecting.clear()
        if not self.hint_store.expects:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(COALESCE_S):
                    await self._expecting.wait()
