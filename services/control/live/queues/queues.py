"""The queues as a worker of the queue service reports them, and what operators do to them.

Lists answer from memory, as the view of the cluster does; a look at dead letters, a dry run and an act ask a
worker. Control acts with a key of its own, after its gate has checked the role of the caller.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence

from services.control.core.causes import Cause
from services.control.core.queues import (
    Act,
    DeadLetter,
    QueueChange,
    QueueConflict,
    QueueOutcomeUnknown,
    QueueRow,
    QueuesUnavailable,
    UnknownQueue,
)
from services.control.live.acts.actions import Actions
from services.control.ports import QueueSource
from shared.errors import BatonError
from shared.model.names import is_queue_name

EVERY_S = 2.0
"""A worker looks at the age of its items this often."""
PATIENCE_S = 10.0
"""Numbers that are older are not shown."""
REMEMBERED = 1_000
"""Acts with an `Idempotency-Key` that are remembered, in memory."""
NO_WORKERS = "control does not know where the queue workers are: set its BATON_QUEUE_URL"
logger = logging.getLogger(__name__)


class Queues:
    """`run()` reads until cancelled. `source`: None if no worker is named. `clock` is steady, in seconds."""

    def __init__(
        self,
        source: QueueSource | None,
        actions: Actions,
        *,
        every_s: float = EVERY_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._source = source
        self._actions = actions
        self._every_s = every_s
        self._clock = clock
        self._rows: dict[str, QueueRow] = {}
        self._read_at: float | None = None
        self._error = "they have not been asked yet"
        self._acts: dict[str, tuple[str, asyncio.Task[QueueChange]]] = {}

    def __repr__(self) -> str:
        return f"<Queues: {len(self._rows)}, {self.stale_ms()} ms old>"

    @property
    def is_named(self) -> bool:
        """Whether control knows where workers are."""
        return self._source is not None

    async def run(self) -> None:
        """Reads until cancelled; returns at once if there is nobody to ask."""
        while self.is_named:
            await self.step()
            await asyncio.sleep(self._every_s)

    async def step(self) -> None:
        """Reads once. A failure keeps what is known, and is logged once."""
        try:
            rows = await self._workers.read()
        except BatonError as error:
            if error.detail != self._error:
                logger.warning("queues unread", extra={"why": error.detail})
            self._error = error.detail
            return
        self._rows = {row.queue: row for row in sorted(rows, key=lambda row: row.queue)}
        self._read_at, self._error = self._clock(), ""

    def rows(self) -> Sequence[QueueRow]:
        """All queues by name; without numbers while no worker answers.

        Raises QueuesUnavailable until one has answered.
        """
        if self._read_at is None:
            raise QueuesUnavailable(NO_WORKERS if not self.is_named else "no queue worker has answered yet")
        rows = list(self._rows.values())
        return [row.without_numbers() for row in rows] if self.is_silent else rows

    def known(self) -> Sequence[QueueRow]:
        """The same; empty until a worker has answered."""
        return [] if self._read_at is None else self.rows()

    def row(self, queue: str) -> QueueRow:
        """One of them. Raises UnknownQueue, QueuesUnavailable."""
        found = next((row for row in self.rows() if row.queue == queue), None)
        if found is None:
            raise UnknownQueue(f"there is no queue {queue[:80]!r}")
        return found

    @property
    def is_silent(self) -> bool:
        """Whether workers are named, and none has answered lately."""
        return self.is_named and (self._read_at is None or self._clock() - self._read_at > PATIENCE_S)

    def stale_ms(self) -> int:
        """The age of what is known."""
        return 0 if self._read_at is None else int((self._clock() - self._read_at) * 1000)

    async def letters(self, queue: str, limit: int) -> Sequence[DeadLetter]:
        """The oldest dead letters of a queue. Raises UnknownQueue, QueuesUnavailable."""
        return await self._workers.letters(_checked(queue), limit)

    async def forecast(self, queue: str, act: Act) -> QueueChange:
        """What the act would do now. Raises UnknownQueue, QueueConflict, QueuesUnavailable."""
        return await self._changed(_checked(queue), act, dry_run=True)

    async def act(self, queue: str, act: Act, cause: Cause) -> QueueChange:
        """Does it, and reports who did it and why. The same request under the same key is done once.

        Raises KeyReused, UnknownQueue, QueueConflict, QueuesUnavailable, and QueueOutcomeUnknown, after which
        it may be done.
        """
        _checked(queue)
        if not cause.key:
            return await self._acted(queue, act, cause)
        if cause.key in self._acts:
            request, task = self._acts[cause.key]
            cause.check_same(request)
        else:
            task = asyncio.create_task(self._acted(queue, act, cause), name=f"{act} {queue}")
            self._remember(cause, task)
        return await asyncio.shield(task)

    async def _acted(self, queue: str, act: Act, cause: Cause) -> QueueChange:
        try:
            change = await self._changed(queue, act, dry_run=False)
        except QueueOutcomeUnknown:
            self._actions.report_queue(queue, f"{act} {queue}, without an answer", cause)
            raise
        self._actions.report_queue(queue, f"{act} {queue}", cause)
        await self.step()
        return change

    async def _changed(self, queue: str, act: Act, *, dry_run: bool) -> QueueChange:
        before = await self._workers.show(queue)
        if act == "redrive":
            if before.settings.over:
                raise QueueConflict(f"{queue} is over a topic: lease its dead letters instead")
            ready = await self._workers.act(queue, act, dry_run=dry_run)
            return QueueChange(queue=queue, act=act, items=before.dead or 0, ready=ready)
        found = await self._workers.act(queue, act, dry_run=dry_run)
        items, ready = (found, 0) if dry_run else (before.depth or 0, found)
        return QueueChange(queue=queue, act=act, items=items, ready=ready)

    @property
    def _workers(self) -> QueueSource:
        if self._source is None:
            raise QueuesUnavailable(NO_WORKERS)
        return self._source

    def _remember(self, cause: Cause, task: asyncio.Task[QueueChange]) -> None:
        self._acts[cause.key] = cause.request, task
        if len(self._acts) > REMEMBERED:
            del self._acts[next(iter(self._acts))]

        def forget_failure(ended: asyncio.Task[QueueChange]) -> None:
            if ended.cancelled() or ended.exception() is not None:
                self._acts.pop(cause.key, None)

        task.add_done_callback(forget_failure)


def _checked(queue: str) -> str:
    if not is_queue_name(queue):
        raise UnknownQueue(f"there is no queue {queue[:80]!r}")
    return queue
