"""The processes of a round: each side has its own, which wait for jobs between the rounds.

A process ends when its pipe breaks, so none outlives the command.
"""

from __future__ import annotations

import asyncio
import multiprocessing
from collections.abc import Sequence
from multiprocessing.connection import Connection
from types import TracebackType
from typing import Any, Final, Self

import uvloop

from bench.curves.work import STUCK_S, Job, Tally, run

READY: Final = "ready"
GO: Final = "go"


def serve(pipe: Connection) -> None:
    """The process: for each job it sends READY, waits for GO, and sends the tally or what went wrong."""

    async def go() -> None:
        pipe.send(READY)
        await asyncio.to_thread(pipe.recv)

    while True:
        try:
            job = pipe.recv()
        except EOFError:
            return
        try:
            pipe.send(uvloop.run(run(job, go)))
        except Exception as error:
            pipe.send(RuntimeError(f"{job.side} cannot {job.role}: {error!r}"))


class Crew:
    """A block; at its end the processes end."""

    def __init__(self) -> None:
        self._spawn = multiprocessing.get_context("spawn")
        self._pipes: dict[tuple[str, str, int], Connection] = {}

    def __repr__(self) -> str:
        return f"<Crew of {len(self._pipes)} processes>"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for pipe in self._pipes.values():
            pipe.close()

    def work(self, writers: Sequence[Job], readers: Sequence[Job]) -> tuple[list[Tally], list[Tally]]:
        """Opens the writers, then the readers, has all begin at once; the tallies of both.

        Raises RuntimeError if one of them fails.
        """
        opened = [self._open(job, n) for jobs in (writers, readers) for n, job in enumerate(jobs)]
        for pipe in opened:
            pipe.send(GO)
        tallies = [_answer(pipe) for pipe in opened]
        return tallies[: len(writers)], tallies[len(writers) :]

    def _open(self, job: Job, number: int) -> Connection:
        place = job.side, job.role, number
        if place not in self._pipes:
            self._pipes[place], theirs = self._spawn.Pipe()
            self._spawn.Process(target=serve, args=(theirs,), daemon=True).start()
            theirs.close()
        pipe = self._pipes[place]
        pipe.send(job)
        _answer(pipe)
        return pipe


def _answer(pipe: Connection) -> Any:
    if not pipe.poll(2 * STUCK_S):
        raise RuntimeError("a process is stuck")
    answer = pipe.recv()
    if isinstance(answer, RuntimeError):
        raise answer
    return answer
