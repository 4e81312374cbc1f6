"""The workers of a member's streams: starts, stops and drops them, and reports how each stream opened.

Between `effects.py`, which carries out decisions, and `stream/worker.py`, which runs one stream. The state
that a worker ends with goes into the hint store: as memory for this member, as a bundle for others.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from services.consumer.core.ownership.decide import Running
from services.consumer.handover.hints import Hint, HintStore
from services.consumer.member.events import MemberEvents
from services.consumer.ports import Coordinator
from services.consumer.stream.context import Ask, Claimed, GroupContext
from services.consumer.stream.warm_clients import WarmClientPool
from services.consumer.stream.worker import Outcome, StreamWorker
from shared.errors import InvariantBroken

logger = logging.getLogger(__name__)

FIRST_RECORD_S = 0.5
"""How long to wait for an opened stream's first record. The pause of a quiet stream ends at its opening."""


class Vacancy(NamedTuple):
    """The time before a claim: the stream's last owner, and since when (ms UTC) nobody has had the stream."""

    owner: str
    since_ms: int


@dataclass(slots=True, kw_only=True)
class _Run:
    worker: StreamWorker
    task: asyncio.Task[None]


class StreamWorkers:
    """Runs workers as tasks of `tasks`; calls `on_open` when one has opened, `on_end` when it has ended."""

    def __init__(
        self,
        *,
        coordinator: Coordinator,
        context: GroupContext,
        hint_store: HintStore,
        events: MemberEvents,
        commits_per_s: float,
        on_open: Callable[[], None],
        on_end: Callable[[StreamWorker, Outcome], None],
    ) -> None:
        self.streams: dict[int, _Run] = {}
        self.tasks: asyncio.TaskGroup | None = None
        self._opened: dict[int, tuple[int, int | None]] = {}
        """Stream → the last epoch in which it was opened here, and the ZooKeeper session then; in any other
        this member has not committed. Epochs alone may come again after ZooKeeper has lost its data."""
        self.warm = WarmClientPool(context.log, context.now_s)
        self._coordinator = coordinator
        self._context = context
        self._hint_store = hint_store
        self._events = events
        self._commits_per_s = commits_per_s
        self._on_open = on_open
        self._on_end = on_end

    def __repr__(self) -> str:
        return f"<StreamWorkers of {self._coordinator.member}: {len(self.streams)} streams>"

    @property
    def all(self) -> list[StreamWorker]:
        """The workers that run, by stream."""
        return [self.streams[stream].worker for stream in sorted(self.streams)]

    def worker(self, stream: int) -> StreamWorker | None:
        """The stream's worker, if it runs."""
        run = self.streams.get(stream)
        return run.worker if run is not None else None

    @property
    def running(self) -> dict[int, Running]:
        """What runs, in the terms of `core/ownership/decide.py`."""
        return {
            stream: Running(
                epoch=run.worker.epoch,
                bytes=run.worker.core.state_bytes if run.worker.core is not None else 0,
                is_ready=run.worker.state == "running",
                is_opening=self._is_opening(run.worker),
            )
            for stream, run in self.streams.items()
        }

    def start(
        self,
        stream: int,
        epoch: int,
        *,
        of_streams: int,
        why: str = "",
        ask: Ask | None = None,
        vacancy: Vacancy | None = None,
    ) -> None:
        """Runs a stream that was claimed in this epoch, one `of_streams` in the group.

        `ask`: how to ask the last owner for a bundle. `vacancy`: what came before, for the event.
        """
        if stream in self.streams:
            raise InvariantBroken(f"{self!r} runs stream {stream} already: {self.streams[stream].worker!r}")
        tenure = epoch, self._coordinator.session_id
        hints = self._hint_store.take(stream)
        handed = next((hint for hint in hints if hint.completion is not None), None)
        claimed = Claimed(
            is_mine=partial(self._is_mine, stream, epoch),
            lease_alive=partial(self._lease_alive, stream, epoch),
            commit_s=max(self._context.limits.commit_s, of_streams / self._commits_per_s),
            hints=[hint.state for hint in hints],
            ask=ask,
            warm=self.warm.take(stream),
            is_new=self._opened.get(stream) != tenure,
        )
        worker = StreamWorker(stream, epoch, self._context, claimed)
        assert self.tasks is not None
        task = self.tasks.create_task(self._run(worker, tenure), name=f"stream {stream}")
        self.streams[stream] = _Run(worker=worker, task=task)
        self.tasks.create_task(
            self._report_opening(worker, task, why, handed), name=f"opening of stream {stream}"
        )
        if handed is None and vacancy is not None:
            self.tasks.create_task(
                self._report_takeover(worker, task, why, vacancy), name=f"takeover of stream {stream}"
            )
        self.tasks.create_task(self._report_rewind(worker, task), name=f"rewind of stream {stream}")

    async def freeze(self, stream: int) -> None:
        """Stops a stream without a last commit, which is left to the next owner. Returns as soon as its state
        is final: closing its clients would only lengthen the pause.
        """
        run = self.streams.get(stream)
        if run is not None:
            run.worker.freeze()
            frozen = asyncio.ensure_future(run.worker.frozen.wait())
            try:
                await asyncio.wait((run.task, frozen), return_when=asyncio.FIRST_COMPLETED)
            finally:
                frozen.cancel()
            if run.worker.frozen.is_set() and run.worker.core is not None:
                self._hint_store.keep(run.worker.core)

    async def stop(self, stream: int) -> None:
        """Stops a stream in order: commits what it has read, if it can."""
        run = self.streams.get(stream)
        if run is not None:
            run.worker.stop()
            await asyncio.wait([run.task])

    async def drop(self, stream: int) -> None:
        """Stops a stream without a commit."""
        run = self.streams.get(stream)
        if run is not None:
            run.task.cancel()
            await asyncio.wait([run.task])

    def cancel(self) -> None:
        """Ends all workers at once."""
        for run in self.streams.values():
            run.task.cancel()

    async def _run(self, worker: StreamWorker, tenure: tuple[int, int | None]) -> None:
        outcome: Outcome = "lost"
        try:
            outcome = await worker.run()
        finally:
            run = self.streams.get(worker.stream)
            if run is not None and run.worker is worker:
                del self.streams[worker.stream]
            if worker.timeline.opened.is_set():
                self._opened[worker.stream] = tenure
            if worker.core is not None:
                self._hint_store.keep(worker.core)
        if worker.was_fenced:
            self._events.emit("fence", stream=worker.stream, epoch=worker.epoch)
        self._on_end(worker, outcome)

    async def _report_opening(
        self, worker: StreamWorker, task: asyncio.Task[None], why: str, handed: Hint | None
    ) -> None:
        """Reports the claim once the stream is open, and the handover once its first record has been read."""
        # by then the hint's stream is the worker's, and has changed
        sessions = handed.state.open_sessions if handed is not None else None
        size = handed.state.state_bytes if handed is not None else None
        opened = asyncio.ensure_future(worker.timeline.opened.wait())
        reading = asyncio.ensure_future(worker.timeline.reading.wait())
        try:
            await asyncio.wait((opened, task), return_when=asyncio.FIRST_COMPLETED)
            self._hint_store.arrivals.end(worker.stream)
            self._on_open()
            warm = worker.is_warm if opened.done() else None
            self._events.emit("claim", stream=worker.stream, epoch=worker.epoch, why=why, warm=warm)
            if opened.done() and worker.core is not None and (cut := worker.core.cut):
                why = f"retention took {cut} records that were still needed"
                self._events.emit("cut", stream=worker.stream, epoch=worker.epoch, why=why)
            if handed is None or handed.completion is None or not opened.done():
                return
            await asyncio.wait((reading, task), timeout=FIRST_RECORD_S, return_when=asyncio.FIRST_COMPLETED)
        finally:
            opened.cancel()
            reading.cancel()
        completion = handed.completion
        resumed_ms = worker.timeline.first_record_at_ms or worker.timeline.opened_at_ms
        self._events.emit(
            "handover",
            stream=worker.stream,
            epoch=worker.epoch,
            source=completion.donor,
            target=self._coordinator.member,
            why=handed.why,
            sessions=sessions,
            bytes=size,
            copy_ms=completion.copy_ms,
            pause_ms=max(0, resumed_ms - completion.stopped_at_ms),
            warm=worker.is_warm,
        )

    async def _report_takeover(
        self, worker: StreamWorker, task: asyncio.Task[None], why: str, vacancy: Vacancy
    ) -> None:
        """Reports a claim without a handover, once the stream has reached its last owner's position."""
        caught_up = asyncio.ensure_future(worker.timeline.caught_up.wait())
        try:
            await asyncio.wait((caught_up, task), return_when=asyncio.FIRST_COMPLETED)
        finally:
            caught_up.cancel()
        if worker.timeline.caught_up.is_set() and worker.core is not None:
            self._events.emit(
                "takeover",
                stream=worker.stream,
                epoch=worker.epoch,
                source=vacancy.owner,
                target=self._coordinator.member,
                why=why,
                sessions=worker.core.open_sessions,
                bytes=worker.core.state_bytes,
                pause_ms=max(0, worker.timeline.caught_up_at_ms - vacancy.since_ms),
                warm=worker.is_warm,
            )

    async def _report_rewind(self, worker: StreamWorker, task: asyncio.Task[None]) -> None:
        """Reports that the stream has stopped for an operator, which may happen at any time."""
        rewound = asyncio.ensure_future(worker.rewound.wait())
        try:
            await asyncio.wait((rewound, task), return_when=asyncio.FIRST_COMPLETED)
        finally:
            rewound.cancel()
        if worker.rewound.is_set():
            self._events.emit("rewind", stream=worker.stream, epoch=worker.epoch, why=worker.retries.why)

    def _is_opening(self, worker: StreamWorker) -> bool:
        # a replay that waits for the end of a pause must not keep other streams from being claimed
        waits = worker.timeline.opened.is_set() and self._context.pause.is_on
        return worker.state in ("opening", "replaying") and not worker.retries.failures and not waits

    async def _is_mine(self, stream: int, epoch: int) -> bool:
        claim = await self._coordinator.read_claim(stream)
        return claim is not None and claim.member == self._coordinator.member and claim.epoch == epoch

    def _lease_alive(self, stream: int, epoch: int) -> bool:
        lease = self._coordinator.lease_of(stream, epoch)
        return lease is not None and lease.is_alive(self._coordinator.now_s())
