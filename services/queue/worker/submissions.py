"""Gets commands into a queue's log, many to a record, and brings back what the fold answers to them.

One record is on its way at a time. What arrives meanwhile goes into the next, so a busy queue has few and
large records. Used by `worker/engine.py`, which reads the log and reports the answers.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence

from services.queue.core.commands import AnyCommand, Seek, encode_record
from services.queue.core.fold import Answer
from services.queue.ports import CommandLog
from shared.errors import BatonError, KafkaUnavailable

MOST_COMMANDS = 500
"""Of a record; each is small, and applying them takes about 5 ms at most."""
MOST_BYTES = 900 * 1024
MOST_UNREAD = 1_000
"""Records that were sent and not read again: usually one or two."""
ANSWER_TIMEOUT_S = 15.0
"""Longer than Kafka may take to acknowledge a record: then it is read within milliseconds."""

_Waiting = tuple[Sequence[AnyCommand], "asyncio.Future[Sequence[Answer]]"]


class Submissions:
    """Commands of one worker; `run()` sends them. `writer` is the name of this life of the worker.

    `on_unclaimed` hears of answers that nobody waits for any more. `incarnation` is that of the queue whose
    state the commands speak of: the append names the log's topic, which may be another queue's by now. Make
    it inside the loop.
    """

    def __init__(
        self,
        log: CommandLog,
        writer: bytes,
        on_unclaimed: Callable[[Sequence[Answer]], None],
        incarnation: Callable[[], bytes],
    ) -> None:
        self.writer = writer
        self._log = log
        self._incarnation = incarnation
        self._on_unclaimed = on_unclaimed
        # kept, because looking for it costs a system call each time (getpid)
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[_Waiting] = deque()
        self._sent: dict[int, list[_Waiting]] = {}
        self._awaited: deque[tuple[float, asyncio.Future[Sequence[Answer]]]] = deque()
        """What may still be waited for, with the time at which it is given up, in order."""
        self._alarm: asyncio.TimerHandle | None = None
        self._number = 0
        self._wake = asyncio.Event()
        self._ended: BatonError | None = None

    def __repr__(self) -> str:
        return f"<Submissions: {len(self._waiting)} wait, {len(self._sent)} records are on their way>"

    async def submit(self, commands: Sequence[AnyCommand]) -> Sequence[Answer]:
        """The answers to the commands, which stand in one record, in this order.

        Raises KafkaUnavailable: then they may have had their effect all the same. A cancelled call does not
        withdraw what was sent; its answers are unclaimed.
        """
        if not commands:
            return []
        if self._ended is not None:
            raise self._ended
        if len(self._sent) > MOST_UNREAD:
            raise KafkaUnavailable("the log of the queue is not read at present")
        answered: asyncio.Future[Sequence[Answer]] = self._loop.create_future()
        self._waiting.append((commands, answered))
        while self._awaited and self._awaited[0][1].done():
            self._awaited.popleft()
        self._awaited.append((self._loop.time() + ANSWER_TIMEOUT_S, answered))
        if self._alarm is None:
            self._alarm = self._loop.call_later(ANSWER_TIMEOUT_S, self._give_up)
        self._wake.set()
        try:
            return await answered
        except asyncio.CancelledError:
            if answered.done() and not answered.cancelled() and answered.exception() is None:
                self._on_unclaimed(answered.result())  # answered and cancelled in one turn of the loop
            raise

    def answer(self, number: int, answers: Sequence[Answer]) -> None:
        """The record of this number was folded."""
        if number not in self._sent:
            self._on_unclaimed(answers)
            return
        at = 0
        for commands, answered in self._sent.pop(number):
            some = answers[at : at + len(commands)]
            if answered.done():
                self._on_unclaimed(some)
            else:
                answered.set_result(some)
            at += len(commands)

    def fail(self, error: BatonError) -> None:
        """Nothing that is on its way will be answered: the fold begins anew."""
        for number in list(self._sent):
            self._fail_record(number, error)

    def end(self, error: BatonError) -> None:
        """Nothing is sent or answered any more: who waits gets the error, and whoever comes."""
        self._ended = error
        self.fail(error)
        for _, answered in self._waiting:
            if not answered.done():
                answered.set_exception(error)
        self._waiting.clear()

    async def run(self) -> None:
        """Sends until it is cancelled."""
        while True:
            await self._wake.wait()
            await self.step()

    async def step(self) -> None:
        """Sends one record, if there is anything to send."""
        taken = self._take()
        if not self._waiting:
            self._wake.clear()
        if not taken:
            return
        self._number += 1
        number, commands = self._number, [command for some, _ in taken for command in some]
        self._sent[number] = taken
        try:
            await self._log.append(encode_record(self.writer, number, commands, self._incarnation()))
        except KafkaUnavailable as error:
            self._fail_record(number, error)

    def _give_up(self) -> None:
        """Fails what has waited for too long. One timer for all: a command costs no timer of its own."""
        now_s, self._alarm = self._loop.time(), None
        while self._awaited:
            deadline_s, answered = self._awaited[0]
            if not answered.done():
                if deadline_s > now_s:
                    self._alarm = self._loop.call_at(deadline_s, self._give_up)
                    return
                answered.set_exception(KafkaUnavailable("the log of the queue does not answer in time"))
            self._awaited.popleft()

    def _fail_record(self, number: int, error: BatonError) -> None:
        for _, answered in self._sent.pop(number, ()):
            if not answered.done():
                answered.set_exception(error)

    def _take(self) -> list[_Waiting]:
        """The next ones that go together; a seek goes alone, so that no receipt is given out twice."""
        taken: list[_Waiting] = []
        commands = size = 0
        while self._waiting:
            some, answered = self._waiting[0]
            if answered.done():  # who waited for it has gone: it was never sent
                self._waiting.popleft()
                continue
            is_alone = False
            commands += len(some)
            for command in some:
                is_alone |= isinstance(command, Seek)
                size += _size(command)
            if taken and (is_alone or commands > MOST_COMMANDS or size > MOST_BYTES):
                break
            taken.append(self._waiting.popleft())
            if is_alone:
                break
        return taken


def _size(command: AnyCommand) -> int:
    """Its bytes in a record, roughly and at most."""
    data = getattr(command, "data", b"")
    return 400 + len(data) + 30 * len(getattr(command, "receipts", ()))
