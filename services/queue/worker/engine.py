"""One queue in one worker: follows its log, folds it, and gets commands into it.

Any number of workers do the same for the same queue. None owns it, so nothing is handed over when one comes
or goes. `leasing.py` builds on it what clients ask for.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import Sequence
from typing import TypeVar

from services.queue.core.commands import AnyCommand, given_back
from services.queue.core.fold import Answer, LeaseAnswer, Leased, UnknownRules
from services.queue.core.queue_state import QueueState, QueueStatus
from services.queue.core.replica import SNAPSHOT_EVERY, LogMoved, Replica
from services.queue.core.snapshot import Snapshot
from services.queue.ports import CommandLog, ItemLog
from services.queue.worker.demand import Demand
from services.queue.worker.submissions import Submissions
from shared.backoff import Backoff
from shared.errors import KafkaUnavailable, NotFound, Unavailable

READ_S = 1.0
WRITER_BYTES = 8
"""So many that no two lives of workers draw the same name."""
T = TypeVar("T", bound=Answer)
logger = logging.getLogger(__name__)


class QueueRefused(Unavailable):
    """This worker does not know the queue's rules; a newer one does."""


class QueueNotReady(KafkaUnavailable):
    """The queue's log has not been read to its end yet."""


class Engine:
    """The worker's copy of a queue; `run()` keeps it up to date. Make it inside the loop.

    `items` is None until the log has said over which topic the queue is. `rng` draws the name of the writer
    and the jitter of retries.
    """

    def __init__(
        self, name: str, log: CommandLog, rng: random.Random, *, snapshot_every: int = SNAPSHOT_EVERY
    ) -> None:
        self.name = name
        self.items: ItemLog | None = None
        self.submissions = Submissions(
            log, rng.randbytes(WRITER_BYTES), self._give_back_unclaimed, lambda: self.incarnation
        )
        self.demand = Demand(self._leasable, self._next_end_s)
        self.log = log
        self._rng = rng
        self._now_s = asyncio.get_running_loop().time
        self._snapshot_every = snapshot_every
        self._replica: Replica | None = None
        self._caught_up = asyncio.Event()
        self._has_items = asyncio.Event()
        self._read_s = 0.0
        self._fault: Unavailable | None = None
        self._complaint = ""
        self._snapshot: asyncio.Task[None] | None = None
        self._giving_back: set[asyncio.Task[None]] = set()

    def __repr__(self) -> str:
        return f"<Engine of {self.name}: {self._replica!r}>"

    @property
    def state(self) -> QueueState:
        """The state at the end of what was read. Raises QueueNotReady, QueueRefused, NotFound."""
        if self._fault is not None:
            raise self._fault
        state = self._replica.state if self._replica is not None else None
        if state is None or not self._caught_up.is_set():
            raise QueueNotReady(f"the log of the queue {self.name} is still being read")
        if state.settings is None:
            raise NotFound(f"there is no queue {self.name}")
        return state

    @property
    def incarnation(self) -> bytes:
        """The incarnation of the queue whose log is read; b"" before its creation."""
        state = self._replica.state if self._replica is not None else None
        return b"" if state is None else state.incarnation

    @property
    def is_ready(self) -> bool:
        """Whether the queue can be used."""
        return self._fault is None and self._caught_up.is_set() and self._has_items.is_set()

    @property
    def next_offset(self) -> int:
        """The offset of the log through which it has been read."""
        return -1 if self._replica is None else self._replica.next_offset

    @property
    def now_ms(self) -> int:
        """The broker's time as this worker guesses it: for statuses and timers, never for the fold."""
        assert self._replica is not None
        assert self._replica.state is not None
        return self._replica.state.now_ms + int((self._now_s() - self._read_s) * 1000)

    def attach(self, items: ItemLog) -> None:
        """The queue's items are read from here on."""
        self.items = items
        self._has_items.set()
        self.changed()

    def fail(self, why: str) -> None:
        """Nothing works here any more; every request gets an error."""
        self._fault = QueueNotReady(why)

    def close(self) -> None:
        """Ends the reading of the log."""
        self.log.close()

    def complaint(self) -> str:
        """Why the queue does not work here; "" if it does."""
        return str(self._fault or self._complaint or (self.items.fault if self.items else ""))

    async def until_read(self, timeout_s: float) -> None:
        """Returns once the log has been read to its end. Raises QueueNotReady, and as `state`."""
        await self._until(self._caught_up, timeout_s)
        _ = self.state

    async def until_ready(self, timeout_s: float) -> None:
        """Returns once the queue can be used. Raises QueueNotReady, and as `state`."""
        await self.until_read(timeout_s)
        await self._until(self._has_items, timeout_s)

    async def _until(self, event: asyncio.Event, timeout_s: float) -> None:
        if not event.is_set():
            try:
                async with asyncio.timeout(timeout_s):
                    await event.wait()
            except TimeoutError:
                raise QueueNotReady(f"the queue {self.name} is still being read") from None

    async def submit(self, command: AnyCommand, kind: type[T]) -> T:
        """The answer to one command. Raises KafkaUnavailable, and NotFound if it was refused."""
        (answer,) = await self.submissions.submit([command])
        return self.expect(answer, kind)

    def expect(self, answer: Answer, kind: type[T]) -> T:
        """The answer, if it is of the kind that its command has unless it is refused."""
        if not isinstance(answer, kind):
            raise NotFound(f"there is no queue {self.name}")
        return answer

    def give_back(self, leased: Sequence[Leased]) -> None:
        """No client has seen these: others may have them, at once unless the log fails."""
        if leased:
            command = given_back([one.receipt for one in leased])
            task = asyncio.create_task(self._try([command]), name=f"give back of {self.name}")
            self._giving_back.add(task)
            task.add_done_callback(self._giving_back.discard)

    def _give_back_unclaimed(self, answers: Sequence[Answer]) -> None:
        """Their client has gone, or has had a 503 meanwhile."""
        for answer in answers:
            if isinstance(answer, LeaseAnswer):
                self.give_back(answer.leased)

    async def _try(self, commands: Sequence[AnyCommand]) -> None:
        with contextlib.suppress(KafkaUnavailable):
            await self.submissions.submit(commands)

    def status(self) -> QueueStatus:
        """How many items wait for what. Raises as `state`."""
        return self.state.status(self.now_ms, self.items.backlog_ends if self.items else self.state.frontier)

    async def run(self) -> None:
        """Follows the log until it is cancelled, or refused.

        Raises LogMoved: then open everything anew, items too. Also if the log could not be read for a moment:
        it may be that of another queue of this name by now.
        """
        sending = asyncio.create_task(self.submissions.run(), name=f"commands of {self.name}")
        backoff = Backoff(first_s=0.05, cap_s=2.0, uniform=self._rng.random)
        try:
            while True:
                try:
                    await self._follow()
                except KafkaUnavailable as error:
                    logger.warning("log not readable", extra={"queue": self.name, "why": error.detail})
                    if self._caught_up.is_set():  # its items are open, or are being opened
                        raise LogMoved(f"it could not be read: {error.detail}") from None
                except UnknownRules as error:
                    self._fault = QueueRefused(error.detail)
                    logger.error("queue refused", extra={"queue": self.name, "why": error.detail})
                    self._caught_up.set()
                    return
                self.submissions.fail(KafkaUnavailable("the log of the queue is read again"))
                await asyncio.sleep(backoff.next_s())
        finally:
            self._end(QueueNotReady("the log of the queue is read again"))
            sending.cancel()
            for task in (self._snapshot, *self._giving_back):
                if task is not None:
                    task.cancel()

    def _end(self, error: QueueNotReady) -> None:
        """Nothing is followed any more: whoever waits here, or still comes, learns it at once."""
        self._fault = self._fault or error
        self._caught_up.set()
        self._has_items.set()
        self.submissions.end(error)
        self.demand.end(error)

    async def _follow(self) -> None:
        first, end = await self.log.bounds()
        self._replica = replica = Replica(first, self._snapshot_every)
        self.log.seek(first)
        while True:
            if replica.next_offset >= end:
                self._reached_end(replica)
            for record in await self.log.read(READ_S):
                folded = replica.feed(record)
                self._read_s = self._now_s()
                if folded is not None and folded.writer == self.submissions.writer:
                    self.submissions.answer(folded.number, folded.answers)
                    if folded.is_snapshot_due:
                        self._begin_snapshot(replica)
            self.changed()

    def _reached_end(self, replica: Replica) -> None:
        if replica.state is not None:
            self._caught_up.set()
            self._complaint = ""
        elif not self._complaint:
            self._complaint = f"the log of the queue {self.name} begins without a snapshot"
            logger.error("log without a beginning", extra={"queue": self.name})

    def changed(self) -> None:
        """Items or the state may have changed: reads ahead from the frontier, and wakes leases."""
        if self.items is not None and self._replica is not None and self._replica.state is not None:
            self.items.follow(self._replica.state.frontier)
        self.demand.kick()

    def _begin_snapshot(self, replica: Replica) -> None:
        if self._snapshot is not None and not self._snapshot.done():
            return  # the one before is still being written
        # encoded now: the state goes on
        snapshot, state = replica.snapshot(), replica.state
        assert state is not None
        assert state.settings is not None
        # by the broker's time, as everything
        before_ms = None if state.settings.over else state.now_ms - state.settings.keep_ms
        self._snapshot = asyncio.create_task(
            self._store(snapshot, state.lowest_open(), before_ms), name=f"snapshot of {self.name}"
        )

    async def _store(self, snapshot: Snapshot, lowest: Sequence[int], before_ms: int | None) -> None:
        """Stores a snapshot; then what it holds may be deleted."""
        try:
            for part in snapshot.parts:
                await self.submissions.submit([part])
            await self.log.trim(snapshot.below)
            if self.items is not None:
                await self.items.settle(lowest, before_ms)
        except (KafkaUnavailable, LogMoved) as error:
            logger.warning("snapshot not stored", extra={"queue": self.name, "why": error.detail})
        else:
            logger.info("snapshot stored", extra={"queue": self.name, "below": snapshot.below})

    def _leasable(self) -> int:
        if self.items is None or self._replica is None or self._replica.state is None:
            return 0
        return self._replica.state.guess_leasable(self.now_ms, self.items.ends)

    def _next_end_s(self) -> float | None:
        if self._replica is None or self._replica.state is None:
            return None
        end_ms = self._replica.state.open.first_end_ms()
        return None if end_ms is None else max(0, end_ms - self.now_ms) / 1000
