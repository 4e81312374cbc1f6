"""What a fault works on: the world, its load, the fault's own random numbers, its victims.

Faults may overlap, but a consumer is the victim of one at a time, and one consumer is always spared.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from dataclasses import dataclass

from tests.e2e.chaos_load import Load
from tests.e2e.chaos_world import MOST_CONSUMERS, World
from tests.e2e.proxies import Proxies
from tests.e2e.proxy import END_TXN
from tests.servers import Server
from tests.waiting import until

FEWEST_CONSUMERS = 2


Strike = Callable[[], object]
"""What strikes in an instant."""


def nothing() -> None:
    """For a fault that only waits for the moment."""


@dataclass(frozen=True, slots=True)
class Struck:
    """What a fault did, and how many things it hit."""

    what: str
    evidence: int


@dataclass(frozen=True, slots=True)
class Victim:
    """A consumer by its index, and how many streams it owned when it was chosen."""

    index: int
    streams: int


@dataclass(frozen=True, slots=True)
class Ground:
    """What a fault works on; `busy` are the victims of all current faults."""

    world: World
    load: Load
    rng: random.Random
    busy: set[int]

    @contextlib.asynccontextmanager
    async def victim(self) -> AsyncIterator[Victim]:
        """A consumer that owns streams, for the block; every stream has an owner when it is chosen."""
        async with self.victims(1) as (chosen,):
            yield chosen

    @contextlib.asynccontextmanager
    async def victims(self, count: int) -> AsyncIterator[list[Victim]]:
        """So many consumers that own streams, for the block.

        All are chosen at once: another fault may need the first one while this one waits for the second.
        Starts a consumer where too few are left, because those that drained stay away.
        """
        owners: list[int] = []

        async def are_there() -> bool:
            nonlocal owners
            if len(self.free) <= count and not self.busy:
                with self.newcomer() as index:
                    self.world.start_consumer(index)
            owners = list((await self.world.claimed()).values())
            return len(set(owners) - self.busy) >= count and len(self.free) > count

        await until(are_there, lambda: f"owners {owners}, busy {self.busy}:\n{self.world.tail()}")
        chosen = self.rng.sample(sorted(set(owners) - self.busy), count)
        self.busy.update(chosen)
        try:
            yield [Victim(index, owners.count(index)) for index in chosen]
        finally:
            self.busy.difference_update(chosen)

    @contextlib.contextmanager
    def newcomer(self) -> Iterator[int]:
        """An index at which no consumer runs, for the block."""
        taken = {*self.world.consumers, *self.busy}
        index = min(set(range(MOST_CONSUMERS)) - taken)
        self.busy.add(index)
        try:
            yield index
        finally:
            self.busy.discard(index)

    @contextlib.asynccontextmanager
    async def server(self, kind: str) -> AsyncIterator[tuple[int, Server]]:
        """One server of that kind and its number, for the block; two of them are never away together."""
        group = self.world.servers[kind]
        async with self.world.turns[kind]:
            await until(group.is_whole, lambda: f"{group} does not recover:\n{self.world.tail()}")
            yield self.rng.choice(list(group.nodes.items()))

    @property
    def free(self) -> list[int]:
        """The running consumers that no fault has chosen."""
        return [index for index in self.world.consumers if index not in self.busy]

    def kafka_links(self) -> list[Proxies]:
        """The connections of all consumers to Kafka."""
        return [self.world.links_of(index).kafka for index in self.world.consumers]

    async def at_a_commit(self, strike: Strike = nothing, of: int | None = None) -> int:
        """Strikes when a commit (of consumer `of`) passes its proxy; how many commits are under way."""
        links = self.kafka_links() if of is None else [self.world.links_of(of).kafka]
        return await self.at_a_request(links, END_TXN, strike)

    async def at_a_request(
        self,
        links: Iterable[Proxies],
        kind: int,
        strike: Strike = nothing,
        unless: Callable[[], bool] = lambda: False,
        skip: int = 0,
    ) -> int:
        """Strikes right before or right after a link passes such a request on; how many are in flight.

        It is 0 when `unless` becomes true before the first one. `skip`: requests that pass before.
        """
        links, loop = list(links), asyncio.get_running_loop()
        counts: list[int] = []
        struck = asyncio.Event()
        is_before = self.rng.random() < 0.5
        to_skip = skip

        def do() -> None:
            strike()
            struck.set()

        def seen() -> None:
            nonlocal to_skip
            to_skip -= 1
            if not counts and to_skip < 0:
                counts.append(sum(link.in_flight(kind) for link in links))
                do() if is_before else loop.call_soon(do)

        with contextlib.ExitStack() as watches:
            for link in links:
                watches.enter_context(link.watched(kind, seen))
            await until(
                lambda: struck.is_set() or (unless() and not counts),
                lambda: f"no request {kind}:\n{self.world.tail()}",
            )
        return counts[0] if counts else 0
