"""Members' ports in the simulation: connections that stand while both processes live, and firewalls.

A killed process' host breaks its connections and refuses new ones a moment later; a frozen process' host goes
on accepting them. A firewall (`refuse`) does the same to a process that lives, for some or for all: whoever
watches it suspects it wrongly.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from services.consumer.ports import Ending
from tests.simulation.wire import QUICK_S

if TYPE_CHECKING:
    from tests.simulation.process import Process
    from tests.simulation.world import World

PATIENCE_S = 1.0
"""How long a connection is tried that nobody answers."""


@dataclass(slots=True)
class Firewalls:
    """Which processes cannot be reached by whom, and every connection that stands."""

    refused: dict[str, frozenset[str]] = field(default_factory=dict)
    """Process → the ids of the members that it refuses."""
    held: dict[tuple[str, str], asyncio.Future[None]] = field(default_factory=dict)
    """By the names of the process that listens and of the one that has connected."""

    def refuse(self, process: Process, members: frozenset[str]) -> None:
        """A living process refuses these members from now on, and their connections break."""
        self.refused[process.name] = members
        for to, by in list(self.held):
            if to == process.name and by.rstrip("0123456789") in members:
                self._break(to, by)

    def end(self, process: Process) -> None:
        """The process is dead: every connection to it breaks."""
        for to, by in list(self.held):
            if to == process.name:
                self._break(to, by)

    def _break(self, to: str, by: str) -> None:
        held = self.held.pop((to, by))
        if not held.done():
            held.set_result(None)


class SimulatedListeners:
    """A `Listeners`: how one process reaches the ports of all."""

    def __init__(self, world: World, process: Process, rng: random.Random) -> None:
        self._world = world
        self._process = process
        self._rng = rng

    async def hold(self, address: str, connected: Callable[[], None]) -> Ending:
        """See Listeners."""
        answer = await self.is_open(address)
        process = self._world.process_at(address)
        if not answer or process is None:
            return "failed" if answer is None else "refused"
        connected()
        held: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._world.firewalls.held[process.name, self._process.name] = held
        await asyncio.shield(held)
        await asyncio.sleep(self._rng.random() * QUICK_S)
        return "broke"

    async def is_open(self, address: str) -> bool | None:
        """See Listeners."""
        world = self._world
        await asyncio.sleep(self._rng.random() * QUICK_S)
        weather = self._process.weathers["peers"]
        if weather.cut_requests or weather.cut_answers:
            await asyncio.sleep(PATIENCE_S)
            return None
        process = world.process_at(address)
        if process is None:
            return False
        return self._process.member_id not in world.firewalls.refused.get(process.name, ())
