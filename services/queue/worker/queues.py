"""All queues of this worker: opens them when they appear, creates them, and closes them when they are gone.

The topics in Kafka say which queues there are. Every worker has all of them open, so it answers for any
receipt. Used by the routes.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import random
from collections.abc import Sequence

import msgspec

from services.queue.core.commands import (
    CHANGEABLE,
    INCARNATION_BYTES,
    Changeable,
    Configure,
    QueueSettings,
)
from services.queue.core.fold import Applied
from services.queue.core.replica import SNAPSHOT_EVERY, LogMoved
from services.queue.ports import ItemLog, QueueStore
from services.queue.worker import answers
from services.queue.worker.engine import Engine, QueueRefused
from services.queue.worker.leasing import Leasing
from shared.backoff import Backoff
from shared.errors import Conflict, InvalidInput, KafkaUnavailable, NotFound, Unavailable
from shared.model.names import DEAD, is_queue_name
from shared.together import both

LOOK_S = 2.0
READY_S = 10.0
REOPEN_S = 0.05
logger = logging.getLogger(__name__)


class QueueChanges(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a client sets; what it leaves out stays, or is the default."""

    over: str | None = None
    partitions: int | None = None
    lease_ms: int | None = None
    max_attempts: int | None = None
    repeat_ms: int | None = None
    keep_ms: int | None = None

    def applied_to(self, settings: QueueSettings) -> QueueSettings:
        """The settings with these changes."""
        return msgspec.structs.replace(settings, **self._given)

    @property
    def fields(self) -> tuple[Changeable, ...]:
        """What the client sets of what may change."""
        return tuple(name for name in CHANGEABLE if name in self._given)

    @property
    def _given(self) -> dict[str, int | str]:
        return {name: value for name, value in msgspec.structs.asdict(self).items() if value is not None}


