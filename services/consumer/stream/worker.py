"""One owned stream, running: reads fragments, folds them, commits, until it is told to stop.

The shell around `core/commits/stream.py`. It acts only while the member's lease is alive, and after any
unknown outcome drops all it holds, reads the claim afresh and opens anew (`opening.py`), from memory or from
the stored head.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence
from typing import Literal

from services.consumer.core.commits.stream import Stream
from services.consumer.core.sessions.record import Record
from services.consumer.ports import Fenced, FragmentReader, SessionSink
from services.consumer.stream.context import Claimed, GroupContext
from services.consumer.stream.opening import Opening
from shared.errors import InvalidInput, KafkaUnavailable, NotOwner, StaleEpoch, Unavailable
from shared.model.head import Counts

logger = logging.getLogger(__name__)

IDLE_FETCH_S = 5.0
LATE_FETCH_S = 5.0
"""A fetch that overstays its time by so much hangs: it is given up, and the reader can be replaced."""
LAST_FETCH_S = 0.2
"""For what a reader holds already when it is stopped: nobody waits for more."""
TRICKLE_RECORDS = 100
TRICKLE_PAUSE_S = 0.05
"""After a small batch, wait a moment for more: divides the cost of a trickle by 3 to 5."""
RETRY_FIRST_S, RETRY_MOST_S = 0.1, 5.0
LEASE_POLL_S = 0.1

State = Literal["opening", "replaying", "running", "stopping", "rewind"]
Outcome = Literal["stopped", "lost"]


class StreamWorker:
    """Runs one stream in one epoch; `run` returns when it was stopped or the stream was lost."""

    def __init__(self, stream: int, epoch: int, context: GroupContext, claimed: Claimed) -> None:
        self.stream = stream
        self.epoch = epoch
        self.state: State = "opening"
        self.core: Stream | None = None
        self.committed_at_ms = 0
        self.opened_after_s = self.first_record_after_s = -1.0
        self.stored_epoch = -1
        self._context = context
        self._claimed = claimed
        self._hints = list(claimed.hints)
        self._ask, self._warm, self._is_new = claimed.ask, claimed.warm, claimed.is_new
        self.is_warm = self.was_fenced = self.is_outgrown = False
        self.frozen = asyncio.Event()
        """Set when it has stopped in order: its state changes no more."""
        self.opened, self.reading = asyncio.Event(), asyncio.Event()
        """Set when reading first began (or cannot: REWIND), and when the first record was read."""
        self.opened_at_ms = self.first_record_at_ms = self.stopped_at_ms = 0
        self._stop, self._may_close = asyncio.Event(), asyncio.Event()
        self._commits_last = True
        self._reader: FragmentReader | None = None
        self._sink: SessionSink | None = None
        self._replace_reader = False
        self._claimed_s = context.now_s()

    def __repr__(self) -> str:
        return f"<StreamWorker {self._context.group}/{self.stream} epoch {self.epoch} {self.state}>"

    @property
    def seq(self) -> int | None:
        """The seq of the newest head that this worker knows to be committed."""
        return self.core.head.seq if self.core is not None else None

    @property
    def position(self) -> int:
        """Next offset to read; -1 while opening."""
        return self.core.assembler.position if self.core is not None else -1

    @property
    def end(self) -> int:
        """Next offset to be written to the log, as far as known; -1 while opening."""
        return max(self.position, self._reader.end) if self._reader is not None else self.position

    @property
    def counts(self) -> Counts:
        """Totals through the position."""
        return self.core.counts if self.core is not None else Counts()

    @property
    def is_waiting(self) -> bool:
        """Whether it has a reason to read nothing: the lease is over, or an operator has to decide."""
        return self.state == "rewind" or not self._claimed.lease_alive()

    def stop(self) -> None:
        """Asks for an orderly end: stop reading, commit, return."""
        self._stop.set()
        self._may_close.set()

    def freeze(self) -> None:
        """Asks it to stand still without a commit; its clients stay open until `stop`."""
        self._commits_last = False
        self._stop.set()

    def replace_reader(self) -> None:
        """Asks for a new reader at the same position (the present one makes no progress)."""
        self._replace_reader = True

    async def run(self) -> Outcome:
        """Opens and works until stopped (`stopped`: everything is committed) or the claim is lost."""
        delay_s = RETRY_FIRST_S
        while True:
            try:
                await self._open()
                delay_s = RETRY_FIRST_S
                await self._work()
                self.frozen.set()
                if not self._commits_last:
                    await self._may_close.wait()
                return "stopped"
            except (NotOwner, StaleEpoch) as error:
                self.is_outgrown = isinstance(error, StaleEpoch)
                logger.error("ownership is lost", extra={"stream": self.stream, "why": error.detail})
                return "lost"
            except (Fenced, Unavailable) as error:
                self.was_fenced |= isinstance(error, Fenced)
                logger.warning("starts again", extra={"stream": self.stream, "why": error.detail})
            except InvalidInput as error:
                # what is stored cannot be read: nothing may be written, an operator decides
                logger.error("cannot open", extra={"stream": self.stream, "why": error.detail})
                self.state = "rewind"
                await self._stop.wait()
                return "stopped"
            finally:
                await self._close()
            if not self._stop.is_set():
                await self._pause(delay_s)
            delay_s = min(2 * delay_s, RETRY_MOST_S)
            if not await self._is_still_mine():
                return "stopped" if self._stop.is_set() else "lost"

    async def _open(self) -> None:
        """Opens the stream, and begins to read."""
        context, began_s = self._context, self._context.now_s()
        if self.core is not None:  # what ended it was no unknown commit, or it is no memory
            self._hints.append(self.core)
        self.state, self.core = "opening", None
        warm, self._warm = self._warm, None
        self._sink = warm.sink if warm is not None else context.log.sink(self.stream)
        opening = Opening(self.stream, self.epoch, context, self._sink, warm)
        try:
            self.core, how = await opening.open(self._hints, self._ask, is_new=self._is_new)
        finally:
            self._reader, self.stored_epoch = opening.reader, opening.stored_epoch
        self.is_warm = opening.is_warm
        self._hints, self._ask, self._is_new = [], None, False
        if how == "rewind":
            logger.error("the log was lost", extra={"stream": self.stream, "head": self.core.head})
            self.state = "rewind"
            self.opened.set()
            await self._stop.wait()
            return
        if how == "cut":
            logger.warning("retention cut the log", extra={"stream": self.stream, "cut": self.core.cut})
        if opening.reads_from != self.core.assembler.position:
            await self._reader.open(self.core.assembler.position)
        self.state = "replaying" if self.core.assembler.is_replaying else "running"
        self.opened_after_s = context.now_s() - began_s
        if not self.opened.is_set():
            self.opened_at_ms = context.wall_ms()
            self.opened.set()

    async def _work(self) -> None:
        if self.state == "rewind":
            return
        stopping = asyncio.create_task(self._stop.wait(), name=f"stop of stream {self.stream}")
        try:
            while not stopping.done():
                await self._await_lease()
                await self.step(stopping)
            self.state = "stopping"
            await self._await_lease()
            await self._read_the_rest()
            self.stopped_at_ms = self._context.wall_ms()
            if self._commits_last:
                await self._commit_if(lambda core: core.has_changes)
        finally:
            stopping.cancel()

    async def step(self, stopping: asyncio.Task[Literal[True]]) -> None:
        """Once: read, fold, notice silence, commit and tick when due."""
        core, reader, context = self.core, self._reader, self._context
        assert core is not None
        assert reader is not None
        patience_s = IDLE_FETCH_S
        if core.has_changes:
            patience_s = core.seconds_to_commit(context.now_s(), self._claimed.commit_s())
        fetching = asyncio.ensure_future(reader.fetch(patience_s))
        try:
            await asyncio.wait(
                (fetching, stopping), timeout=patience_s + LATE_FETCH_S, return_when=asyncio.FIRST_COMPLETED
            )
            records = fetching.result() if fetching.done() else ()
        finally:
            fetching.cancel()
        if records:
            if records[0].offset < core.assembler.position:
                raise KafkaUnavailable(f"the log begins again at {records[0].offset}: {core!r}")
            core.feed(records, context.now_s())
            self._note_first_record()
        core.close_due()
        if self.state == "replaying" and not core.assembler.is_replaying:
            self.state = "running"
        await self._commit_if(lambda core: core.is_commit_due(context.now_s(), self._claimed.commit_s()))
        if core.is_tick_due(context.now_s(), context.wall_ms()):
            assert self._sink is not None
            await self._sink.tick()
        if self._replace_reader:
            self._replace_reader = False
            await self._renew_reader(core)
        elif 0 < len(records) < TRICKLE_RECORDS:
            await asyncio.wait((stopping,), timeout=TRICKLE_PAUSE_S)

    async def _read_the_rest(self) -> None:
        """Folds what the reader holds already: the less is left to the next owner, the shorter its pause."""
        core, reader = self.core, self._reader
        assert core is not None
        assert reader is not None
        if core.assembler.is_replaying or not self._claimed.lease_alive():
            return
        records: Sequence[Record] = ()
        with contextlib.suppress(TimeoutError, Unavailable):  # the commit may succeed all the same
            async with asyncio.timeout(LAST_FETCH_S):
                records = await reader.fetch(0.0)
        if records and records[0].offset >= core.assembler.position:
            core.feed(records, self._context.now_s())
            core.close_due()

    def _note_first_record(self) -> None:
        if not self.reading.is_set():
            self.first_record_after_s = self._context.now_s() - self._claimed_s
            self.first_record_at_ms = self._context.wall_ms()
            self.reading.set()

    async def _commit_if(self, is_due: Callable[[Stream], bool]) -> None:
        core, sink, context = self.core, self._sink, self._context
        assert core is not None
        assert sink is not None
        if not is_due(core) or not self._claimed.lease_alive():
            return
        commit = core.prepare_commit()
        offsets = await sink.commit(commit)
        below = core.committed(commit, offsets, context.now_s())
        self.committed_at_ms = context.wall_ms()
        if below is not None and below > 0:
            await sink.trim(below)

    async def _renew_reader(self, core: Stream) -> None:
        assert self._reader is not None
        await self._reader.close()
        self._reader = self._context.log.reader(self.stream)
        start, end = await self._reader.bounds()
        if end < core.assembler.position:
            raise KafkaUnavailable(f"stream {self.stream}: the log ends at {end}: {core!r}")
        await self._reader.open(max(start, core.assembler.position))

    async def _await_lease(self) -> None:
        """Past its lease the member neither reads nor commits; back in it, the claim is read afresh."""
        if self._claimed.lease_alive() or self._stop.is_set():
            return
        logger.warning("paused: the lease is over", extra={"stream": self.stream})
        while not self._claimed.lease_alive() and not self._stop.is_set():
            await self._pause(LEASE_POLL_S)
        if not await self._is_still_mine():
            raise NotOwner(f"stream {self.stream}: the claim of epoch {self.epoch} is gone")

    async def _is_still_mine(self) -> bool:
        while not self._stop.is_set():
            try:
                return await self._claimed.is_mine()
            except Unavailable:
                await self._pause(LEASE_POLL_S)
        return False

    async def _pause(self, seconds: float) -> None:
        if self._stop.is_set():
            await asyncio.sleep(seconds)
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._stop.wait()

    async def _close(self) -> None:
        reader, sink = self._reader, self._sink
        self._reader = self._sink = None
        closing = [one.close() for one in (reader, sink) if one is not None]
        if closing:
            await asyncio.shield(asyncio.gather(*closing))
