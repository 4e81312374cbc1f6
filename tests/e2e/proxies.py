"""One process's connections to all servers of a kind: several proxies that act as one."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Sequence

from tests.e2e.proxy import ANY, Protocol, Proxy


class Proxies:
    """A `Proxy` for each of the servers, in order."""

    def __init__(self, upstreams: Sequence[str], protocol: Protocol = "raw") -> None:
        self.each = [Proxy(upstream, protocol) for upstream in upstreams]

    def __repr__(self) -> str:
        return f"<Proxies {self.each}>"

    @property
    def address(self) -> str:
        """`host:port,…` for clients."""
        return ",".join(one.address for one in self.each)

    @property
    def mute(self) -> int:
        """How many connections are mute."""
        return sum(one.mute for one in self.each)

    @property
    def delayed(self) -> int:
        """Pieces that had to wait so far."""
        return sum(one.delayed for one in self.each)

    @property
    def swallowed(self) -> Counter[int]:
        """Answers held back so far, by the kind of their request."""
        return sum((one.swallowed for one in self.each), Counter())

    def in_flight(self, *kinds: int) -> int:
        """Requests of these kinds (of all without any) that have no answer yet."""
        return sum(one.in_flight(*kinds) for one in self.each)

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Listens for the block."""
        async with contextlib.AsyncExitStack() as stack:
            for one in self.each:
                await stack.enter_async_context(one.running())
            yield

    @contextlib.contextmanager
    def watched(self, kind: int, seen: Callable[[], None]) -> Iterator[None]:
        """In the block `seen` is called for every request of this kind, just before it is passed on."""
        with contextlib.ExitStack() as stack:
            for one in self.each:
                stack.enter_context(one.watched(kind, seen))
            yield

    def delay(self, delay_s: float) -> None:
        """From now on each piece waits for so long, in either direction."""
        for one in self.each:
            one.delay_s = delay_s

    def cut(self) -> int:
        """Resets all connections; how many."""
        return sum(one.cut() for one in self.each)

    def cut_off(self) -> None:
        """Resets all connections, and every new one until `accept`."""
        for one in self.each:
            one.cut_off()

    def swallow(self, kind: int = ANY) -> None:
        """From now on a connection goes mute with its next answer to a request of this kind."""
        for one in self.each:
            one.swallow(kind)

    def swallow_no_more(self) -> None:
        """No other connection goes mute; those that are stay so."""
        for one in self.each:
            one.swallow_no_more()

    def deliver(self) -> None:
        """Swallows no more, and what was swallowed gets through, late."""
        for one in self.each:
            one.deliver()

    def drop(self) -> None:
        """Swallows no more; mute connections are cut, and their answers lost for good."""
        for one in self.each:
            one.drop()

    def accept(self) -> None:
        """Serves new connections again; other faults go on."""
        for one in self.each:
            one.accept()

    def heal(self) -> None:
        """Ends every fault."""
        for one in self.each:
            one.heal()
