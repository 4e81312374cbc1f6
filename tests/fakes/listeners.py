"""Who listens where, in memory: connections that stand until a process ends or a test breaks them.

`ListenerNetwork` has the open addresses and the connections to them; `InMemoryListeners` is one member's
`Listeners`. `refuse` is a firewall: it breaks connections to an address and refuses new ones, to some or all.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection

from services.consumer.ports import Ending


class ListenerNetwork:
    """The addresses at which processes listen, and every connection that stands."""

    def __init__(self) -> None:
        self.open: set[str] = set()
        self.silent: set[str] = set()
        """Addresses whose host is gone: they neither answer nor refuse, and connections seem to stand."""
        self._refused: dict[str, Collection[str]] = {}
        self._held: dict[tuple[str, str], asyncio.Event] = {}

    def close(self, address: str) -> None:
        """The process there has ended; its host refuses new connections."""
        self.open.discard(address)
        self._break(address, [])

    def refuse(self, address: str, callers: Collection[str] = ()) -> None:
        """From now on the address refuses these callers, or all without any."""
        self._refused[address] = callers
        self._break(address, callers)

    def accept(self, address: str) -> None:
        """Undoes `refuse`."""
        self._refused.pop(address, None)

    def answers(self, address: str, caller: str) -> bool | None:
        """Whether the address accepts a connection of the caller; None: no answer at all."""
        if address in self.silent:
            return None
        callers = self._refused.get(address)
        return address in self.open and not (callers is not None and (not callers or caller in callers))

    def hold(self, address: str, caller: str) -> asyncio.Event:
        """The event that ends a new connection."""
        return self._held.setdefault((address, caller), asyncio.Event())

    def _break(self, address: str, callers: Collection[str]) -> None:
        if address in self.silent:
            return
        for held, caller in [key for key in self._held if key[0] == address]:
            if not callers or caller in callers:
                self._held.pop((held, caller)).set()


class InMemoryListeners:
    """A `Listeners` of the member at address `caller`."""

    def __init__(self, network: ListenerNetwork, caller: str) -> None:
        self._network = network
        self._caller = caller

    async def hold(self, address: str, connected: Callable[[], None]) -> Ending:
        """See Listeners."""
        answers = await self.is_open(address)
        if not answers:
            return "failed" if answers is None else "refused"
        connected()
        await self._network.hold(address, self._caller).wait()
        return "broke"

    async def is_open(self, address: str) -> bool | None:
        """See Listeners."""
        await asyncio.sleep(0)
        return self._network.answers(address, self._caller)
