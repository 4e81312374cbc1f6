"""What clients ask of one queue: to put, lease, and settle items, and to move its frontier.

Each call becomes commands in the log, and its answer is what the fold says there. A lease first reads the
items that it got: some are no items at all (what a transaction leaves in its topic), some repeat an id, and
some have had all their attempts and go to the queue of dead letters.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass

from services.queue.core.commands import (
    Ack,
    Dead,
    Enter,
    Lease,
    Receipt,
    Seek,
    Until,
)
from services.queue.core.fold import BURY_MS, Applied, EnterAnswer, LeaseAnswer, Leased, ReceiptsAnswer
from services.queue.core.items import ItemRecord, dead_letter, redriven
from services.queue.core.open_items import Place
from services.queue.core.queue_state import QueueStatus
from services.queue.ports import ItemLog
from services.queue.worker.engine import Engine, QueueNotReady
from shared.errors import Conflict, KafkaUnavailable
from shared.model.names import DEAD

WHY_EXHAUSTED = "max_attempts"
REDRIVE_AT_ONCE = 100
REDRIVE_LEASE_MS = 60_000
logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class HandedOut:
    """An item in the hands of a client."""

    leased: Leased
    record: ItemRecord


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
    def dead(self) -> Leasing:
        """The queue of its dead letters. Raises Conflict if it buries none, KafkaUnavailable."""
        if self.engine.name.endswith(DEAD):
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

    async def put(self, items: Sequence[ItemRecord]) -> list[int]:
        """Stores items; the indexes of those that may not be stored. Raises Conflict over another topic."""
        settings = self.engine.state.settings
        if settings is not None and settings.over:
            raise Conflict(f"the queue is over the topic {settings.over}: what is written there is its items")
        return await self.items.append(items) if items else []

    async def lease(self, count: int, lease_ms: int, wait_s: float) -> list[HandedOut]:
        """At most `count` items; waits for the first one, at most so long. May be cancelled: loses nothing.

        Raises KafkaUnavailable, and as `Engine.state`.
        """
        loop = asyncio.get_running_loop()
        until_s = loop.time() + wait_s
        if not wait_s:
            # what was put before this call must be found, although this worker may not have read it yet
            await self.items.catch_up()
            self.engine.demand.begin(count)
            return await self._finish(self._take(count, lease_ms))
        while await self.engine.demand.wait(count, until_s):
            found = await self._finish(self._take(count, lease_ms))
            if found:
                return found
        return []

    async def settle(self, command: Ack | Until) -> Sequence[int]:
        """The indexes of stale receipts, after an ack, a release or an extension."""
        answer = await self.engine.submit(command, ReceiptsAnswer)
        return answer.stale

    async def reject(self, receipts: Sequence[Receipt], why: str) -> Sequence[int]:
        """Buries the items now; the indexes of stale receipts. Raises Conflict if this queue buries none."""
        _ = self.dead
        # first, so that this worker has read their leases, wherever they were given, and they do not end now
        await self.settle(Until(tuple(receipts), BURY_MS))
        found = {receipt: self.engine.state.open.get(_place(receipt)) for receipt in receipts}
        good = {r: item.attempts for r, item in found.items() if item is not None and item.lease == r.lease}
        await self._bury(good, why)
        # for all: a stale receipt never becomes good again, and done again is done
        answer = await self.engine.submit(Dead(tuple(receipts)), ReceiptsAnswer)
        return answer.stale

    def count_dead(self) -> int:
        """How many dead letters are not done; 0 for a queue of dead letters."""
        try:
            status = self.dead.engine.status()
        except Conflict:
            return 0
        return status.ready + status.leased + status.waiting

    async def oldest_age_s(self) -> float | None:
        """The age of the oldest item that is not done; None if there is none. Raises KafkaUnavailable."""
        engine, items = self.engine, self.items
        lowest = enumerate(zip(engine.state.lowest_open(), items.backlog_ends, strict=True))
        found = await items.get([(number, offset) for number, (offset, end) in lowest if offset < end])
        if not found:
            return None
        return max(0, engine.now_ms - min(item.append_ms for item in found.values())) / 1000

    async def seek(self, to: Sequence[int], *, drop: bool = False) -> QueueStatus:
        """Moves the frontier; `drop`: what is open is done. The status right after it."""
        await self.engine.submit(Seek(tuple(to), drop), Applied)
        self.engine.changed()
        await self.items.catch_up()
        return self.engine.status()

    async def redrive(self) -> QueueStatus:
        """Puts the dead letters that are ready back into the queue, in order; the status after it."""
        settings, dead = self.engine.state.settings, self.dead
        if settings is None or settings.over:
            raise Conflict("the queue has no topic of its own: lease its dead letters instead")
        await dead.items.catch_up()
        left = dead.engine.status().ready
        while left > 0:
            found = await dead.lease(min(left, REDRIVE_AT_ONCE), REDRIVE_LEASE_MS, 0)
            if not found:
                break
            left -= len(found)
            again = [redriven(one.record) for one in found]
            if await self.items.append(again):
                raise KafkaUnavailable("not all dead letters are stored again; those stay where they are")
            await dead.settle(Ack(tuple(one.leased.receipt for one in found)))
        await self.items.catch_up()
        return self.engine.status()

    async def _finish(self, taking: asyncio.Task[list[HandedOut]]) -> list[HandedOut]:
        """The result, even if the client goes meanwhile: then the items are given back."""
        try:
            return await asyncio.shield(taking)
        except asyncio.CancelledError:
            taking.add_done_callback(self._give_back)
            raise

    def _give_back(self, taking: asyncio.Task[list[HandedOut]]) -> None:
        if not taking.cancelled() and taking.exception() is None and taking.result():
            self._start_release([one.leased.receipt for one in taking.result()])

    def _start_release(self, receipts: Sequence[Receipt]) -> None:
        async def release() -> None:
            # else they come back when their time is over
            with contextlib.suppress(KafkaUnavailable):
                await self.engine.submissions.submit([Until(tuple(receipts), 0, is_release=True)])

        self._start(release())

    def _take(self, count: int, lease_ms: int) -> asyncio.Task[list[HandedOut]]:
        async def take() -> list[HandedOut]:
            try:
                items = self.items
                command = Lease(count, lease_ms, tuple(items.ends), tuple(items.starts))
                answer = await self.engine.submit(command, LeaseAnswer)
            finally:
                self.engine.demand.served(count)
            if answer.to_bury:
                self._start(self._bury_exhausted(answer.to_bury))
            return await self._hand_out(answer.leased)

        return asyncio.create_task(take(), name=f"lease of {self.engine.name}")

    async def _hand_out(self, leased: Sequence[Leased]) -> list[HandedOut]:
        """What of it the client gets: without places where there is no item, and without repeats."""
        if not leased:
            return []
        try:
            records = await self.items.get([_place(one.receipt) for one in leased])
        except KafkaUnavailable:
            self._start_release([one.receipt for one in leased])
            raise
        if gaps := [one.receipt for one in leased if _place(one.receipt) not in records]:
            await self.engine.submissions.submit([Ack(tuple(gaps))])
        found = [
            HandedOut(leased=one, record=records[_place(one.receipt)])
            for one in leased
            if _place(one.receipt) in records
        ]
        new = [one for one in found if one.record.id and not one.leased.is_entered]
        entering = [Enter(one.leased.receipt, one.record.id) for one in new]
        answers = await self.engine.submissions.submit(entering)
        repeats = {
            one.leased.receipt
            for one, answer in zip(new, answers, strict=True)
            if not (isinstance(answer, EnterAnswer) and answer.is_kept)
        }
        return [one for one in found if one.leased.receipt not in repeats]

    async def _bury_exhausted(self, exhausted: Sequence[Leased]) -> None:
        try:
            await self._bury({one.receipt: one.attempt for one in exhausted}, WHY_EXHAUSTED)
            await self.engine.submit(Dead(tuple(one.receipt for one in exhausted)), ReceiptsAnswer)
        except KafkaUnavailable as error:  # the next lease hands them to another worker
            logger.warning("dead letters wait", extra={"queue": self.engine.name, "why": error.detail})

    async def _bury(self, attempts: Mapping[Receipt, int], why: str) -> None:
        """Copies the items to the queue of dead letters, before they are done here."""
        places = [_place(receipt) for receipt in attempts]
        records = await self.items.get(places)
        letters = [
            dead_letter(self.engine.name, receipt, records[_place(receipt)], attempt, why)
            for receipt, attempt in attempts.items()
            if _place(receipt) in records
        ]
        if letters and await self.dead.items.append(letters):
            raise KafkaUnavailable("the dead letters are not stored")

    def _start(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work, name=f"background of {self.engine.name}")
        self._background.add(task)
        task.add_done_callback(self._background.discard)


def _place(receipt: Receipt) -> Place:
    return receipt.partition, receipt.offset
