"""Keeps one process running: starts it, tells when it dies, starts it again with back-off, stops it.

The child has a process group of its own (a Ctrl-C in the terminal reaches only us, so that we choose
the order) and dies with us, however we end. Used by `cli/stack/local.py` for everything that it runs.
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
from cli.stack.identity import Identity, identify
from cli.stack.leash import on_leash

FIRST_DELAY_S = 0.5
LONGEST_DELAY_S = 15.0
HEALTHY_AFTER_S = 30.0
"""A process that lived so long has recovered: its next death counts as the first."""
ATTEMPTS = 3
"""So many deaths before it was ever ready are a failure of the start."""
READY_POLL_S = 0.1
LOG_LIMIT_BYTES = 50_000_000

Tell = Callable[[str, str], None]
"""Takes the name of a process and what happened to it, for a person."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessSpec:
    """What to run and how to know that it works; `environment` is the whole of it."""

    name: str
    argv: list[str]
    log: Path
    is_ready: Callable[[], Awaitable[bool]]
    address: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)
    folder: Path | None = None
    ready_timeout_s: float = 60.0
    stop_timeout_s: float = 30.0


def delay_s(deaths: int) -> float:
    """How long to wait before the next start after so many deaths in a row.

    >>> [delay_s(n) for n in (1, 2, 3, 10)]
    [0.5, 1.0, 2.0, 15.0]
    """
    return float(min(FIRST_DELAY_S * 2 ** (deaths - 1), LONGEST_DELAY_S))


def describe_exit(code: int) -> str:
    """How a process ended, in words.

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

    def __init__(self, spec: ProcessSpec, tell: Tell, changed: Callable[[], None] = lambda: None) -> None:
        self.spec = spec
        self.starts = 0
        self._tell = tell
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
        """The process as it can be told from any later one, while it runs."""
        return None if self.pid is None else identify(self.pid)

    async def run(self) -> None:
        """Keeps it running until `stop()`; when cancelled it is killed."""
        try:
            await self._keep_running()
        finally:
            self.send(signal.SIGKILL)
            if self._process is not None:
                await self._process.wait()
            self._ended.set()
            self._changed()

    async def wait_ready(self) -> None:
        """Returns when it answers. Raises NotReady when it keeps dying or takes too long."""
        deadline = time.monotonic() + self.spec.ready_timeout_s
        while not (self.pid is not None and await self.spec.is_ready()):
            if self._early_deaths >= ATTEMPTS:
                raise NotReady(f"{self.spec.name} does not start ({self._last_exit}): {self._last_words()}")
            if time.monotonic() > deadline:
                raise NotReady(
                    f"{self.spec.name} was not ready after {self.spec.ready_timeout_s:g} s:"
                    f" {self._last_words()}"
                )
            await asyncio.sleep(READY_POLL_S)
        self._was_ready = True

    async def stop(self) -> None:
        """Ends it in an orderly way, by SIGKILL when that takes too long; it is not started again."""
        await self._end(signal.SIGTERM, self.spec.stop_timeout_s)

    async def kill(self, *, restart: bool = True) -> None:
        """Ends it with SIGKILL and returns when it is dead; supervision starts it again unless told."""
        if not restart:
            await self._end(signal.SIGKILL, 10.0)
        elif self._process is not None:
            self.send(signal.SIGKILL)
            await self._process.wait()

    def send(self, number: signal.Signals) -> None:
        """Sends a signal (SIGSTOP and SIGCONT make and unmake a zombie); nothing when it is not running."""
        if self._process is not None and self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(number)

    async def _end(self, number: signal.Signals, timeout_s: float) -> None:
        self._stopping.set()
        if self.starts == 0:
            return
        self.send(number)
        self.send(signal.SIGCONT)
        try:
            await asyncio.wait_for(self._ended.wait(), timeout_s)
        except TimeoutError:
            self._tell(self.spec.name, f"did not stop within {timeout_s:g} s, is killed")
            self.send(signal.SIGKILL)
            await self._ended.wait()

    async def _keep_running(self) -> None:
        deaths = 0
        while not self._stopping.is_set():
            began = time.monotonic()
            code = await self._run_once()
            if self._stopping.is_set():
                return
            deaths = 1 if time.monotonic() - began > HEALTHY_AFTER_S else deaths + 1
            self._last_exit = describe_exit(code)
            self._early_deaths += not self._was_ready
            self._tell(self.spec.name, f"died ({self._last_exit}), starts again in {delay_s(deaths):g} s")
            self._changed()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), delay_s(deaths))

    async def _run_once(self) -> int:
        self.spec.log.parent.mkdir(parents=True, exist_ok=True)
        _turn_over(self.spec.log)
        with self.spec.log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *on_leash(self.spec.argv),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=dict(self.spec.environment),
                cwd=self.spec.folder,
                start_new_session=True,
            )
        self.starts += 1
        self._changed()
        if self._stopping.is_set():
            self.send(signal.SIGTERM)
        return await self._process.wait()

    def _last_words(self) -> str:
        try:
            lines = self.spec.log.read_text(errors="replace").strip().splitlines()
        except OSError:
            lines = []
        words = f"{lines[-1][:300]} " if lines else ""
        return f"{words}(log: {self.spec.log})"


def _turn_over(log: Path) -> None:
    with contextlib.suppress(OSError):
        if log.stat().st_size > LOG_LIMIT_BYTES:
            log.replace(log.with_suffix(".old.log"))
