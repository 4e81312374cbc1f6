"""What clients ask of one queue: to put, lease, and settle items, and to move its frontier.

Each call becomes commands in the log, and its answer is what the fold says there. What a lease got is then
handed out (handing_out.py), or buried if it has had all its attempts (burying.py).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import NamedTuple

from services.queue.core.commands import Ack, Dead, Lease, Receipt, Seek, Until
from services.queue.core.fold import BURY_MS, Applied, LeaseAnswer, Leased, ReceiptsAnswer
from services.queue.core.items import Death, ItemRecord, has_value, life_of, redriven
from services.queue.core.open_items import Place
from services.queue.core.queue_state import QueueStatus
from services.queue.core.receipts import read_receipt
from services.queue.ports import ItemLog, Unstored
from services.queue.worker.answers import AnswerShare
from services.queue.worker.burying import bury, bury_exhausted
from services.queue.worker.engine import Engine, QueueNotReady
from services.queue.worker.handing_out import READ_AT_ONCE, HandedOut, hand_out, place_of
from shared.errors import Conflict, KafkaUnavailable
from shared.model.names import DEAD

REDRIVE_AT_ONCE = 100
REDRIVE_LEASE_MS = 60_000
LOOK_ON_S = 10.0
"""So long a lease that does not wait looks on behind repeats and offsets without an item."""


class ItemsLost(KafkaUnavailable):
    """The topic of the items ends before what was leased: it was made anew, or has lost its end."""


class Taken(NamedTuple):
    """What one lease in the log got: the items for its client, and how many offsets at all."""

    found: Sequence[HandedOut]
    offsets: int


class Leasing:
    """One queue for its clients; `dead()` is the queue of its dead letters, None if it is not open here."""

    def __init__(self, engine: Engine, dead: Callable[[], Leasing | None]) -> None:
        self.engine = engine
        self._dead = dead
        self._background: set[asyncio.Task[None]] = set()

    def __repr__(self) -> str:
        return f"<Leasing of {self.engine.name}>"

    @property
    def items(self) -> ItemLog:
        """The queue's items. Raises as `Engine.state`, QueueNotReady while they are being opened."""
        _ = self.engine.state
        if self.engine.items is None:
            raise QueueNotReady(f"the items of the queue {self.engine.name} are being opened")
        return self.engine.items

    @property
    def sound_items(self) -> ItemLog:
        """The queue's items, to be leased or added to. Raises as `items`, and ItemsLost."""
        items = self.items
        if items.fault:
            raise ItemsLost(items.fault)
        return items

    @property
    def is_dead(self) -> bool:
        """Whether the items are dead letters."""
        return self.engine.name.endswith(DEAD)

    @property
    def dead(self) -> Leasing:
        """The queue of its dead letters. Raises Conflict if it buries none, KafkaUnavailable."""
        if self.is_dead:
            raise Conflict("a queue of dead letters has none of its own: ack what is to go")
        dead = self._dead()
        if dead is None:
            raise QueueNotReady(f"the queue {self.engine.name}{DEAD} is not open yet")
        return dead

    async def close(self) -> None:
        """Ends what runs in the background; never raises."""
        for task in self._background:
            task.cancel()
        await asyncio.gather(*self._background, return_exceptions=True)

    async def put(self, items: Sequence[ItemRecord]) -> Unstored:
        """Stores items, each by itself.

        Raises Conflict if the queue is over another topic, or one of dead letters.
        """
        settings = self.engine.state.settings
        if self.is_dead:  # with the id of a letter that is to come, an item would make that one a repeat
            raise Conflict("a queue of dead letters gets them from its queue alone")
        if settings is not None and settings.over:
            raise Conflict(f"the queue is over the topic {settings.over}: what is written there is its items")
        return await self.sound_items.append(items) if items else Unstored()

    async def lease(self, count: int, lease_ms: int, share: AnswerShare | None = None) -> Sequence[HandedOut]:
        """At most `count` items, at once; none only if there is none. May be cancelled: loses nothing.

        `share`: what the answer may hold in memory. Raises KafkaUnavailable, Overloaded, ItemsLost, and as
        `Engine.state`.
        """
        found = await self.lease_ready(count, lease_ms, share)
        if found:
            return found
        # what was put before this call must be found, although this worker may not have read it yet
        await self.items.catch_up()
        clock = asyncio.get_running_loop().time
        until_s = clock() + LOOK_ON_S
        while True:
            self.engine.demand.begin(count)
            taken = await self._take(count, lease_ms, share)
            # repeats, offsets without an item, dead letters: there may be items behind them
            if taken.found or not taken.offsets or clock() > until_s:
                return taken.found

    async def lease_ready(
        self, count: int, lease_ms: int, share: AnswerShare | None = None
    ) -> Sequence[HandedOut]:
        """As `lease`, but none unless this worker knows of enough for all who wait, and for this call."""
        demand = self.engine.demand
        if not demand.suffices(count):
            return ()
        demand.begin(count)
        return (await self._take(count, lease_ms, share)).found

    async def poll(
        self, count: int, lease_ms: int, wait_s: float, share: AnswerShare | None = None
    ) -> Sequence[HandedOut]:
        """As `lease`, but waits for the first item, at most so long."""
        until_s = asyncio.get_running_loop().time() + wait_s
        while await self.engine.demand.wait(count, until_s):
            taken = await self._take(count, lease_ms, share)
            if taken.found:
                return taken.found
        return []

    async def ack(self, receipts: Sequence[str]) -> Sequence[int]:
        """The items are done; the indexes of stale receipts."""

        async def settle(good: tuple[Receipt, ...]) -> Sequence[int]:
            return (await self.engine.submit(Ack(good), ReceiptsAnswer)).stale

        return await self._settled(receipts, settle)

    async def put_off(
        self, receipts: Sequence[str], ms: int, *, is_release: bool = False, is_unseen: bool = False
    ) -> Sequence[int]:
        """The leases end so long from now: extended, or given back; the indexes of stale receipts."""

        async def settle(good: tuple[Receipt, ...]) -> Sequence[int]:
            command = Until(good, ms, is_release=is_release, is_unseen=is_unseen)
            return (await self.engine.submit(command, ReceiptsAnswer)).stale

        return await self._settled(receipts, settle)

    async def reject(self, receipts: Sequence[str], why: str) -> Sequence[int]:
        """Buries the items now; the indexes of stale receipts. Raises Conflict if this queue buries none."""
        letters = self.dead.sound_items

        async def settle(good: tuple[Receipt, ...]) -> Sequence[int]:
            # first, so that this worker has read their leases, wherever they were given, and none ends now
            await self.engine.submit(Until(good, BURY_MS, is_at_least=True), ReceiptsAnswer)
            found = {receipt: self.engine.state.open.get(place_of(receipt)) for receipt in good}
            deaths = {
                receipt: Death(item.attempts, life_of(item.first_lease, self.engine.incarnation))
                for receipt, item in found.items()
                if item is not None and item.lease == receipt.lease
            }
            if await bury(self.engine, self.sound_items, letters, deaths, why):
                raise KafkaUnavailable("not all dead letters are stored; the other items are done")
            # for all: a stale receipt never becomes good again, and done again is done
            return (await self.engine.submit(Dead(good), ReceiptsAnswer)).stale

        return await self._settled(receipts, settle)

    async def _settled(
        self, receipts: Sequence[str], settle: Callable[[tuple[Receipt, ...]], Awaitable[Sequence[int]]]
    ) -> Sequence[int]:
        """The indexes of stale receipts: those that `settle` finds, and those that this queue never gave out.

        If it gave out none, `settle` is asked all the same: a command comes back only if the log is still the
        queue's, so a worker that has not heard of a new queue of this name does not speak for it.
        """
        engine = self.engine
        incarnation = engine.state.incarnation
        read = {index: read_receipt(text, engine.name, incarnation) for index, text in enumerate(receipts)}
        good = {index: receipt for index, receipt in read.items() if receipt is not None}
        indexes = list(good)
        stale = {indexes[at] for at in await settle(tuple(good.values()))}
        return sorted(stale | (read.keys() - good.keys()))

    def count_dead(self) -> int:
        """How many dead letters are not done; 0 for a queue of dead letters."""
        try:
            status = self.dead.engine.status()
        except Conflict:
            return 0
        return status.ready + status.leased + status.waiting

    async def oldest_age_s(self) -> float | None:
        """The age of the oldest item that is not done; None if there is none. Raises KafkaUnavailable."""
        engine, items, state = self.engine, self.items, self.engine.state
        # what was read: behind it a transaction may be open, and there is nothing to be had before it ends
        ends = [max(end, first) for end, first in zip(items.ends, state.frontier, strict=True)]
        lowest = [
            (number, offset)
            for number, (offset, end) in enumerate(zip(state.lowest_open(), ends, strict=True))
            if offset < end
        ]
        found = dict(await items.get(lowest))
        for place in lowest:
            if place not in found and (item := await self._first_behind(place, ends[place[0]])) is not None:
                found[place] = item
        if not found:
            return None
        return max(0, engine.now_ms - min(item.append_ms for item in found.values())) / 1000

    async def _first_behind(self, place: Place, end: int) -> ItemRecord | None:
        """The first item of the partition that is not done, if there is none at `place`."""
        number, offset = place
        state = self.engine.state
        opened = sorted(one.offset for one in state.open if one.partition == number and one.offset > offset)
        for first in range(0, len(opened), READ_AT_ONCE):
            records = await self.items.get([(number, at) for at in opened[first : first + READ_AT_ONCE]])
            if records:
                return records[min(records)]
        return await self.items.first((number, max(offset, state.frontier[number])), end)

    async def seek(self, command: Seek) -> QueueStatus:
        """Moves the frontier; the status right after it."""
        await self.engine.submit(command, Applied)
        self.engine.changed()
        await self.items.check(self.engine.state.frontier)
        await self.items.catch_up()
        return self.engine.status()

    async def redrive(self) -> QueueStatus:
        """Puts the dead letters that are ready back into the queue, in order; the status after it.

        Those without a value stay where they are. Raises Conflict if Kafka refuses some items for good.
        """
        settings, dead = self.engine.state.settings, self.dead
        if settings is None or settings.over:
            raise Conflict("the queue has no topic of its own: lease its dead letters instead")
        await dead.items.catch_up()
        left, stay = dead.engine.status().ready, list[Leased]()
        try:
            while left > 0:
                found = await dead.lease(min(left, REDRIVE_AT_ONCE), REDRIVE_LEASE_MS)
                if not found:
                    break
                left -= len(found)
                whole = [one for one in found if has_value(one.record)]
                stay += [one.leased for one in found if not has_value(one.record)]
                if not whole:
                    continue
                unstored = await self.sound_items.append([redriven(one.record) for one in whole])
                await dead.ack([one.receipt for n, one in enumerate(whole) if n not in unstored.indexes])
                if unstored.unsure:
                    raise KafkaUnavailable("not all dead letters are stored again; those stay where they are")
                if unstored.refused:
                    raise Conflict(
                        f"Kafka refuses {len(unstored.refused)} of the items; they stay where they are"
                    )
        finally:
            dead.engine.give_back(stay)
        await self.items.catch_up()
        return self.engine.status()

    async def _take(self, count: int, lease_ms: int, share: AnswerShare | None) -> Taken:
        """One lease in the log. If its client goes meanwhile, the items are given back."""
        engine, got = self.engine, 0
        try:
            items = self.sound_items
            if share is not None:
                share.check()
            command = Lease(count, lease_ms, tuple(items.ends), tuple(items.starts))
            answer = await engine.submit(command, LeaseAnswer)
            got = len(answer.leased) + len(answer.to_bury)
        finally:
            engine.demand.served(count, got)
        if answer.to_bury:
            self._start(self._bury(answer.to_bury))
        try:
            return Taken(await hand_out(engine, items, answer.leased, share), got)
        except (KafkaUnavailable, asyncio.CancelledError):
            engine.give_back(answer.leased)
            raise

    async def _bury(self, gone: Sequence[Leased]) -> None:
        with contextlib.suppress(KafkaUnavailable):  # its queue is not open yet: a later lease has them again
            await bury_exhausted(self.engine, self.sound_items, self.dead.sound_items, gone)

    def _start(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work, name=f"background of {self.engine.name}")
        self._background.add(task)
        task.add_done_callback(self._background.discard)