class Queues:
    """The queues by name. `run()` keeps the list; it must run before anything else is called.

    `rng` draws incarnations, the names of writers and the jitter of retries. Two workers must not draw the
    same, and whoever knows an incarnation can forge receipts.
    """

    def __init__(
        self,
        store: QueueStore,
        *,
        snapshot_every: int = SNAPSHOT_EVERY,
        max_answer_bytes: int = answers.MAX_BYTES,
        rng: random.Random | None = None,
    ) -> None:
        self._store = store
        self._rng = rng or random.SystemRandom()
        self.answers = answers.Answers(max_answer_bytes)
        """What the answers that are being sent hold in memory."""
        self._snapshot_every = snapshot_every
        self._open: dict[str, Leasing] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._looking = asyncio.Lock()
        self._looked_s = -1.0
        self.ages_s: dict[str, float] = {}
        """Age of each queue's oldest item at the last look; 0 without items. Without silent queues."""
        self._fault = "Kafka has not been asked yet which queues there are"

    def __repr__(self) -> str:
        return f"<Queues: {len(self._open)} open>"

    @property
    def names(self) -> Sequence[str]:
        """The queues that are open here, without those of dead letters."""
        return sorted(name for name in self._open if not name.endswith(DEAD))

    def all(self) -> Sequence[tuple[str, Leasing]]:
        """All queues that are open here, by name."""
        return sorted(self._open.items())

    def complaints(self) -> list[str]:
        """Why this worker cannot do its work; empty if it can."""
        return [self._fault] if self._fault else []

    def remarks(self) -> list[str]:
        """Which queues this worker refuses, and why."""
        return [complaint for one in self._open.values() if (complaint := one.engine.complaint())]

    async def run(self) -> None:
        """Looks for queues until it is cancelled; then closes all."""
        try:
            while True:
                try:
                    await self._look()
                    await self._measure_ages()
                except KafkaUnavailable as error:
                    if self._fault != error.reason:
                        logger.warning("queues not listed", extra={"why": error.detail})
                    self._fault, self.ages_s = error.reason, {}
                except Exception as error:  # a fault of ours: without the look no new queue would be seen
                    logger.exception("looking for queues failed")
                    self._fault, self.ages_s = repr(error), {}
                await asyncio.sleep(LOOK_S)
        finally:
            for name in list(self._open):
                await self._close(name)

    async def find(self, name: str) -> Leasing:
        """The queue, once its log has been read. Raises NotFound, KafkaUnavailable."""
        if name not in self._open and is_queue_name(name.removesuffix(DEAD)):
            await self._look()
        found = self._open.get(name)
        if found is None:
            raise NotFound(f"there is no queue {name[:80]}")
        if not found.engine.is_ready:
            await found.engine.until_ready(READY_S)
        return found

    async def put(self, name: str, changes: QueueChanges) -> Leasing:
        """Creates the queue, or changes its settings. Raises InvalidInput, Conflict, KafkaUnavailable."""
        if not is_queue_name(name):
            raise InvalidInput("the name of a queue has lower-case letters, digits, `_` and `-`, at most 61")
        present = await self._settings_of(name)
        settings = changes.applied_to(present or QueueSettings())
        if settings.over.startswith("__"):
            raise InvalidInput("Kafka's own topics are no queues")
        if present is None and settings.over:
            counted = await self._store.count_partitions(settings.over)
            settings = msgspec.structs.replace(settings, partitions=counted)
        if present is not None and settings.fixed != present.fixed:
            raise Conflict("`over` and `partitions` of a queue are fixed at its creation")
        dead = QueueSettings(max_attempts=0, keep_ms=settings.keep_ms)
        of_dead: tuple[Changeable, ...] = ("keep_ms",) if "keep_ms" in changes.fields else ()
        if present is None or await self._settings_of(f"{name}{DEAD}") is None:
            await self._store.create(name, over=settings.over, partitions=settings.partitions)
            await self._until_open(f"{name}{DEAD}")
            await self._until_open(name)
        for queue, its, fields in ((f"{name}{DEAD}", dead, of_dead), (name, settings, changes.fields)):
            await self._configure(queue, its, fields)
            await self.find(queue)
        return await self.find(name)

    async def delete(self, name: str) -> None:
        """Deletes the queue, its items and its dead letters; not the topic that it is over.

        Raises Conflict for the dead letters alone, NotFound, KafkaUnavailable.
        """
        found = await self.find(name)
        settings = found.engine.state.settings
        assert settings is not None
        if found.is_dead:
            raise Conflict("dead letters are deleted with their queue: purge them")
        # itself last: while it is there, a deletion that was cut off can be repeated
        for queue, over in ((f"{name}{DEAD}", ""), (name, settings.over)):
            await self._store.delete(queue, over=over, log=found.engine.log)
        await self._until_closed(name)

    async def _settings_of(self, name: str) -> QueueSettings | None:
        """None if nobody has created it; its topics may exist all the same."""
        try:
            return (await self.find(name)).engine.state.settings
        except NotFound:
            return None

    async def _configure(self, name: str, settings: QueueSettings, fields: tuple[Changeable, ...]) -> None:
        present = await self._settings_of(name)
        if present is not None:
            settings = msgspec.structs.replace(settings, rules=present.rules)
        else:
            settings = msgspec.structs.replace(settings, incarnation=self._rng.randbytes(INCARNATION_BYTES))
        engine = self._open[name].engine
        for _ in range(2):  # a creation that another one preceded is refused, and then a change
            (answer,) = await engine.submissions.submit([Configure(settings, fields)])
            if isinstance(answer, Applied):
                return
        raise Conflict("somebody else has created the queue at the same time, with other settings")

    async def _until_open(self, name: str) -> None:
        """Returns once Kafka lists the queue: a broker hears of a new topic a moment later."""
        backoff = Backoff(first_s=0.01, cap_s=0.2, uniform=self._rng.random)
        try:
            async with asyncio.timeout(READY_S):
                await self._look()
                while name not in self._open:
                    await asyncio.sleep(backoff.next_s())
                    await self._look()
        except TimeoutError:
            raise KafkaUnavailable(f"Kafka does not list the topics of the queue {name} yet") from None

    async def _until_closed(self, name: str) -> None:
        """Returns once Kafka lists the queue no more: a broker hears of a deletion a moment later.

        Else a new queue of the name would be taken for the old one.
        """
        backoff = Backoff(first_s=0.01, cap_s=0.2, uniform=self._rng.random)
        with contextlib.suppress(TimeoutError):  # it is deleted all the same
            async with asyncio.timeout(READY_S):
                await self._look()
                while name in self._open:
                    await asyncio.sleep(backoff.next_s())
                    await self._look()

    async def _look(self) -> None:
        """Opens and closes queues until they are those in Kafka."""
        asked_s = asyncio.get_running_loop().time()
        async with self._looking:
            if self._looked_s > asked_s:
                return  # somebody else has asked since
            began_s = asyncio.get_running_loop().time()
            names = set(await self._store.list())
            self._looked_s = began_s
            self._fault = ""
            for name in sorted(self._open.keys() - names):
                await self._close(name)
            for name in sorted(names - self._open.keys()):
                self._start(name)

    async def _measure_ages(self) -> None:
        ages_s: dict[str, float] = {}
        for name, leasing in self.all():
            # one that cannot be asked now, or is refused, is no reason not to ask the others
            with contextlib.suppress(Unavailable, InvalidInput):
                ages_s[name] = await leasing.oldest_age_s() or 0.0
        self.ages_s = ages_s

    def _start(self, name: str) -> None:
        log = self._store.open_log(name)
        engine = Engine(name, log, self._rng, snapshot_every=self._snapshot_every)
        self._open[name] = Leasing(engine, functools.partial(self._open.get, f"{name}{DEAD}"))
        self._tasks[name] = asyncio.create_task(self._serve(engine), name=f"queue {name}")

    async def _serve(self, engine: Engine) -> None:
        """Follows the log, and reads the items ahead once it is known where they are."""
        items: ItemLog | None = None
        is_moved = False

        async def read_ahead() -> None:
            nonlocal items
            items = await self._items_of(engine)
            engine.attach(items)
            await self._read_items(engine, items)

        try:
            await both(engine.run(), read_ahead())
        except LogMoved as error:
            is_moved = True
            logger.warning("log moved", extra={"queue": engine.name, "why": str(error)})
        except QueueRefused:
            pass  # the engine says so to everybody who asks
        except Exception as error:  # a fault of ours: the other queues go on
            logger.exception("queue failed", extra={"queue": engine.name})
            engine.fail(f"the queue {engine.name} has failed: {error!r}")
        finally:
            engine.close()
            if items is not None:
                items.close()
        if is_moved:
            await self._reopen(engine.name)

    async def _reopen(self, name: str) -> None:
        """Begins anew with the log as it is now; it may even be that of another queue of this name."""
        await asyncio.sleep(REOPEN_S)
        await self._open[name].close()
        self._start(name)

    async def _items_of(self, engine: Engine) -> ItemLog:
        backoff = Backoff(first_s=0.01, cap_s=0.5, uniform=self._rng.random)
        while True:
            try:
                await engine.until_read(READY_S)
                settings = engine.state.settings
                assert settings is not None
                return await self._store.open_items(
                    engine.name,
                    over=settings.over,
                    partitions=settings.partitions,
                    frontier=engine.state.frontier,
                )
            except (KafkaUnavailable, NotFound):  # it has been created, and not configured yet
                await asyncio.sleep(backoff.next_s())

    async def _read_items(self, engine: Engine, items: ItemLog) -> None:
        backoff = Backoff(first_s=0.1, cap_s=5.0, uniform=self._rng.random)
        while True:
            try:
                await items.run(engine.changed)
            except KafkaUnavailable as error:
                logger.warning("items not readable", extra={"queue": engine.name, "why": str(error)})
            await asyncio.sleep(backoff.next_s())

    async def _close(self, name: str) -> None:
        task = self._tasks.pop(name)
        leasing = self._open.pop(name)
        task.cancel()  # first: it may be about to reopen the queue
        await leasing.close()
        await asyncio.wait((task,))
