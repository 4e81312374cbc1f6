"""Kafka in memory behind a network that is not to be trusted, for real workers of the queue service.

An append takes effect at the broker even if its sender has died since; its answer may be lost, and it may
come after the sender has given it up. Readings lag, and fail now and then.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import random
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence

from services.queue.core.commands import decode_record
from services.queue.core.items import ItemRecord
from services.queue.core.open_items import Place
from services.queue.core.replica import LogMoved, LogRecord
from services.queue.ports import Unstored
from shared.errors import KafkaUnavailable
from tests.fakes.queues import InMemoryCommandLog, InMemoryItemLog, InMemoryQueueStore
from tests.fakes.virtual_time import PROCESS
from tests.simulation.trace import Trace

WORLD = contextvars.Context()
"""What happens in it belongs to no process: neither a kill nor a stop keeps it from happening."""
GIVEN_UP_S = 5.0


class UnreliableStore(InMemoryQueueStore):
    """Faults stop once it is `healed`. The `trace` has all that is stored."""

    def __init__(self, rng: random.Random, trace: Trace) -> None:
        super().__init__()
        self.rng, self.happened = rng, Counter[str]()
        self.is_healed = False
        self.trace = trace

    def strikes(self, what: str, chance: float) -> bool:
        """Whether this fault happens now."""
        if self.is_healed or self.rng.random() >= chance:
            return False
        self.happens(what, PROCESS.get())
        return True

    def happens(self, what: str, *whom: object) -> None:
        """Counts what happened, and writes it down."""
        self.happened[what] += 1
        self.trace.note("", what, *whom)

    async def pause(self, longest_s: float) -> None:
        """Time that the network takes."""
        await asyncio.sleep(self.rng.uniform(0.001, 0.005 if self.is_healed else longest_s))

    def open_log(self, name: str) -> UnreliableCommandLog:
        return UnreliableCommandLog(self, name)

    async def open_items(
        self, name: str, *, over: str, partitions: int, frontier: Sequence[int]
    ) -> UnreliableItemLog:
        await self.pause(0.05)
        return UnreliableItemLog(self, name, over or name, partitions)

    async def deliver(self, what: str, store: Callable[[], None]) -> None:
        """Lets the broker `store` what was sent. Raises KafkaUnavailable if the sender hears nothing."""
        loop = asyncio.get_running_loop()
        answered: asyncio.Future[None] = loop.create_future()

        def arrive() -> None:
            try:
                store()
            except KafkaUnavailable:  # its topic was deleted meanwhile
                return
            if not answered.done():
                answered.set_result(None)

        is_late = self.strikes(f"{what} late", 0.02)
        if not self.strikes(f"{what} lost", 0.04):
            slow_s = self.rng.uniform(0.1, 3.0) if self.strikes(f"{what} slow", 0.05) else 0.0
            delay_s = GIVEN_UP_S + 1 if is_late else self.rng.uniform(0.001, 0.02) + slow_s
            loop.call_later(delay_s, arrive, context=WORLD)
            if not is_late and not self.strikes(f"answer to {what} lost", 0.02):
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(GIVEN_UP_S):
                        await answered
                        return
        await asyncio.sleep(GIVEN_UP_S)
        raise KafkaUnavailable("not acknowledged")


class UnreliableCommandLog(InMemoryCommandLog):
    """One worker's access to the log of a queue; it hears late that another topic has the name."""

    def __init__(self, store: UnreliableStore, name: str) -> None:
        super().__init__(store, name)
        self._wire = store

    async def read(self, timeout_s: float) -> Sequence[LogRecord]:
        await self._wire.pause(0.02)
        if self._wire.strikes("log unreadable", 0.001):
            raise KafkaUnavailable("refused")
        try:
            return await super().read(timeout_s)
        except (KafkaUnavailable, LogMoved):
            await self._wire.pause(3)
            raise

    async def append(self, value: bytes) -> None:
        sender = PROCESS.get()

        def store() -> None:
            is_stale = self.is_moved
            offset = self.store_now(value)
            self._wire.trace.note(sender, "writes", self._name, offset, *decode_record(value).commands)
            if is_stale:
                self._wire.happens("record of a deleted queue", sender)

        await self._wire.deliver("record", store)


class UnreliableItemLog(InMemoryItemLog):
    """One worker's access to the items of a queue."""

    def __init__(self, store: UnreliableStore, name: str, topic: str, partitions: int) -> None:
        super().__init__(store, name, topic, partitions)
        self._wire = store

    async def get(self, places: Collection[Place]) -> Mapping[Place, ItemRecord]:
        if places:
            await self._wire.pause(0.01)
            if self._wire.strikes("items unreadable", 0.01):
                raise KafkaUnavailable("refused")
        return await super().get(places)

    async def find(self, to: int | str) -> list[int]:
        found = await super().find(to)
        await self._wire.pause(0.5)  # what was found is old when it arrives
        return found

    async def append(self, items: Sequence[ItemRecord]) -> Unstored:
        sender = PROCESS.get()

        def store() -> None:
            self._wire.trace.note(sender, "puts", self._name, *items)
            self.store_now(items)

        try:
            await self._wire.deliver("items", store)
        except KafkaUnavailable:
            return Unstored(unsure=range(len(items)))
        return Unstored()
