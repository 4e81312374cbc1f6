"""Several workers on one port: the process that starts them, starts the dead again, and stops them all.

Each worker is a whole producer that listens at the same port (SO_REUSEPORT: the kernel deals connections
out, docs/adr/0019); this process answers nothing. A worker holds the end of a pipe as its standard input:
when this process is gone, however it ended, the pipe ends, and the worker leaves. Used by `__main__.py`.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, Self

from services.producer.settings import ProducerSettings
from shared.backoff import Backoff
from shared.errors import BatonError
from shared.service.runtime import listen

OPTION = "--worker"
"""`--worker NUMBER FOLDER` at the end of a command line makes a worker of the process."""
FIRST_DELAY_S = 0.5
LONGEST_DELAY_S = 15.0
HEALTHY_AFTER_S = 30.0
"""A worker that lived so long has recovered: its death counts as the first."""
STOP_GRACE_S = 10.0
"""How much longer than BATON_ACK_TIMEOUT_S a worker may take to leave."""
FAULTS = (1, 2)
"""Exit codes of a service that gives up by itself (shared/service/runtime.py)."""
logger = logging.getLogger(__name__)


class WorkerFailed(BatonError):
    """A worker could not begin; its last words say why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Worker:
    """Which worker this process is, and the folder that it shares with its siblings."""

    number: int
    folder: Path

    @classmethod
    def from_argv(cls, argv: list[str]) -> Self | None:
        """What the command line says; None for a process that is no worker."""
        if OPTION not in argv:
            return None
        number, folder = argv[argv.index(OPTION) + 1 :][:2]
        return cls(number=int(number), folder=Path(folder))

    @property
    def was_ready(self) -> Path:
        """The file that says that some worker has been ready once."""
        return self.folder / "ready"

    def settings(self, settings: ProducerSettings) -> ProducerSettings:
        """The same with an id of the worker's own: `host-8001.0`, `host-8001.1`, …."""
        return dataclasses.replace(settings, producer=f"{settings.id}.{self.number}")

    def name_in_logs(self) -> None:
        """From now on every log line of the process says `worker`."""
        make = logging.getLogRecordFactory()

        def with_worker(*args: Any, **kwargs: Any) -> logging.LogRecord:
            record = make(*args, **kwargs)
            record.worker = self.number
            return record

        logging.setLogRecordFactory(with_worker)

    def follow_parent(self, stop: asyncio.Event, grace_s: float) -> None:
        """When the parent is gone: sets `stop`; ends the process at once when it was stopping already.

        A thread, because a loop that is busy, or hangs, would not notice.
        """
        loop = asyncio.get_running_loop()

        def wait() -> None:
            while os.read(sys.stdin.fileno(), 1):
                pass
            if not stop.is_set():
                with contextlib.suppress(RuntimeError):
                    loop.call_soon_threadsafe(stop.set)
                time.sleep(grace_s)
            os._exit(1)

        threading.Thread(target=wait, name="follow parent", daemon=True).start()


class Workers:
    """Keeps BATON_WORKERS workers running from `run(stop)` until `stop` is set."""

    def __init__(self, settings: ProducerSettings, argv: list[str]) -> None:
        self._settings = settings
        self._argv = argv
        self._started: dict[int, asyncio.subprocess.Process] = {}
        self._was_ready = False

    def __repr__(self) -> str:
        running = sum(process.returncode is None for process in self._started.values())
        return f"<Workers: {running} of {self._settings.workers} run>"

    async def run(self, stop: asyncio.Event) -> None:
        """Returns when all have left in order. Raises BatonError when it cannot begin."""
        with (
            reserved(self._settings.host, self._settings.port),
            self._killed_by_a_second_signal(),
            tempfile.TemporaryDirectory(prefix="baton-workers-") as folder,
        ):
            workers = [Worker(number=n, folder=Path(folder)) for n in range(self._settings.workers)]
            try:
                async with asyncio.TaskGroup() as tasks:
                    noticing = tasks.create_task(self._notice_readiness(workers[0]), name="readiness")
                    for worker in workers:
                        tasks.create_task(self._keep(worker, stop), name=f"worker {worker.number}")
                    await stop.wait()
                    noticing.cancel()
                    await self._end_all()
            except* WorkerFailed:
                await self._end_all()
                raise

    async def _keep(self, worker: Worker, stop: asyncio.Event) -> None:
        backoff = Backoff(first_s=FIRST_DELAY_S, cap_s=LONGEST_DELAY_S)
        while not stop.is_set():
            began_s = time.monotonic()
            try:
                process = await self._start(worker)
            except OSError as error:
                ended: int | str = f"it could not be started: {error.strerror}"
            else:
                if stop.is_set():
                    _send(process, signal.SIGTERM)
                ended = await process.wait()
            if stop.is_set():
                return
            if ended in FAULTS and not (self._was_ready or worker.was_ready.exists()):
                raise WorkerFailed(f"worker {worker.number} could not begin (exit code {ended})")
            if time.monotonic() - began_s > HEALTHY_AFTER_S:
                backoff.reset()
            in_s = backoff.next_s()
            told = {"number": worker.number, "ended": ended, "in_s": round(in_s, 1)}
            logger.error("worker ended, starts again", extra=told)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(in_s):
                    await stop.wait()

    async def _notice_readiness(self, worker: Worker) -> None:
        """Remembers it, because the file may be swept away with others of the temporary directory."""
        while not worker.was_ready.exists():  # noqa: ASYNC110  a file cannot be awaited
            await asyncio.sleep(1.0)
        self._was_ready = True

    async def _start(self, worker: Worker) -> asyncio.subprocess.Process:
        # a session of its own: Ctrl-C in the terminal reaches only us, or it would count as the first signal
        process = self._started[worker.number] = await asyncio.create_subprocess_exec(
            *(*self._argv, OPTION, str(worker.number), str(worker.folder)),
            stdin=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
        logger.info("worker started", extra={"number": worker.number, "its_pid": process.pid})
        return process

    @contextlib.contextmanager
    def _killed_by_a_second_signal(self) -> Iterator[None]:
        """Takes the workers along when a second signal ends this process at once (shared/service/runtime.py).

        In the handler, because the first one may not have reached them, where the loop is busy or hangs.
        """
        came: list[int] = []
        before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}

        def on_signal(number: int, frame: FrameType | None) -> None:
            if came:
                for process in self._started.values():
                    _send(process, signal.SIGKILL)
            came.append(number)
            handler = before[signal.Signals(number)]
            if callable(handler):
                handler(number, frame)

        try:
            for number in before:
                signal.signal(number, on_signal)
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    async def _end_all(self) -> None:
        """All that run leave in order, or are killed when that takes too long."""
        waits = {}
        for number, process in self._started.items():
            if process.returncode is None:
                _send(process, signal.SIGTERM)
                waits[number] = asyncio.ensure_future(process.wait())
        if waits:
            await asyncio.wait(waits.values(), timeout=self._settings.ack_timeout_s + STOP_GRACE_S)
        for number in (number for number, wait in waits.items() if not wait.done()):
            logger.error("worker did not leave in time, killed", extra={"number": number})
            _send(self._started[number], signal.SIGKILL)


@contextlib.contextmanager
def reserved(host: str, port: int) -> Iterator[None]:
    """Keeps the port for processes of ours while the block runs. Raises BatonError when it is occupied."""
    # alone at first: sharing a port that another producer listens at would divide the clients between both
    listen(host, port).close()
    held = listen(host, port, is_shared=True)
    try:
        yield
    finally:
        held.close()


def _send(process: asyncio.subprocess.Process, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        process.send_signal(number)
