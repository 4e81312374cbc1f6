"""Operations: makes their effects, and follows each until it is done or has failed.

`core/operations.py` decides what an operation means; this file holds the memory, the clock and the two
effects (pins, a member's drain). A restart of control forgets the operations but not what they did: their
effects are in ZooKeeper.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Callable, Sequence

from services.control.core.observed import Observed
from services.control.core.operations import (
    Forecast,
    Operation,
    Situation,
    UnknownOperation,
    Wish,
    begin,
    check,
    check_alone,
    failed,
    follow,
    forecast,
    pins_after,
    situation_in,
)
from services.control.live.cluster_view import ClusterView, UnknownStream
from services.control.ports import MemberDrain, PinStore
from shared.errors import PeerUnavailable, Unavailable

KEPT = 1000
"""Most operations to remember; beyond that, the oldest ended ones are forgotten."""
logger = logging.getLogger(__name__)


class Operations:
    """`run()` follows the operations. `steady_s` measures their age, `wall_ms` dates their begin and end."""

    def __init__(
        self,
        view: ClusterView,
        pins: PinStore,
        drain: MemberDrain,
        *,
        timeout_s: float,
        look_every_s: float,
        steady_s: Callable[[], float] = time.monotonic,
        wall_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        self._view = view
        self._pins = pins
        self._drain = drain
        self._timeout_s = timeout_s
        self._look_every_s = look_every_s
        self._steady_s = steady_s
        self._wall_ms = wall_ms
        self._known: dict[str, Operation] = {}
        self._begun_s: dict[str, float] = {}
        self._making = asyncio.Lock()

    def __repr__(self) -> str:
        open_ones = sum(not operation.has_ended for operation in self._known.values())
        return f"<Operations: {open_ones} of {len(self._known)} under way>"

    def forecast(self, wish: Wish) -> Forecast:
        """What the wish would do.

        Raises UnknownGroup, UnknownStream, UnknownMember, MoveRefused, Unavailable.
        """
        return forecast(wish, self._situation(wish))

    async def start(self, wish: Wish) -> Operation:
        """The operation, after its effect has been made.

        Raises what `forecast` raises; OperationUnderWay; PeerUnavailable or ZooKeeperUnavailable when the
        effect failed or its outcome is unknown.
        """
        async with self._making:  # the next request must see this operation before it checks for conflicts
            found = forecast(wish, self._situation(wish))
            check_alone(wish, found.moves, self._known.values())
            await self._make(wish)
            operation = begin(wish, found.moves, secrets.token_hex(6), self._wall_ms())
            self._known[operation.id] = operation
            self._begun_s[operation.id] = self._steady_s()
            self._forget()
        logger.info("operation started", extra={"operation": operation.id, "wish": wish})
        return operation

    def all(self) -> Sequence[Operation]:
        """All remembered operations, newest first."""
        return list(reversed(self._known.values()))

    def operation_of(self, operation_id: str) -> Operation:
        """The operation. Raises UnknownOperation."""
        if operation_id not in self._known:
            raise UnknownOperation(f"control does not remember operation {operation_id!r}")
        return self._known[operation_id]

    async def run(self) -> None:
        """Follows the operations until cancelled."""
        while True:
            self.step()
            await asyncio.sleep(self._look_every_s)

    def step(self) -> None:
        """Updates every operation under way from the newest view."""
        under_way = [operation for operation in self._known.values() if not operation.has_ended]
        try:
            observed = self._view.served(with_offsets=False).observed
        except Unavailable:
            return
        situations: dict[str, Situation] = {}
        for operation in under_way:
            group = operation.group
            if group in observed.cluster.groups and group not in situations:
                situations[group] = situation_in(observed, group)
            self._follow(operation, situations.get(group))

    def _follow(self, operation: Operation, now: Situation | None) -> None:
        if now is None:
            followed = failed(operation, f"group {operation.group!r} is gone", self._wall_ms())
        else:
            followed = follow(
                operation,
                now,
                at_ms=self._wall_ms(),
                age_ms=(self._steady_s() - self._begun_s[operation.id]) * 1000,
                limit_ms=self._timeout_s * 1000,
            )
        self._known[operation.id] = followed
        if followed.has_ended:
            del self._begun_s[operation.id]
            logger.info(
                "operation ended",
                extra={"operation": operation.id, "state": followed.state, "why": followed.why},
            )

    def _situation(self, wish: Wish) -> Situation:
        view = self._view.group(wish.group).view
        if wish.stream is not None and wish.stream >= view.count:
            raise UnknownStream(f"there is no stream {wish.stream}; there are 0 … {view.count - 1}")
        observed = self._view.served(with_offsets=False).observed
        situation = situation_in(observed, wish.group)
        check(wish, situation.view)
        if wish.member is not None:
            _check_answers(observed, wish.group, wish.member)
        return situation

    async def _make(self, wish: Wish) -> None:
        # the drain first: if it fails, the pins are as before and the operator may simply try again
        if wish.member is not None:
            member = self._view.group(wish.group).view.members[wish.member]
            await self._drain.drain(wish.group, wish.member, member.address, "drained by an operator")
        await self._pins.change(wish.group, lambda pins: pins_after(wish, pins))

    def _forget(self) -> None:
        # an operation under way is never forgotten, however many there are
        ended = [name for name, operation in self._known.items() if operation.has_ended]
        for name in ended[: max(0, len(self._known) - KEPT)]:
            del self._known[name]


def _check_answers(observed: Observed, group: str, member: str) -> None:
    """Raises PeerUnavailable unless the member has just answered at its address.

    Another process may have taken over the address: it must not be drained in the member's place.
    """
    if (group, member) in observed.answers.silent or (group, member) not in observed.answers.statuses:
        raise PeerUnavailable(f"{member} does not answer")
