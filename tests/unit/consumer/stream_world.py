"""A world in memory and on virtual time for workers and members: a broker, a ZooKeeper, clocks.

`StreamWorld` is the broker and what a worker is given; its sinks and readers can hang on request. The
sessions delivered are compared with the eager fold of tests/reference.py.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import msgspec

from services.consumer.core.commits.commit import Commit
from services.consumer.core.commits.turn import StreamLimits
from services.consumer.stream.context import Claimed, GroupContext
from services.consumer.stream.worker import StreamWorker
from shared.errors import KafkaUnavailable
from shared.model.group import GroupSettings
from shared.model.sessions import Session, parse_session
from tests.fakes.log import InMemoryLog, InMemoryReader, InMemorySink, InMemoryStreamLog
from tests.fakes.virtual_time import until
from tests.logs import SETTINGS
from tests.reference import Rec, delivered_row, fold_eagerly

EPOCH_MS = 1_700_000_000_000
"""What the clocks on the wall show when virtual time begins."""
LONG = GroupSettings(repeat_ms=0)
"""The real defaults: half an hour of silence ends a session."""


class HangingReader(InMemoryReader):
    """Stops returning while its log says so, whatever there is to read."""

    _log: HangingLog
    _is_opened = False

    async def open(self, offset: int) -> None:
        self._is_opened = True
        await super().open(offset)

    async def fetch(self, timeout_s: float) -> Sequence[Rec]:
        if self in self._log.hanging:
            await asyncio.Event().wait()
        stored = self._log.broker.stored(self._stream)
        before, is_first = stored.read_to, self._is_opened
        records = await super().fetch(timeout_s)
        self._log.fail_at("fetch", records)
        if records:
            self._is_opened, stored.read_to = False, max(before, records[-1].offset + 1)
            # the last record of before is repeated, so that the log is recognized
            repeated = is_first and records[0].offset == before - 1
            self._log.read += [(self._stream, record.offset) for record in records[repeated:]]
        return records


class LateSink(InMemorySink):
    """Fences only after what its log says has happened, as a slow request does."""

    _log: HangingLog

    async def open(self) -> None:
        if self._stream in self._log.stuck:
            await asyncio.Event().wait()
        if self._log.before_open is not None:
            await self._log.before_open()
        await super().open()

    @property
    def records_read(self) -> int:
        return self._log.checkpoint_records_read

    async def commit(self, commit: Commit) -> list[int]:
        self._log.fail_at("commit", self._broker.stored(self._stream).log[: commit.head.position])
        return await super().commit(commit)


class HangingLog(InMemoryStreamLog):
    """A way to the broker whose readers can hang on request. It keeps all that it made, and in `read`
    the stream and offset of every record that was read, except for those repeated to recognize the log.

    `before_open`: what happens before the next sinks fence. `stuck`: streams whose next sinks never open.
    `fails_at`: "fetch" or "commit" → the offset that every one fails at.
    """

    def __init__(self, broker: InMemoryLog, process: str = "") -> None:
        super().__init__(broker, process)
        self.readers: list[HangingReader] = []
        self.hanging: set[HangingReader] = set()
        self.read: list[tuple[int, int]] = []
        self.before_open: Callable[[], Awaitable[None]] | None = None
        self.checkpoint_records_read = 0
        self.stuck: set[int] = set()
        self.fails_at: dict[str, int] = {}

    def fail_at(self, what: str, records: Sequence[Rec]) -> None:
        """Raises KafkaUnavailable if the records contain the offset that this fails at."""
        offset = self.fails_at.get(what)
        if any(record.offset == offset for record in records):
            raise KafkaUnavailable(f"offset {offset} fails the {what}")

    def sink(self, stream: int) -> LateSink:
        return LateSink(self, stream)

    def reader(self, stream: int) -> HangingReader:
        self.readers.append(HangingReader(self, stream))
        return self.readers[-1]


class StreamWorld:
    """A broker, and what a worker of it is given; `mine` and `alive` are the worker's hold."""

    def __init__(self, settings: GroupSettings = SETTINGS, limits: StreamLimits | None = None) -> None:
        loop = asyncio.get_running_loop()
        self.settings = settings
        self.broker = InMemoryLog(settings, now_ms=self.wall_ms)
        self.log = HangingLog(self.broker)
        self.commit_s = 0.5
        self.mine = True
        self.alive = True
        self._running: list[asyncio.Task[str]] = []
        self.context = GroupContext(
            group="default",
            settings=settings,
            limits=limits or StreamLimits(commit_s=0.5),
            log=self.log,
            now_s=loop.time,
            wall_ms=self.wall_ms,
            uniform=lambda: 1.0,
        )

    def wall_ms(self) -> int:
        """Both the broker's and the members' clock."""
        return EPOCH_MS + int(asyncio.get_running_loop().time() * 1000)

    def emit(self, key: str, *, stream: int = 0, **fields: Any) -> int:
        """Appends a fragment; its offset."""
        value = msgspec.json.encode({"key": key} | fields)
        return self.broker.append(stream, key.encode(), value)

    def worker(self, epoch: int = 1, stream: int = 0) -> StreamWorker:
        """A worker that is not running yet."""

        async def is_mine() -> bool:
            await asyncio.sleep(0)
            return self.mine

        claimed = Claimed(is_mine=is_mine, lease_alive=lambda: self.alive, commit_s=self.commit_s)
        return StreamWorker(stream, epoch, self.context, claimed)

    def start(self, epoch: int = 1) -> tuple[StreamWorker, asyncio.Task[str]]:
        """A worker of stream 0 that has begun to run, and its end; a test need not end it."""
        worker = self.worker(epoch)
        self._running.append(asyncio.ensure_future(worker.run()))
        return worker, self._running[-1]

    async def running(self, epoch: int = 1) -> tuple[StreamWorker, asyncio.Task[str]]:
        """As `start`, once the worker reads."""
        worker, ended = self.start(epoch)
        await until(lambda: worker.state == "running")
        return worker, ended

    async def start_committed(self, sessions: int) -> tuple[StreamWorker, asyncio.Task[str]]:
        """Like `start`, once that many sessions, of keys k0, k1, …, are committed."""
        started = self.start()
        for n in range(sessions):
            self.emit(f"k{n}", end=True)
        await self.until_committed()
        return started

    async def until_committed(self, stream: int = 0) -> None:
        """Returns when all of the stream's log is committed."""
        await until(lambda: self.is_committed(stream))

    def is_committed(self, stream: int = 0) -> bool:
        """Whether the stored head has reached the end of the stream's log."""
        stored = self.broker.stored(stream)
        return stored.end == 0 or (stored.head is not None and stored.head.position == stored.end)

    def delivered(self) -> list[Session]:
        """The delivered sessions, in order."""
        return [parse_session(value) for _, value in self.broker.sessions]

    def keys(self) -> list[str]:
        """The keys of the delivered sessions, in order."""
        return [session.key for session in self.delivered()]

    def close_all(self, streams: int = 1) -> None:
        """A marker at the end of time in every stream."""
        for stream in range(streams):
            self.broker.append(stream, None, b'{"time":9000000000000}')

    def expected(self) -> Counter[tuple[Any, ...]]:
        """The sessions of the eager fold over the whole log; no commit may have broken the broker's rules."""
        assert self.broker.wrong == []
        rows: Counter[tuple[Any, ...]] = Counter()
        for stream, stored in self.broker.streams.items():
            closed, _ = fold_eagerly(stored.log, self.settings)
            rows.update((stream, *session.row()) for session in closed)
        return rows

    def rows(self) -> Counter[tuple[Any, ...]]:
        """The delivered sessions in the form of `expected`."""
        return Counter((session.stream, *delivered_row(session)) for session in self.delivered())
