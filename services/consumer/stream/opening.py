"""Opens an owned stream, in the order that makes it safe: fence, read the head, remember or load.

Starting the sink fences every earlier owner, so only a head that is read afterwards is final. It judges all
hints (`core/handover/rules.py`): the stream continues from a hint that stands on this head; otherwise the
checkpoint is loaded and the log replayed. An opening may take long, but one that makes no progress ends. Used
by `worker.py`, once per start.
"""

from __future__ import annotations

import asyncio
import logging

from services.consumer.core.commits.stream import Stream
from services.consumer.core.commits.turn import Start
from services.consumer.core.handover.rules import is_valid
from services.consumer.stream.context import Claimed, GroupContext
from services.consumer.stream.first_opening import start_of_group
from shared.errors import Conflict, InvalidInput, KafkaUnavailable, StaleEpoch, Unavailable
from shared.model.head import Head
from shared.together import both

logger = logging.getLogger(__name__)

STALLED_S = 30.0
"""An opening without progress for this long hangs. Longer than any of its single calls may take (10 s), so it
ends only what would never end; a member opens a bounded number of streams at a time."""
FIRST_COMMIT = 0.1, 0.3
"""The first commit comes after this share of the time between commits, depending on the stream."""


class Opening:
    """One opening, and the clients that it connects; `close` ends them.

    `stored_epoch`: epoch of the stored head, -1 until it was read. `is_warm`: whether it opens from memory.
    """

    def __init__(self, stream: int, epoch: int, context: GroupContext, claimed: Claimed) -> None:
        warm = claimed.warm
        self.reader = warm.reader if warm is not None else context.log.reader(stream)
        self.sink = warm.sink if warm is not None else context.log.sink(stream)
        self.stored_epoch = -1
        self.is_warm = False
        self._stream, self._epoch = stream, epoch
        self._context, self._claimed = context, claimed
        self._aimed = warm if warm is not None and warm.reads_from >= 0 else None
        self._steps = 0

    def __repr__(self) -> str:
        return f"<Opening {self._context.group}/{self._stream} epoch {self._epoch}>"

    @property
    def reads_from(self) -> int:
        """The offset from which `reader` already reads, -1 if it does not read yet."""
        return self._aimed.reads_from if self._aimed is not None else -1

    async def open(self) -> tuple[Stream, Start]:
        """The stream as it stands, and how its log begins (see `Stream.start`).

        Raises StaleEpoch when the stored head is of a later owner, or of an owner of this epoch although
        nobody can have committed in it yet; Unavailable, also without progress for `STALLED_S`; InvalidInput.
        """
        opening = asyncio.create_task(self._open(), name=f"open stream {self._stream}")
        opening.add_done_callback(lambda done: done.cancelled() or done.exception())  # marks it as retrieved
        try:
            while not opening.done():
                before = self._progress
                await asyncio.wait((opening,), timeout=STALLED_S)
                if not opening.done() and self._progress == before:
                    raise KafkaUnavailable(f"{self!r} makes no progress for {STALLED_S:g} s")
            return opening.result()
        finally:
            opening.cancel()

    def _note_step(self) -> None:
        self._steps += 1

    @property
    def _progress(self) -> tuple[int, int]:
        """Changes whenever the opening gets ahead: steps done, and checkpoint records read."""
        return self._steps, self.sink.records_read

    async def _open(self) -> tuple[Stream, Start]:
        bounds, head = await self._bounds_and_head()
        self._steps += 1
        self.stored_epoch = head.epoch
        # the same epoch in a new claim: ZooKeeper was reset, and counts epochs from 1 again
        if head.epoch > self._epoch or (self._claimed.is_new and head.epoch == self._epoch):
            raise StaleEpoch(f"stream {self._stream}: epoch {self._epoch}, but the stored {head!r}")
        core = await self._from_memory(head)
        self._steps += 1
        if self._aimed is not None:
            if core is not None and core.reads_from == self._aimed.reads_from:
                # the donor has read up to there, so the log reaches it; if not, the reader reports that
                bounds = self._aimed.log_start, core.known_end
            else:
                bounds = await self._replace_reader()
        if core is None or core.known_end > bounds[1]:
            # of what a hint had read beyond the log's end, nothing was committed if the head is within it
            self.is_warm = False
            core = await self._from_checkpoint(head)
        return core, core.start(*bounds)

    async def restore_head(self) -> None:
        """Stores the head again if Kafka has dropped it, as it does when the log's topic is deleted; the
        checkpoints still have it. Never raises.
        """
        try:
            await self.sink.head()
        except (Conflict, InvalidInput, Unavailable) as error:
            logger.warning("head not found", extra={"stream": self._stream, "why": error.detail})

    async def close(self) -> None:
        """Ends both clients; never raises, never hangs."""
        await both(self.reader.close(), self.sink.close())

    async def _bounds_and_head(self) -> tuple[tuple[int, int], Head]:
        """Requests both at once, to save a round trip.

        Bounds that are older than the head are requested again: an earlier owner may have read and committed
        in between. A reader that already reads is not asked: its connection is busy with a fetch.
        """
        if self._aimed is not None:
            await self.sink.open()
            return (0, 0), await self.sink.head()
        asking = asyncio.ensure_future(self.reader.bounds())
        try:
            await self.sink.open()
            self._steps += 1
            head = await self.sink.head()
            bounds = await asking
        finally:
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)  # marks its exception as retrieved
        if bounds[1] < head.known_end:
            bounds = await self.reader.bounds()
        return bounds, head

    async def _replace_reader(self) -> tuple[int, int]:
        """Replaces a reader that reads from the wrong offset; returns the bounds that the new one reports."""
        aimed, self._aimed = self.reader, None
        self.reader = self._context.log.reader(self._stream)
        await aimed.close()
        return await self.reader.bounds()

    async def _from_memory(self, head: Head) -> Stream | None:
        """A hint that stands on the stored head, or None.

        It is this member's own, one handed over, or a bundle that the former owner sends on request, once.
        """
        hints, ask = self._claimed.hints, self._claimed.ask
        found = next((hint for hint in hints if is_valid(hint, head)), None)
        # last, because the stream stands still while the former owner answers
        if found is None and ask is not None:
            answer = await ask(head)
            found = answer if answer is not None and is_valid(answer, head) else None
        if found is not None:
            self.is_warm = True
            found.resume(self._epoch, self._first_commit_s())
        return found

    async def _from_checkpoint(self, head: Head) -> Stream:
        context = self._context
        checkpoint = None
        if not head.seq:  # nobody has committed yet
            checkpoint = await start_of_group(self._stream, head, context, self._note_step)
        return Stream(
            group=context.group,
            stream=self._stream,
            epoch=self._epoch,
            settings=context.settings,
            limits=context.limits,
            checkpoint=await self.sink.load(head) if checkpoint is None else checkpoint,
            now_s=self._first_commit_s(),
        )

    def _first_commit_s(self) -> float:
        """An assumed time of the last commit, from which the core plans the next one.

        It is early enough to deliver soon what waited for the new owner, and differs between streams, so that
        the commits of many streams spread over time.
        """
        least, most = FIRST_COMMIT
        share = least + (most - least) * (self._stream * 7 % 24) / 24
        return self._context.now_s() - self._claimed.commit_s * (1 - share)
