"""Keeps one process running: starts it, reports its death, restarts it with back-off, stops it.

The child has its own process group, so a Ctrl-C in the terminal reaches only us and we choose the order
of the stop. It dies with us, however we end. `cli/stack/local/stack.py` runs everything this way.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from cli.stack.faults import NotReady
from cli.stack.processes.identity import Identity, identify
from cli.stack.processes.leash import on_leash
from shared.backoff import Backoff

FIRST_DELAY_S = 0.5
LONGEST_DELAY_S = 15.0
HEALTHY_AFTER_S = 30.0
"""A process that lives this long has recovered: after its next death the first delay applies again."""
ATTEMPTS = 3
"""The start fails after this many deaths of a process that was never ready."""
READY_POLL_S = 0.1
LOG_LIMIT_BYTES = 50_000_000

Report = Callable[[str, str], None]
"""Gets the name of a process and what happened to it, for a person."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessSpec:
    """What to run, and how to find out that it is ready; `environment` is the complete one."""

    name: str
    argv: list[str]
    log: Path
    is_ready: Callable[[], Awaitable[bool]]
    address: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)
    folder: Path | None = None
    ready_timeout_s: float = 60.0
    stop_timeout_s: float = 30.0


def describe_exit(code: int) -> str:
    """How a process ended, for a person.

    >>> describe_exit(2), describe_exit(-9)
    ('exit code 2', 'SIGKILL')
    """
    if code >= 0:
        return f"exit code {code}"
    with contextlib.suppress(ValueError):
        return signal.Signals(-code).name
    return f"signal {-code}"


class SupervisedProcess:
    """One process that is kept running from `run()` until `stop()`."""

    def __init__(self, spec: ProcessSpec, report: Report, changed: Callable[[], None] = lambda: None) -> None:
        self.spec = spec
        self.starts = 0
        self._report = report
        self._changed = changed
        self._process: asyncio.subprocess.Process | None = None
        self._ended = asyncio.Event()
        self._stopping = asyncio.Event()
        self._was_ready = False
        self._early_deaths = 0
        self._last_exit = ""

    def __repr__(self) -> str:
        return f"<SupervisedProcess {self.spec.name}, pid {self.pid}, {self.starts} starts>"

    @property
    def pid(self) -> int | None:
        """The process id while it runs."""
        running = self._process is not None and self._process.returncode is None
        return self._process.pid if running and self._process else None

    @property
    def identity(self) -> Identity | None:
        """The identity of the process while it runs."""
        return None if self.pid is None else identify(self.pid)

    async def run(self) -> None:
        """Keeps the process running until `stop()`; kills it on cancellation."""
        try:
            await self._keep_running()
        finally:
            self.send(signal.SIGKILL)
            if self._process is not None:
                await self._process.wait()
            self._ended.set()
            self._changed()

    async def wait_ready(self) -> None:
        """Returns when the process is ready. Raises NotReady when it keeps dying or takes too long."""
        deadline = time.monotonic() + self.spec.ready_timeout_s
        # the pid too: another process may answer at this port while ours is dead
        while not (self.pid is not None and await self.spec.is_ready()):
            if self._early_deaths >= ATTEMPTS:
                raise NotReady(f"{self.spec.name} does not start ({self._last_exit}): {self._last_output()}")
            if time.monotonic() > deadline:
                raise NotReady(
                    f"{self.spec.name} was not ready after {self.spec.ready_timeout_s:g} s:"
                    f" {self._last_output()}"
                )
            await asyncio.sleep(READY_POLL_S)
        self._was_ready = True

    async def stop(self) -> None:
        """Stops the process for good, by SIGTERM, and by SIGKILL if that takes too long."""
        await self._end(signal.SIGTERM, self.spec.stop_timeout_s)

    async def kill(self, *, restart: bool = True) -> None:
        """Kills the process and returns when it is dead; it restarts unless `restart` is False."""
        if not restart:
            await self._end(signal.SIGKILL, 10.0)
        elif self._process is not None:
            self.send(signal.SIGKILL)
            await self._process.wait()

    def send(self, number: signal.Signals) -> None:
        """Sends a signal if the process runs; SIGSTOP and SIGCONT make it a zombie member and undo that."""
        if self._process is not None and self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(number)

    async def _end(self, number: signal.Signals, timeout_s: float) -> None:
        self._stopping.set()
        # `run` may never have begun; then `_ended` would never be set
        if self.starts == 0:
            return
        self.send(number)
        self.send(signal.SIGCONT)  # a stopped process cannot react
        try:
            async with asyncio.timeout(timeout_s):
                await self._ended.wait()
        except TimeoutError:
            self._report(self.spec.name, f"did not stop within {timeout_s:g} s, is killed")
            self.send(signal.SIGKILL)
            await self._ended.wait()

    async def _keep_running(self) -> None:
        # without jitter: one supervisor cannot stampede, and its delays are announced
        backoff = Backoff(first_s=FIRST_DELAY_S, cap_s=LONGEST_DELAY_S, uniform=lambda: 1.0)
        while not self._stopping.is_set():
            began = time.monotonic()
            code = await self._run_once()
            if self._stopping.is_set():
                return
            # without this a program that dies once a day would end up waiting the longest delay
            if time.monotonic() - began > HEALTHY_AFTER_S:
                backoff.reset()
            delay_s = backoff.next_s()
            self._last_exit = describe_exit(code)
            self._early_deaths += not self._was_ready  # later deaths are not failures of the start
            self._report(self.spec.name, f"died ({self._last_exit}), starts again in {delay_s:g} s")
            self._changed()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(delay_s):
                    await self._stopping.wait()

    async def _run_once(self) -> int:
        # each time: somebody may clean up the logs of a running stack
        self.spec.log.parent.mkdir(parents=True, exist_ok=True)
        _rotate(self.spec.log)
        with self.spec.log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *on_leash(self.spec.argv),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=dict(self.spec.environment),
                cwd=self.spec.folder,
                # its own session, so a Ctrl-C in the terminal does not reach it
                start_new_session=True,
            )
        self.starts += 1
        self._changed()
        if self._stopping.is_set():  # `stop` came while the process was being created
            self.send(signal.SIGTERM)
        return await self._process.wait()

    def _last_output(self) -> str:
        output = b""
        with contextlib.suppress(OSError):
            output = self.spec.log.read_bytes()
        return f"{last_line(output)} (log: {self.spec.log})".lstrip()


def last_line(output: bytes) -> str:
    """The last line of a process's output, cut to 300 characters; "" without any output."""
    lines = output.decode(errors="replace").strip().splitlines()
    return lines[-1][:300] if lines else ""


def _rotate(log: Path) -> None:
    with contextlib.suppress(OSError):
        if log.stat().st_size > LOG_LIMIT_BYTES:
            # before the start: a running process keeps its open file
            log.replace(log.with_suffix(".old.log"))
