"""The driver without Spark: it takes the real lock of a run, and its jobs only do what the tests tell them.

A job works for as long as the lake has a file `hold`. Two runs of a job at a time fail; in a lake that is a
URL, any two runs.
"""

from __future__ import annotations

import contextlib
import fcntl
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from services.control.spark.driver import __main__ as driver
from services.control.spark.run.lock import CheckLock
from services.control.spark.run.request import Result, RunRequest

POLL_S = 0.02


class NoSpark:
    """What the driver asks of its Spark."""

    def __init__(self, work: Path) -> None:
        pass

    @contextlib.contextmanager
    def session(self, request: RunRequest) -> Iterator[None]:
        yield

    def whereabouts(self) -> dict[str, Any]:
        return {"ui": None, "application": "", "first_job": 0}

    def lives(self) -> bool:
        return True

    def is_fit(self) -> bool:
        return True


def work(spark: None, request: RunRequest, check_lock: CheckLock) -> Result:
    """Works alone, or raises BlockingIOError. What a killed process has locked is free."""
    scheme, _, path = request.lake.rpartition("://")
    lake = Path(path)
    with (lake / ("any" if scheme else request.job)).with_suffix(".at-work").open("w") as alone:
        fcntl.flock(alone, fcntl.LOCK_EX | fcntl.LOCK_NB)
        (lake / f"{request.id}.began").touch()
        while (lake / "hold").exists():
            time.sleep(POLL_S)
        check_lock()
    return {}


if __name__ == "__main__":
    vars(driver).update(DriverSpark=NoSpark, PROGRAMS={"lake": work, "reports": work})
    sys.exit(driver.main(sys.argv[1:]))
