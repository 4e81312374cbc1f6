"""What happens in one run of the real workers of the queue service, on virtual time.

A seed decides what clients, workers and the network do. A killed worker is a process that never runs again:
what it had sent still arrives. A stopped one goes on later, with answers that are over. In the end all is
healed, the rest is worked off, and everything is judged (verdict.py). Only HTTP and Kafka are replaced.
"""

from __future__ import annotations

import asyncio
import contextvars
import random
from collections import defaultdict
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from services.queue.core.commands import Seek
from services.queue.core.items import ItemRecord
from services.queue.worker.handing_out import HandedOut, place_of
from services.queue.worker.leasing import Leasing
from services.queue.worker.queues import QueueChanges, Queues
from shared.errors import BatonError, Conflict, KafkaUnavailable, NotFound
from tests.fakes.virtual_time import PROCESS, VirtualLoop, until
from tests.queue_simulation.ledger import Ledger
from tests.queue_simulation.verdict import folded, judge
from tests.queue_simulation.wire import UnreliableStore
from tests.simulation.trace import Trace

T = TypeVar("T")
LEASE_MS = 2_000
REQUEST_S = 8.0
"""So long a client waits for an answer."""
DRAINED_WITHIN_S = 600.0
"""After the healing. Each ack that is refused costs the 60 s of its lease."""


def name_of(life: int) -> str:
    """The name of a worker's process."""
    return f"w{life}"


