"""A driver of Spark as a process of its own, as control starts it, for tests that stop and kill it."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from services.control.spark.run.request import RunRequest

RUN_TIMEOUT_S = 400.0
PROJECT = Path(__file__).resolve().parents[1]
StartDriver = Callable[[Path, RunRequest], "Driver"]
"""Starts a driver that the end of the test kills: the fixture `start_driver`."""


class Driver:
    """A driver process in its own process group, as control starts it."""

    def __init__(self, run: Path, request: RunRequest) -> None:
        run.mkdir()
        (run / "request.json").write_bytes(msgspec.json.encode(request))
        self.run = run
        with (run / "driver.log").open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "services.control.spark.driver", str(run)],
                cwd=PROJECT,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def wait_until(self, has_happened: Callable[[], bool], *, every_s: float = 0.002) -> None:
        """Waits for the condition; fails if the driver ends first."""
        deadline = time.monotonic() + RUN_TIMEOUT_S
        while not has_happened():
            assert self._process.poll() is None, self.log()
            assert time.monotonic() < deadline, self.log()
            time.sleep(every_s)

    def wait(self) -> int:
        return self._process.wait(RUN_TIMEOUT_S)

    def signal(self, number: signal.Signals) -> None:
        """Sends the signal to the whole process group."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)

    def live_processes(self) -> list[str]:
        """The live processes of the driver's session."""
        return [
            stat
            for stat in _process_stats()
            if stat.rpartition(")")[2].split()[3] == str(self._process.pid)
            and stat.rpartition(")")[2].split()[0] != "Z"
        ]

    def log(self) -> str:
        return (self.run / "driver.log").read_text()[-4000:]


def java_of(driver: int) -> int:
    """The process of the JVM that a driver has started."""
    stats = [stat for stat in _process_stats() if "(java)" in stat]
    (java,) = [stat.split()[0] for stat in stats if stat.rpartition(")")[2].split()[3] == str(driver)]
    return int(java)


def _process_stats() -> Iterator[str]:
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            yield path.read_text()
