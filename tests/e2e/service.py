"""One process of the project as a user starts it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cli.stack.processes.leash import on_leash
from tests.waiting import until

CHECKOUT = Path(__file__).parents[2]
LOG_TAIL = 1500
"""Characters of a log that a failed test shows."""
TASKS_S = 5.0


class Service:
    """A process that dies with the test; SIGUSR1 makes it print the stacks of its tasks (`traced.py`)."""

    def __init__(self, module: str, log: Path, environment: Mapping[str, str]) -> None:
        self._argv = on_leash([sys.executable, "-m", "tests.e2e.traced", module])
        self._log = log
        self.checkout = CHECKOUT
        """Whose code its next start runs."""
        self._environment = {**os.environ, **environment}
        self._process: subprocess.Popen[bytes] | None = None
        self.has_sigterm = False
        """Whether it got SIGTERM since its last start; a second one would end it at once."""

    @property
    def is_running(self) -> bool:
        """Whether its process exists, stopped or not."""
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        """The process id of its newest process."""
        assert self._process is not None
        return self._process.pid

    def start(self, **environment: str) -> None:
        """Starts it, this once with more environment; it must not be running."""
        assert not self.is_running
        self.has_sigterm = False
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._argv,
                cwd=self.checkout,
                env=self._environment | {"PYTHONPATH": str(self.checkout)} | environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def signal(self, number: signal.Signals) -> None:
        """Sends a signal."""
        assert self._process is not None
        self.has_sigterm |= number == signal.SIGTERM
        self._process.send_signal(number)

    async def ended(self) -> int:
        """Its exit code, once it has ended."""
        await until(lambda: not self.is_running, lambda: f"it does not end:\n{self.tasks()}")
        assert self._process is not None
        return self._process.returncode

    async def stopped(self) -> None:
        """Returns once SIGSTOP has stopped it."""
        pid, how = self.pid, os.WSTOPPED | os.WNOHANG | os.WNOWAIT
        await until(lambda: os.waitid(os.P_PID, pid, how) is not None, lambda: f"it runs on:\n{self.tail()}")

    def tasks(self) -> str:
        """The stacks of its tasks, or the end of its log where it does not print them."""
        before = self._log.stat().st_size
        self.signal(signal.SIGUSR1)
        deadline = time.monotonic() + TASKS_S
        while self._log.stat().st_size == before and time.monotonic() < deadline:
            time.sleep(0.1)
        return self._log.read_text(errors="replace")[before:] or self.tail()

    @property
    def log_end(self) -> int:
        """Where its log ends now, for `logged`."""
        return self._log.stat().st_size if self._log.exists() else 0

    def logged(self, message: str, since: int = 0) -> list[dict[str, Any]]:
        """The lines with this message that it has logged since `log_end` was `since`."""
        if not self._log.exists():
            return []
        with self._log.open("rb") as log:
            log.seek(since)
            lines = [line for line in log if message.encode() in line and line.endswith(b"}\n")]
        found = []
        for line in lines:
            with contextlib.suppress(ValueError):  # a killed process may have left half a line before it
                found.append(json.loads(line))
        return [one for one in found if one.get("message") == message]

    def end(self) -> None:
        """Kills it if it still runs."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def tail(self) -> str:
        """The end of its log."""
        return self._log.read_text(errors="replace")[-LOG_TAIL:] if self._log.exists() else "nothing"
