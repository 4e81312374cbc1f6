"""One owned stream, running: fetches records, asks the core what to do with them, and does it.

The shell around `core/commits/stream.py`. A worker's run is a series of lives. Each one opens the stream
(`opening.py`), runs until it is asked to stop, finishes, and closes its clients. After any unknown outcome
the life ends, the worker waits (`retries.py`) and reads its claim afresh, and the next life opens anew: from
memory where the stored head allows it, else from the checkpoint. It acts only while the lease is alive
(`tenure.py`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from services.consumer.core.commits.commit import Commit
from services.consumer.core.commits.last_record import LogChanged, LogLost
from services.consumer.core.commits.stream import Stream
from services.consumer.core.commits.turn import IDLE_S, Effect, Tick
from services.consumer.core.sessions.record import Record
from services.consumer.ports import Fenced, FragmentReader, SessionSink
from services.consumer.stream.context import Claimed, GroupContext
from services.consumer.stream.fetching import Fetching, seek, warn_if_not_compared
from services.consumer.stream.opening import Opening
from services.consumer.stream.retries import Retries
from services.consumer.stream.slices import in_slices
from services.consumer.stream.tenure import Tenure
from services.consumer.stream.timeline import Timeline
from shared.errors import InvalidInput, NotOwner, StaleEpoch, Unavailable
from shared.model.head import Counts

logger = logging.getLogger(__name__)

TRICKLE_RECORDS = 100
TRICKLE_PAUSE_S = 0.05
"""After a small batch, wait a moment for more: this divides the cost of a trickle by 3 to 5."""

State = Literal["opening", "replaying", "running", "retrying", "stopping", "rewind"]
Outcome = Literal["stopped", "lost", "outgrown"]
"""How a run ends: as asked; the claim is gone; the stored head has a higher epoch than the claim."""


class StreamWorker:
    """Runs one stream in one epoch.

    `frozen` is set when the worker has stopped in order, after which its state changes no more; `rewound`
    when it has stopped because an operator must decide.
    """

    def __init__(self, stream: int, epoch: int, context: GroupContext, claimed: Claimed) -> None:
        self.stream = stream
        self.epoch = epoch
        self.state: State = "opening"
        self.core: Stream | None = None
        self.stored_epoch = -1
        """Epoch of the stored head, once it was read."""
        self.is_warm = self.was_fenced = False
        self.frozen, self.rewound = asyncio.Event(), asyncio.Event()
        self.timeline = Timeline(context.now_s, context.wall_ms)
        self._context = context
        self._claimed = claimed
        self._still, self._end = asyncio.Event(), asyncio.Event()
        self._tenure = Tenure(stream, epoch, claimed, self._still)
        self._reader: FragmentReader | None = None
        self._fetching = Fetching(stream, context.pause)
        self._left: Sequence[Record] = ()
        """Records that were read but not folded, because the commit had no room for what they close."""
        self.retries = Retries(context.uniform)

    def __repr__(self) -> str:
        return f"<StreamWorker {self._context.group}/{self.stream} epoch {self.epoch} {self.state}>"

    @property
    def seq(self) -> int | None:
        """The seq of the newest head that this worker knows to be committed."""
        return self.core.head.seq if self.core is not None else None

    @property
    def position(self) -> int:
        """Next offset to read; -1 while opening."""
        return self.core.position if self.core is not None else -1

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
        """Whether it has a reason to read nothing: the stream is not open, the lease is over, the group is
        paused, or what was read is being committed in parts.
        """
        is_open = self.state not in ("opening", "retrying", "rewind")
        may_read = self._claimed.lease_alive() and not self._context.pause.is_on
        return not is_open or bool(self._left) or not may_read

    def stop(self) -> None:
        """Asks for an orderly end: stop reading, commit, return."""
        self._still.set()
        self._end.set()

    def freeze(self) -> None:
        """Asks it to stand still without a commit; its clients stay open until `stop`."""
        self._still.set()

    def reopen(self) -> None:
        """Asks for a new life, because the reader of this one makes no progress."""
        self._fetching.reopen()

    def note_pause(self) -> None:
        """Tells it that the group's pause has begun or ended."""
        self._fetching.interrupt()

    async def run(self) -> Outcome:
        """Lives until it is stopped (with everything committed) or the stream is no longer its own."""
        while True:
            outcome = await self._live()
            if outcome == "rewind":
                # writing would destroy what is stored; keep the claim, so that no other member tries
                self.state = "rewind"
                self.rewound.set()
                await self._still.wait()
                return "stopped"
            # not a failure to retry: it has stopped, or another member is the owner now
            if outcome != "again":
                return outcome
            self.state = "retrying"
            await self._tenure.pause(self.retries.wait_s)
            # opening again would fence a member that has claimed the stream meanwhile
            if not await self._tenure.is_still_mine():
                return "stopped" if self._still.is_set() else "lost"

    async def _live(self) -> Outcome | Literal["rewind", "again"]:
        """One life: open, run, finish, close."""
        opening = Opening(self.stream, self.epoch, self._context, self._claimed)
        self._claimed = replace(self._claimed, warm=None)  # these clients are the opening's now
        try:
            core = await self._open(opening)
            await self._run(core, opening.reader, opening.sink)
            await self._finish(core, opening.reader, opening.sink)
            return "stopped"
        except (NotOwner, StaleEpoch) as error:
            logger.error("stream lost", extra={"stream": self.stream, "why": error.detail})
            return "outgrown" if isinstance(error, StaleEpoch) else "lost"
        except LogLost as error:
            self.retries.give_up(error.detail)
            logger.error("log lost", extra={"stream": self.stream, "why": error.detail})
            # a group that is to follow this one needs it
            await opening.restore_head()
            return "rewind"
        except (Fenced, LogChanged, Unavailable) as error:
            self.was_fenced |= isinstance(error, Fenced)
            self.retries.fail(error.detail, self.core)
            if isinstance(error, LogChanged):
                self.core = None  # no memory: what it read beyond the stored head is gone
            logger.warning("stream reopens", extra={"stream": self.stream, **self.retries.status})
            return "again"
        except InvalidInput as error:  # reading it again would give the same bytes
            self.retries.give_up(error.detail)
            logger.error("stored state unreadable", extra={"stream": self.stream, "why": error.detail})
            return "rewind"
        finally:
            self.stored_epoch, self._reader = opening.stored_epoch, None
            if self.core is not None:  # a hint for the next life; `is_memory` rules out unknown commits
                self._claimed = replace(self._claimed, hints=(*self._claimed.hints, self.core))
            # shielded: a worker that is cancelled here must still close its clients
            await asyncio.shield(opening.close())

    async def _open(self, opening: Opening) -> Stream:
        """Opens the stream and begins to read. Raises LogLost when the log ends below the position."""
        self.timeline.begin()
        self.state, self.core, self._left = "opening", None, ()
        self._fetching.begin()
        core, start = await opening.open()
        self.core, self._reader, self.is_warm = core, opening.reader, opening.is_warm
        # not new any more: from here on, a stored head of this epoch may be our own
        self._claimed = replace(self._claimed, hints=(), ask=None, is_new=False)
        if start == "rewind":
            self.timeline.opened.set()
            raise LogLost(f"the log ends below position {core.head.known_end}")
        if start == "cut":
            logger.warning("retention cut the log", extra={"stream": self.stream, "cut": core.cut})
        if opening.reads_from != core.reads_from:
            await seek(core, opening.reader)
        warn_if_not_compared(core)
        self._note_progress(core)
        self.timeline.note_open()
        return core

    async def _run(self, core: Stream, reader: FragmentReader, sink: SessionSink) -> None:
        """Steps until it is asked to stop. Raises Unavailable and Conflict, which end the life."""
        stopping = asyncio.create_task(self._still.wait(), name=f"stop of stream {self.stream}")
        wait_s = 0.0  # the first turn says when to commit changes that came with a handover
        try:
            while not stopping.done():
                if await self._tenure.await_lease():
                    self._left = ()  # the log may have changed during the pause
                    await seek(core, reader)
                records = self._left or await self._fetching.take(core, reader, wait_s, stopping)
                wait_s = await self._turn(core, sink, records)
                if wait_s == 0.0:
                    await asyncio.sleep(0)  # parts of a large commit, one after the other: give way to others
                elif 0 < len(records) < TRICKLE_RECORDS:
                    await asyncio.wait((stopping,), timeout=TRICKLE_PAUSE_S)
                    # the pause has used up part of the time until the next commit
                    wait_s = max(0.01, wait_s - TRICKLE_PAUSE_S)
        finally:
            stopping.cancel()

    async def _turn(self, core: Stream, sink: SessionSink, records: Sequence[Record]) -> float:
        """Passes the records to the core and performs its effects; returns how long to wait for more."""
        context, claimed = self._context, self._claimed
        turn = await in_slices(
            core.turning(
                records,
                now_s=context.now_s(),
                wall_ms=context.wall_ms(),
                # the lease may have ended during the fetch: records may be folded, but not committed
                commit_s=claimed.commit_s if claimed.lease_alive() else None,
            )
        )
        self._left = turn.left
        self._note_progress(core, records)
        await self._perform(turn.effects, core, sink)
        self.retries.observe(core, self.end, context.now_s())
        return min(turn.wait_s, IDLE_S) if self.retries.failures else turn.wait_s

    async def _perform(self, effects: Sequence[Effect], core: Stream, sink: SessionSink) -> None:
        for effect in effects:
            match effect:
                case Commit():
                    offsets = await sink.commit(effect)
                    below = core.committed(effect, offsets, self._context.now_s())
                    self.timeline.note_commit()
                    # only after the commit is known: until then a replay may start at the older checkpoint
                    if below:
                        await sink.trim(below)
                case Tick() if not self._context.pause.is_on:  # it would not be read
                    await sink.tick()

    async def _finish(self, core: Stream, reader: FragmentReader, sink: SessionSink) -> None:
        """Folds what the reader already holds, so that the next owner has less to read, and commits.

        If only `freeze` was called, it leaves the commit to the next owner and stands still until `stop`.
        """
        context = self._context
        self.state = "stopping"
        await self._tenure.await_lease()
        records: Sequence[Record] = ()
        # a replay cannot commit, so reading on would only delay the stop
        # and the next owner reads again what is left here
        if self._claimed.lease_alive() and not core.is_replaying and not self._left:
            # if it fails, the commit may succeed all the same
            records = await self._fetching.last(core, reader)
        self.timeline.note_stop()
        core.fold(records, context.now_s())
        if self._end.is_set() and self._claimed.lease_alive():
            turn = core.turn((), now_s=context.now_s(), wall_ms=context.wall_ms(), commit_s=0.0)
            await self._perform(turn.effects, core, sink)
        self.frozen.set()
        await self._end.wait()

    def _note_progress(self, core: Stream, records: Sequence[Record] = ()) -> None:
        self.state = "replaying" if core.is_replaying else "running"
        if records:
            self.timeline.note_record()
        if self.state == "running":
            self.timeline.note_caught_up()