class Worker:
    """One life of a worker, in a process of its own."""

    def __init__(
        self, loop: VirtualLoop, store: UnreliableStore, name: str, snapshot_every: int, rng: random.Random
    ) -> None:
        self.name, self._loop = name, loop
        self._context = contextvars.copy_context()
        self._context.run(PROCESS.set, name)
        self.queues = Queues(store, snapshot_every=snapshot_every, rng=rng)
        self.start(self.queues.run())

    def start(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Does something in this process."""
        task: asyncio.Task[T] = self._loop.create_task(work, context=self._context.copy())
        return task


class Course:
    """What happens in one run; `wrong` is what was wrong, in words."""

    def __init__(self, seed: int, loop: VirtualLoop) -> None:
        self._seed, self.rng = seed, random.Random(f"{seed} queue service")
        self.loop = loop
        self.trace = Trace(loop)
        self.store = UnreliableStore(self.rng, self.trace)
        self.ledgers: defaultdict[bytes, Ledger] = defaultdict(Ledger)
        """By incarnation of the queue."""
        self._present = b""
        """The incarnation of the present queue."""
        self._kept = 0
        """Clients have put the numbers below before the present queue was created."""
        self.wrong: list[str] = []
        self._every = self.rng.choice([10, 40, 10_000])
        self._max_attempts = self.rng.choice([0, 3, 6])
        self._lives = self._put = 0
        self._most_attempts = [self._max_attempts]
        self._frozen: list[Worker] = []
        self._actions: list[tuple[Callable[[], Awaitable[None]], float]] = [
            (self._put_some, 6),
            (self._kill, 1),
            (self._stop, 1),
            (self._thaw, 1),
            (self._leave_gaps, 1),
            (self._reconfigure, 0.5),
            (self._redrive, 2),
            # each in some runs only: what an operator skips or repeats is judged less strictly
            (self._skip, self.rng.choice([0, 0.7])),
            (self._purge, self.rng.choice([0, 0.5])),
            (self._seek_back, self.rng.choice([0, 0, 0.5])),
            (self._make_anew, self.rng.choice([0, 0, 1])),
        ]
        self.workers = [self._new_worker() for _ in range(self.rng.randint(1, 3))]

    async def run(self) -> None:
        """The whole run."""
        self.store.is_healed = True  # until the queue is there
        await self._create(self.workers[0])
        self.store.is_healed = False
        clients = [asyncio.create_task(self._client(f"c{n}")) for n in range(self.rng.randint(1, 5))]
        for _ in range(self.rng.randint(5, 40)):
            await asyncio.sleep(self.rng.choice([0.05, 1.0, 3.0]))
            await self.rng.choices(*zip(*self._actions, strict=True))[0]()
        for client in clients:
            client.cancel()
        await asyncio.wait(clients)
        await self._heal()
        await self._drain()
        await self._judge()

    @property
    def ledger(self) -> Ledger:
        """What clients know of the present queue."""
        return self.ledgers[self._present]

    async def _create(self, worker: Worker) -> None:
        changes = QueueChanges(
            max_attempts=self._max_attempts, partitions=self.rng.choice([1, 2]), lease_ms=LEASE_MS
        )
        while not await self._ask(worker, lambda queues: queues.put("q", changes)):
            worker = self.rng.choice(self.workers)
            await asyncio.sleep(0.1)
        settings = folded(self.store, "q").settings
        assert settings is not None
        self._present = settings.incarnation

    async def _make_anew(self) -> None:
        """Deletes the queue, and creates another one of its name; other workers notice late, or never."""
        self.store.happens("made anew")
        self._most_attempts.append(5)  # a change that is still on its way may create it, with the defaults
        before = self.store.logs["q"]
        while self.store.logs.get("q") is before:
            await self._ask(self.rng.choice(self.workers), lambda queues: queues.delete("q"))
            await asyncio.sleep(0.1)
        await self._create(self.rng.choice(self.workers))
        self._kept = self._put

    def _new_worker(self) -> Worker:
        self._lives += 1
        name = name_of(self._lives)
        return Worker(self.loop, self.store, name, self._every, random.Random(f"{self._seed} {name}"))

    async def _put_some(self) -> None:
        numbers = range(self._put, self._put + self.rng.randint(1, 12))
        self._put = numbers.stop
        items = [ItemRecord(value=b"%d" % n, id=f"i{n}") for n in numbers]

        async def is_put() -> bool:
            unstored = await self._ask_q(self.rng.choice(self.workers), lambda leasing: leasing.put(items))
            return unstored is not None and not unstored.indexes

        # with ids, because a put without an answer is put again
        while not await is_put():  # noqa: ASYNC110  each try is another request
            await asyncio.sleep(0.1)

    async def _kill(self) -> None:
        at = self.rng.randrange(len(self.workers))
        killed, self.workers[at] = self.workers[at], self._new_worker()
        self.loop.freeze(killed.name)
        self.store.happens("kill", killed.name)

    async def _stop(self) -> None:
        if len(self.workers) > 1:
            stopped = self.workers.pop(self.rng.randrange(len(self.workers)))
            self.loop.freeze(stopped.name)
            self._frozen.append(stopped)
            self.store.happens("stop", stopped.name)

    async def _thaw(self) -> None:
        if self._frozen:
            worker = self._frozen.pop()
            self.loop.thaw(worker.name)
            self.trace.note(worker.name, "goes on")
            self.workers.append(worker)

    async def _leave_gaps(self) -> None:
        """Offsets without an item, as transactions leave them."""
        topic = self.store.topics["q"]
        self.rng.choice(topic.partitions).extend([None] * self.rng.randint(1, 5))
        topic.grow()
        self.store.happens("gaps")

    async def _reconfigure(self) -> None:
        most = self.rng.choice([3, 6])
        self._most_attempts.append(most)
        worker, changes = self.rng.choice(self.workers), QueueChanges(max_attempts=most)

        await self._ask(worker, lambda queues: queues.put("q", changes))
        self.store.happens("reconfigured", worker.name, most)

    async def _redrive(self) -> None:
        self.store.happens("redrive")
        await self._ask_q(self.rng.choice(self.workers), lambda leasing: leasing.redrive())

    async def _skip(self) -> None:
        """As the route does it, also for one partition: what others have put and acked meanwhile stays."""
        self.store.happens("skip")
        only = self.rng.choice([None, 0])

        async def seek(leasing: Leasing) -> None:
            ends = await leasing.items.find("latest")
            to = [end if only in (None, number) else None for number, end in enumerate(ends)]
            await leasing.seek(Seek(tuple(to), ends=tuple(ends)))

        await self._ask_q(self.rng.choice(self.workers), seek)

    async def _purge(self) -> None:
        self.store.happens("purge")
        self.ledger.is_purged = True

        async def purge(leasing: Leasing) -> None:
            await leasing.seek(Seek(tuple(await leasing.items.find("latest")), drop=True))

        await self._ask_q(self.rng.choice(self.workers), purge)

    async def _seek_back(self) -> None:
        """One partition; the others stay where they are, whatever is leased there meanwhile."""
        stored = self.store.topics["q"].partitions
        number = self.rng.randrange(len(stored))
        offset = self.rng.randint(0, len(stored[number]))
        self.store.happens("seek back", number, offset)
        self.ledger.sought[number] = min(offset, self.ledger.sought.get(number, offset))
        to = tuple(offset if n == number else None for n in range(len(stored)))
        # without ends: the very offset, although it may be the end
        await self._ask_q(self.rng.choice(self.workers), lambda leasing: leasing.seek(Seek(to)))

    async def _client(self, name: str) -> None:
        rng = self.rng
        while True:
            worker, count = rng.choice(self.workers), rng.choice([1, 3, 10])
            wait_s = rng.choice([0, 3])
            ledger, found = await self._lease(worker, name, count, LEASE_MS, wait_s)
            if not found:
                await asyncio.sleep(0.05)
                continue
            await asyncio.sleep(rng.choice([0.0, 0.01, 0.5, LEASE_MS / 1000 + 0.5]))
            how = rng.choices(["ack", "forget", "release", "extend", "reject"], [12, 1, 1, 1, 1])[0]
            await self._settle(ledger, name, how, found)

    async def _lease(
        self, worker: Worker, name: str, count: int, ms: int, wait_s: float
    ) -> tuple[Ledger, list[HandedOut]]:
        """What the worker hands out, and what clients know of the queue that it is from."""
        before = {incarnation: ledger.copy() for incarnation, ledger in self.ledgers.items()}

        async def lease(leasing: Leasing) -> Any:
            found = await (leasing.poll(count, ms, wait_s) if wait_s else leasing.lease(count, ms))
            return leasing.engine.incarnation, found

        incarnation, found = await self._ask_q(worker, lease) or (b"", [])
        ledger, known = self.ledgers[incarnation], before.get(incarnation, Ledger())
        self.wrong += ledger.hand(name, found, known, self.store.now_ms, self._letters())
        return ledger, found

    async def _settle(self, ledger: Ledger, name: str, how: str, found: list[HandedOut]) -> None:
        if how == "forget":
            return
        receipts = [one.receipt for one in found]
        ledger.ask(name, how, found)
        # a request without an answer is made again, at any worker
        for _ in range(self.rng.choice([1, 3])):
            stale = await self._ask_q(
                self.rng.choice(self.workers), lambda leasing: self._settled(leasing, how, receipts)
            )
            if stale is not None:
                if how == "ack":
                    done = [one for index, one in enumerate(found) if index not in stale]
                    ledger.acked |= {place_of(one.leased.receipt) for one in done}
                    ledger.finished |= {int(one.record.value) for one in done}
                break

    async def _settled(self, leasing: Leasing, how: str, receipts: list[str]) -> Any:
        if how == "reject":
            return await leasing.reject(receipts, "bad")
        if how == "ack":
            return await leasing.ack(receipts)
        if how == "release":
            return await leasing.put_off(receipts, 0, is_release=True)
        return await leasing.put_off(receipts, LEASE_MS)

    async def _ask_q(self, worker: Worker, what: Callable[[Leasing], Awaitable[Any]]) -> Any:
        """What the worker answers about its queue; None if it does not, or says that it cannot."""

        async def asked(queues: Queues) -> Any:
            return await what(await queues.find("q"))

        return await self._ask(worker, asked)

    async def _ask(self, worker: Worker, what: Callable[[Queues], Awaitable[Any]]) -> Any:
        """What the worker answers; None if it does not, or says that it cannot."""

        async def answer() -> Any:
            try:
                return await what(worker.queues)
            except (KafkaUnavailable, NotFound, Conflict):
                return None

        asking = worker.start(answer())
        await asyncio.wait({asking}, timeout=REQUEST_S)
        if asking.done():
            answered = asking.result()
            self.trace.note(worker.name, "answers", answered)
            return answered
        asking.cancel()  # the client hangs up
        self.store.happens("no answer", worker.name)
        return None

    async def _heal(self) -> None:
        """No more faults; every stopped worker goes on, and one more begins."""
        self.store.is_healed = True
        self.trace.note("", "heals")
        while self._frozen:
            await self._thaw()
        self.workers.append(self._new_worker())

    async def _drain(self) -> None:
        """A client without faults takes what is left, until nothing is."""
        worker = self.workers[-1]
        deadline_s = self.loop.time() + DRAINED_WITHIN_S
        while not await self._is_empty(worker):
            assert self.loop.time() < deadline_s, "the rest is not worked off in time"
            ledger, found = await self._lease(worker, "last", 100, 60_000, 3)
            if found:
                await self._settle(ledger, "last", "ack", found)
            else:
                await asyncio.sleep(0.05)  # it may have been refused, and time must pass until it is not

    async def _is_empty(self, worker: Worker) -> bool:
        try:
            status = (await worker.start(worker.queues.find("q"))).engine.status()
        except BatonError:
            return False
        return not status.ready + status.leased + status.waiting

    async def _judge(self) -> None:
        # commands may still be on their way, and states are equal only at the same offset
        await until(lambda: all(map(self._is_at_the_end, self.workers)))
        states = [dict(one.queues.all())["q"].engine.state for one in self.workers]
        most = max(self._most_attempts) if all(self._most_attempts) else None
        self.wrong += judge(self.store, self.ledger, states, range(self._kept, self._put), most)

    def _letters(self) -> set[int]:
        stored = self.store.topics.get("q.dead")
        return (
            {int(letter.value) for one in stored.partitions for letter in one if letter} if stored else set()
        )

    def _is_at_the_end(self, worker: Worker) -> bool:
        """Whether it has found the queue, can use it, and has read its whole log."""
        found = dict(worker.queues.all()).get("q")
        if found is None or not found.engine.is_ready or found.engine.incarnation != self._present:
            return False
        return found.engine.next_offset == len(self.store.logs["q"].records)
