"""The other members in the simulation: a handover's messages travel, and arrive in the recipient's process.

A frozen recipient handles them only after it is thawed, a dead one never; a new process at the same address
receives what was meant for its predecessor. Bodies can be garbled on the way.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from services.consumer.core.handover.rules import Completion, Offer
from services.consumer.handover.hints import HintStore
from shared.errors import BatonError, HandoverRefused, PeerUnavailable, Unavailable
from tests.fakes.peers import InMemoryPeers, PeerNetwork
from tests.simulation.wire import Wire

if TYPE_CHECKING:
    from tests.simulation.world import World

T = TypeVar("T")

PATIENCE_S = {"offer": 6.0, "complete": 1.0, "fetch": 0.5}


class SimulatedPeers(InMemoryPeers):
    """A `Peers`: one process' way to all others."""

    def __init__(self, world: World, process: str, wire: Wire, rng: random.Random) -> None:
        super().__init__(PeerNetwork(), process)
        self._world = world
        self._process = process
        self._wire = wire
        self._rng = rng

    async def offer(self, address: str, offer: Offer, body: bytes) -> None:
        """See Peers."""
        await super().offer(address, offer, self._garbled(body))

    async def complete(self, address: str, completion: Completion, body: bytes) -> None:
        """See Peers."""
        await super().complete(address, completion, self._garbled(body))

    async def _call(self, what: str, address: str, act: Callable[[HintStore], T | asyncio.Future[T]]) -> T:
        recipient = self._world.process_at(address)
        if recipient is None:
            raise PeerUnavailable(f"{address} does not answer")

        def arrive() -> T | asyncio.Future[T]:
            living = self._world.process_at(address)
            if living is None or living.member is None:
                raise PeerUnavailable(f"no process listens at {address}")
            note = self._world.trace.note
            try:
                answer = act(living.member.hint_store)
            except Unavailable as error:
                raise PeerUnavailable(error.detail) from error
            except BatonError as error:
                note(self._process, f"{what} is refused", living.name, error.detail)
                raise HandoverRefused(error.detail) from error
            note(self._process, f"{what} is taken", living.name)
            return answer

        return await self._wire.call(arrive, PATIENCE_S[what], recipient.context)

    def _garbled(self, body: bytes) -> bytes:
        share = self._wire.weather.garbled
        if not body or not share or self._rng.random() >= share:
            return body
        at = self._rng.randrange(len(body))
        return body[:at] + bytes([body[at] ^ 1]) + body[at + 1 :]
