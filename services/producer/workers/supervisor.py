"""Several workers on one port: the parent process that starts them, restarts them, and stops them.

Each worker is a complete producer that listens on the same port (SO_REUSEPORT: the kernel distributes the
connections, docs/adr/0019); the parent answers no requests. Used by `__main__.py` with BATON_WORKERS above 1.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

from services.producer.settings import ProducerSettings
from services.producer.workers.worker import Worker
from shared.backoff import Backoff
from shared.errors import BatonError
from shared.server.listener import listen

FIRST_DELAY_S = 0.5
MAX_DELAY_S = 15.0
HEALTHY_AFTER_S = 30.0
"""A worker that ran for so long has recovered: its back-off starts anew."""
STOP_GRACE_S = 10.0
"""How much longer than BATON_ACK_TIMEOUT_S a worker may take to stop."""
START_FAULTS = (1, 2)
"""Exit codes of a service that ends by itself (shared/service/runtime.py)."""
logger = logging.getLogger(__name__)


class WorkerFailed(BatonError):
    """A worker could not start; its own output says why."""


class Supervisor:
    """Keeps BATON_WORKERS workers running from `run(stop)` until `stop` is set.

    `argv` is the command line of a producer; each worker runs it with its own arguments appended.
    """

    def __init__(self, settings: ProducerSettings, argv: list[str]) -> None:
        self._settings = settings
        self._argv = argv
        self._processes: dict[int, asyncio.subprocess.Process] = {}
        self._has_been_ready = False

    def __repr__(self) -> str:
        running = sum(process.returncode is None for process in self._processes.values())
        return f"<Supervisor: {running} of {self._settings.workers} workers run>"

    async def run(self, stop: asyncio.Event) -> None:
        """Returns when all workers have stopped. Raises BatonError if they cannot start."""
        private = self._settings.private_listener
        with (
            reserved_port(self._settings.host, self._settings.port),
            contextlib.nullcontext() if private is None else reserved_port(*private),
            self._kill_workers_on_second_signal(),
            tempfile.TemporaryDirectory(prefix="baton-workers-") as folder,
        ):
            workers = [Worker(number=n, folder=Path(folder)) for n in range(self._settings.workers)]
            try:
                async with asyncio.TaskGroup() as tasks:
                    readiness = tasks.create_task(self._watch_readiness(workers[0]), name="readiness")
                    for worker in workers:
                        tasks.create_task(self._keep_running(worker, stop), name=f"worker {worker.number}")
                    await stop.wait()
                    readiness.cancel()
                    await self._stop_all()
            except* WorkerFailed:
                await self._stop_all()
                raise

    async def _keep_running(self, worker: Worker, stop: asyncio.Event) -> None:
        backoff = Backoff(first_s=FIRST_DELAY_S, cap_s=MAX_DELAY_S)
        while not stop.is_set():
            started_s = time.monotonic()
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
            # before any worker was ready, a start fault is one of the settings: a restart would not help
            if ended in START_FAULTS and not (self._has_been_ready or worker.ready_file.exists()):
                raise WorkerFailed(f"worker {worker.number} could not start (exit code {ended})")
            # a crash after a long healthy run is not part of a crash loop
            if time.monotonic() - started_s > HEALTHY_AFTER_S:
                backoff.reset()
            in_s = backoff.next_s()
            fields = {"number": worker.number, "ended": ended, "in_s": round(in_s, 1)}
            logger.error("worker exited, restarting", extra=fields)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(in_s):
                    await stop.wait()

    async def _watch_readiness(self, worker: Worker) -> None:
        """Remembers that a worker was ready: a clean-up of temporary files may delete `ready_file`."""
        while not worker.ready_file.exists():  # noqa: ASYNC110  a file cannot be awaited
            await asyncio.sleep(1.0)
        self._has_been_ready = True

    async def _start(self, worker: Worker) -> asyncio.subprocess.Process:
        # its own session: Ctrl-C in the terminal must reach only us, or it would be the worker's first signal
        process = self._processes[worker.number] = await asyncio.create_subprocess_exec(
            *(*self._argv, *worker.arguments),
            stdin=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
        logger.info("worker started", extra={"number": worker.number, "its_pid": process.pid})
        return process

    @contextlib.contextmanager
    def _kill_workers_on_second_signal(self) -> Iterator[None]:
        """Kills the workers when a second signal ends this process at once (shared/service/runtime.py).

        The handler does it, because a busy or hanging event loop may not have passed on the first signal.
        """
        received: list[int] = []
        before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}

        def on_signal(number: int, frame: FrameType | None) -> None:
            if received:
                for process in self._processes.values():
                    _send(process, signal.SIGKILL)
            received.append(number)
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

    async def _stop_all(self) -> None:
        """Stops every running worker, and kills those that take too long."""
        waits = {}
        for number, process in self._processes.items():
            if process.returncode is None:
                _send(process, signal.SIGTERM)
                waits[number] = asyncio.ensure_future(process.wait())
        if waits:
            await asyncio.wait(waits.values(), timeout=self._settings.ack_timeout_s + STOP_GRACE_S)
        for number in (number for number, wait in waits.items() if not wait.done()):
            logger.error("worker did not stop in time, killed", extra={"number": number})
            _send(self._processes[number], signal.SIGKILL)


@contextlib.contextmanager
def reserved_port(host: str, port: int) -> Iterator[None]:
    """Reserves the port for our workers while the block runs. Raises BatonError if it is occupied."""
    # exclusively at first: if another producer shared the port, each would get half of the clients
    listen(host, port).close()
    held = listen(host, port, is_shared=True)
    try:
        yield
    finally:
        held.close()


def _send(process: asyncio.subprocess.Process, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        process.send_signal(number)
