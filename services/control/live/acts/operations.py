"""Operations: makes their effects, and follows each until it is done, has failed or was cancelled.

The core decides what an operation means; this file holds the clock and what this control knows. An operation
is stored before its effect is made, and again when it has ended, so control keeps following it after a
restart. Two controls follow the same operations; the first one to see an end stores it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import time
from collections.abc import Awaitable, Callable, Sequence

import msgspec

from services.control.core.causes import Cause
from services.control.core.events.movements import Movement
from services.control.core.operations.forecasts import (
    Forecast,
    Situation,
    check_plan,
    forecast,
    situation_in,
)
from services.control.core.operations.operation import (
    Operation,
    OperationNode,
    UnknownOperation,
    begin,
    cancelled,
    check_alone,
    check_cancel,
    done_at_once,
    failed,
    follow,
    surplus,
)
from services.control.core.operations.progress import OperationDetail, detail_of
from services.control.core.operations.wishes import Wish, check, pins_changed
from services.control.core.report.rows import StreamRow
from services.control.live.acts.actions import Actions
from services.control.live.acts.effects import Effects
from services.control.live.view.cluster_view import ClusterView, UnknownStream
from services.control.ports import OperationStore
from shared.errors import BatonError, Unavailable, ZooKeeperUnavailable

Effect = Callable[[], Awaitable[None]]
"""A change in ZooKeeper that waits to be made."""
UNREAD = "the operations have not been read yet"
logger = logging.getLogger(__name__)


class Operations:
    """`run()` follows the operations. `steady_s` measures their age, `wall_ms` dates their begin and end.

    `movements`: the latest movements of a group, newest first.
    """

    def __init__(
        self,
        view: ClusterView,
        effects: Effects,
        store: OperationStore,
        actions: Actions,
        *,
        timeout_s: float,
        look_every_s: float,
        steady_s: Callable[[], float] = time.monotonic,
        wall_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
        movements: Callable[[str], Sequence[Movement]] = lambda group: (),
    ) -> None:
        self._view = view
        self._effects = effects
        self._store = store
        self._actions = actions
        self._timeout_s = timeout_s
        self._look_every_s = look_every_s
        self._steady_s = steady_s
        self._wall_ms = wall_ms
        self._movements = movements
        self._known: dict[str, Operation] = {}
        self._requests: dict[str, str] = {}
        self._begun_s: dict[str, float] = {}
        self._is_read = False
        self._changing = asyncio.Lock()

    def __repr__(self) -> str:
        open_ones = sum(not operation.has_ended for operation in self._known.values())
        return f"<Operations: {open_ones} of {len(self._known)} under way>"

    def forecast(self, wish: Wish) -> Forecast:
        """What the wish would do.

        Raises UnknownGroup, UnknownStream, UnknownMember, MoveRefused, NothingToDo, Unavailable.
        """
        return forecast(wish, self._situation(wish), self._movements(wish.group), self._wall_ms())

    async def start(self, wish: Wish, cause: Cause, *, if_plan: str | None = None) -> Operation:
        """The operation, after its effect has been made; for a repeated request the one that it began.

        Raises what `forecast` raises; PlanChanged, OperationUnderWay, KeyReused; PeerUnavailable or
        ZooKeeperUnavailable when the effect failed or its outcome is unknown.
        """
        async with self._changing:  # the next request must see this operation before it checks for conflicts
            await self._learn()
            if cause.key in self._known:
                cause.check_same(self._requests[cause.key])
                return self._known[cause.key]
            found = forecast(wish, self._situation(wish))
            check_plan(found, if_plan)
            check_alone(wish, found.moves, self._known.values())
            operation = begin(
                found,
                cause.key or secrets.token_hex(6),
                self._wall_ms(),
                who=cause.who,
                reason=cause.reason,
                pins_before=pins_changed(wish, self._view.group(wish.group).view.pins),
            )
            if not await self._store.create(OperationNode(operation=operation, request=cause.request)):
                raise ZooKeeperUnavailable("another control has just received the same request; try again")
            try:
                await self._effects.make(operation)
            except BatonError as error:
                # without an effect there is nothing to follow; what stays fails when its time is over
                with contextlib.suppress(Unavailable):
                    await self._store.forget(operation.id)
                # a member may drain although its answer was lost, or although the pins could not be written
                forgotten = msgspec.structs.replace(operation, id="")
                self._actions.report_operation(forgotten, cause, error=error)
                raise
            self._note(operation, cause.request)
        self._actions.report_operation(operation, cause)
        logger.info("operation started", extra={"operation": operation.id, "wish": wish})
        return operation

    async def carry_out(
        self, wish: Wish, cause: Cause, prepare: Callable[[], Awaitable[Effect]]
    ) -> Operation:
        """The operation of an effect that is complete once it was made; for a repeated request the one that
        made it. `prepare` decides, and returns the effect.

        Raises what `prepare` and the effect raise; KeyReused, ZooKeeperUnavailable.
        """
        async with self._changing:
            await self._learn()
            if cause.key in self._known:
                cause.check_same(self._requests[cause.key])
                return self._known[cause.key]
        effect = await prepare()  # it may take long, and is in nobody's way
        name = cause.key or secrets.token_hex(6)
        operation = done_at_once(wish, name, self._wall_ms(), who=cause.who, reason=cause.reason)
        try:
            await effect()
        except Unavailable as error:
            self._actions.report_operation(msgspec.structs.replace(operation, id=""), cause, error=error)
            raise
        # before it is stored: that may fail, and the effect stays
        self._actions.report_operation(operation, cause)
        async with self._changing:
            await self._store.create(OperationNode(operation=operation, request=cause.request))
            self._note(operation, cause.request)
        return operation

    async def cancel(self, operation_id: str, cause: Cause) -> Operation:
        """The operation, after its effect was undone; one that is cancelled already, as it is.

        Raises UnknownOperation, OperationEnded, Conflict, Unavailable.
        """
        async with self._changing:
            operation = self.operation_of(operation_id)
            if operation.state == "cancelled":
                return operation  # somebody asks again because the answer was lost
            check_cancel(operation)
            try:
                await self._effects.undo(operation)
            except BatonError as error:
                self._actions.report_operation(operation, cause, what="cancel ", error=error)
                raise
            why = f"cancelled by {cause.who}" + (f": {cause.reason}" if cause.reason else "")
            ended = cancelled(operation, why, self._wall_ms())
            # before it is stored: that may fail, and the effect is undone
            self._actions.report_operation(ended, cause, what="cancel ")
            return await self._end(ended)

    def complaints(self) -> list[str]:
        """Why the operations cannot be shown yet, if they cannot."""
        return [] if self._is_read else [UNREAD]

    def all(self) -> Sequence[Operation]:
        """All remembered operations, newest first. Raises ZooKeeperUnavailable until they have been read."""
        self._require_read()
        return sorted(self._known.values(), key=lambda one: (one.since, one.id), reverse=True)

    def operation_of(self, operation_id: str) -> Operation:
        """The operation. Raises UnknownOperation, and ZooKeeperUnavailable until they have been read."""
        self._require_read()
        if operation_id not in self._known:
            raise UnknownOperation(f"there is no operation {operation_id!r}, or it ended long ago")
        return self._known[operation_id]

    def detail(self, operation_id: str) -> OperationDetail:
        """The operation with the progress of each move, as far as control knows it.

        Raises UnknownOperation, and ZooKeeperUnavailable until the operations have been read.
        """
        operation = self.operation_of(operation_id)
        rows: Sequence[StreamRow] = ()
        with contextlib.suppress(Unavailable):
            rows = self._view.served(with_offsets=False).report.streams.get(operation.group, ())
        return detail_of(operation, rows, self._movements(operation.group))

    async def run(self) -> None:
        """Follows the operations until cancelled."""
        while True:
            await self.step()
            await asyncio.sleep(self._look_every_s)

    async def step(self) -> None:
        """Updates every operation under way from the newest view."""
        try:
            async with self._changing:
                await self._learn()
                await self._follow_all()
                for old in surplus(self._known.values(), self._wall_ms()):
                    await self._store.forget(old.id)
                    del self._known[old.id], self._requests[old.id]
        except Unavailable as error:
            logger.debug("operations not followed", extra={"why": error.detail})

    async def _learn(self) -> None:
        """Reads what is stored. What has ended stays as it is known, and so does the progress of the rest."""
        stored = await self._store.read()
        for name in self._known.keys() - stored.keys():
            # withdrawn by another control, or ZooKeeper was reset
            if not self._known[name].has_ended:
                gone = failed(self._known[name], "ZooKeeper no longer has it", self._wall_ms())
                self._note(gone, self._requests[name])
        for name, node in stored.items():
            if name not in self._known or node.operation.has_ended:
                self._note(node.operation, node.request)
        self._is_read = True

    async def _follow_all(self) -> None:
        observed = self._view.served(with_offsets=False).observed
        situations = {
            group: situation_in(observed, group)
            for group in {one.group for one in self._known.values() if not one.has_ended}
            if group in observed.cluster.groups
        }
        for operation in [one for one in self._known.values() if not one.has_ended]:
            followed = self._followed(operation, situations.get(operation.group))
            if followed.has_ended:
                await self._end(followed)
            else:
                self._known[operation.id] = followed

    def _followed(self, operation: Operation, now: Situation | None) -> Operation:
        if now is None:
            return failed(operation, f"group {operation.group!r} is gone", self._wall_ms())
        return follow(
            operation,
            now,
            at_ms=self._wall_ms(),
            age_ms=(self._steady_s() - self._begun_s[operation.id]) * 1000,
            limit_ms=self._timeout_s * 1000,
        )

    async def _end(self, ended: Operation) -> Operation:
        ended = await self._store.end(ended)
        self._note(ended, self._requests[ended.id])
        logger.info("operation ended", extra={"operation": ended.id, "state": ended.state, "why": ended.why})
        return ended

    def _note(self, operation: Operation, request: str) -> None:
        self._known[operation.id] = operation
        self._requests[operation.id] = request
        if operation.has_ended:
            self._begun_s.pop(operation.id, None)
        else:
            # the wall clock knows the age of one that was begun elsewhere, or before a restart
            age_s = max(0, self._wall_ms() - operation.since) / 1000
            self._begun_s.setdefault(operation.id, self._steady_s() - age_s)

    def _require_read(self) -> None:
        if not self._is_read:
            raise ZooKeeperUnavailable(UNREAD)

    def _situation(self, wish: Wish) -> Situation:
        view = self._view.group(wish.group).view
        if wish.stream is not None and wish.stream >= view.count:
            raise UnknownStream(wish.stream, view.count)
        situation = situation_in(self._view.served(with_offsets=False).observed, wish.group)
        check(wish, situation.view)
        self._effects.check_answers(wish)
        return situation
