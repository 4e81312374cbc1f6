"""Carries out operators' wishes, and undoes them: pins, a member's drain, a group's pause."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from services.control.core.operations.operation import Operation
from services.control.core.operations.wishes import Wish, pins_after, pins_restored
from services.control.live.view.cluster_view import ClusterView
from services.control.ports import MemberDrain, PauseStore, PinStore
from shared.errors import Conflict, PeerUnavailable
from shared.model.cluster import PauseNode

MemberCall = Callable[[str, str, str, str], Awaitable[None]]
"""A call of a group's member: group, member, address, why."""


class Effects:
    """The effects on the groups that `view` shows."""

    def __init__(self, view: ClusterView, pins: PinStore, drain: MemberDrain, pauses: PauseStore) -> None:
        self._view = view
        self._pins = pins
        self._drain = drain
        self._pauses = pauses

    def check_answers(self, wish: Wish) -> None:
        """Raises PeerUnavailable if the wish is for a member that has not just answered at its address.

        Another process may have taken over the address: it must not be drained in the member's place.
        """
        if wish.member is None:
            return
        answers, place = self._view.served(with_offsets=False).observed.answers, (wish.group, wish.member)
        if place in answers.silent or place not in answers.statuses:
            raise PeerUnavailable(f"{wish.member} does not answer")

    async def make(self, operation: Operation) -> None:
        """The effect of a wish that begins. Raises Unavailable, Conflict."""
        match operation.kind:
            case "pause":
                pause = PauseNode(who=operation.who, since=operation.since, reason=operation.reason)
                await self._pauses.pause(operation.group, pause)
                return
            case "resume":
                await self._pauses.resume(operation.group)
                return
            case "drain":
                # the drain first: if it fails, the pins are as before and the operator may simply try again
                await self._ask(operation, "drained", self._drain.drain)
            case "undrain":
                await self._ask(operation, "undrained", self._drain.undrain)
        await self._pins.change(operation.group, lambda pins: pins_after(operation, pins))

    async def undo(self, operation: Operation) -> None:
        """Undoes the effect, except what others have changed since. Raises Unavailable, Conflict."""
        if operation.kind == "drain":
            await self._ask(operation, "undrained", self._drain.undrain)
        before = operation.pins_before
        await self._pins.change(operation.group, lambda pins: pins_restored(operation, before, pins))

    async def _ask(self, wish: Operation, what: str, ask: MemberCall) -> None:
        members = self._view.group(wish.group).view.members
        if wish.member is None or wish.member not in members:
            raise Conflict(f"{wish.member} has left; a restart makes it join again")
        why = f"{what} by {wish.who or 'an operator'}" + (f": {wish.reason}" if wish.reason else "")
        await ask(wish.group, wish.member, members[wish.member].address, why)
