"""Executes a run, and possibly others after it: `python -m services.control.spark.driver <run folder>`.

Reads `request.json`, starts Spark, writes the address of its UI to `driver.json`, runs the job's program, and
writes `result.json` or, with exit code 1, `error.json`. Each file appears whole, by a rename. If the request
says so, the driver then waits for another run, which need not start Spark. SIGTERM ends it and its JVM at
once. Control's runner starts it; you can also start it by hand.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import logging
import os
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from services.control.spark.audit.job import audit
from services.control.spark.driver.folder import DRIVERS, DriverFolder
from services.control.spark.driver.java import end_java, find_loss
from services.control.spark.driver.output import RunOutput
from services.control.spark.driver.warm_spark import LOCAL_NICE, DriverSpark
from services.control.spark.kafka.client import check_access
from services.control.spark.lake.job import lake
from services.control.spark.lake.maintain import maintain
from services.control.spark.reports.job import reports
from services.control.spark.run.lock import CheckLock, held_lock, release_locks
from services.control.spark.run.request import Result, RunRequest, read_request
from shared.errors import BatonError, NotFound

PROGRAMS: dict[str, Callable[[SparkSession, RunRequest, CheckLock], Result]] = {
    "lake": lake,
    "reports": reports,
    "audit": audit,
    "maintain": maintain,
}
MOST_MESSAGE = 600
logger = logging.getLogger("driver")


def main(arguments: list[str]) -> int:
    """Executes the run in the folder that is the only argument, and those after it. Returns the exit code."""
    is_help = arguments in (["-h"], ["--help"])
    if is_help or len(arguments) != 1 or arguments[0].startswith("-"):
        usage = "usage: python -m services.control.spark.driver <run folder>"
        print(usage, file=sys.stdout if is_help else sys.stderr)
        return 0 if is_help else 2
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    run = Path(arguments[0]).resolve()
    try:
        first = read_request(run)
    except BatonError as error:
        return _fail(run, error)
    if first.is_local:
        _give_way()
    folder = DriverFolder(Path(first.driver) if first.driver else run)
    signal.signal(signal.SIGTERM, lambda number, frame: _leave(folder))
    try:
        return _work(run, folder, first.idle_s if first.driver else 0.0)
    finally:
        end_java()
        _remove(folder)


def _give_way() -> None:
    """Lets the services on this machine go first where Linux gives each session of processes the same share.

    Within the session Java has a lower priority than this process (see `LOCAL_NICE`).
    """
    with contextlib.suppress(OSError):
        Path("/proc/self/autogroup").write_text(str(LOCAL_NICE))


def _work(run: Path, folder: DriverFolder, idle_s: float) -> int:
    """Executes runs until none follows, or one fails: after a failure Spark may be in any state."""
    spark = DriverSpark(folder.work)
    if not idle_s:
        return _one_run(run, spark, lambda: None)
    output = RunOutput()
    following: Path | None = run
    try:
        while following is not None:
            run = following
            folder.work_on(run.name)
            begin = functools.partial(folder.work_on, run.name, has_begun=True)
            if code := _one_run(run, spark, begin):
                return code
            following = folder.await_next(run.name, idle_s, spark.lives)
            if following is not None:
                if not spark.is_fit():
                    return 0  # the run has not begun, so control gives it to another driver
                output.switch(following / "driver.log")
        return 0
    finally:
        output.close()


def _one_run(run: Path, spark: DriverSpark, begin: Callable[[], None]) -> int:
    try:
        request = read_request(run)
        program = PROGRAMS.get(request.job)
        if program is None:
            raise NotFound(f"there is no job {request.job!r}, only {', '.join(sorted(PROGRAMS))}")
        asyncio.run(check_access(request.kafka))
        with _ready(request, spark, begin) as (session, check_lock):
            _publish(run / "driver.json", {"pid": os.getpid(), **spark.whereabouts()})
            result = program(session, request, check_lock)
            check_lock()
            _publish(run / "result.json", result)
    except Exception as error:
        logger.exception("run failed")
        return _fail(run, find_loss(error) or error)
    return 0


@contextlib.contextmanager
def _ready(
    request: RunRequest, spark: DriverSpark, begin: Callable[[], None]
) -> Iterator[tuple[SparkSession, CheckLock]]:
    """The run's session, and the check of its lock; `begin` is called before the run waits for its lock.

    On a cluster the lock comes last: a run that waits for executors must not hold up others. On a local
    master it comes first: a run that waits for its lock need not hold Java's memory.
    """
    if request.is_local:
        begin()
        with held_lock(request) as check_lock, spark.session(request) as session:
            yield session, check_lock
    else:
        with spark.session(request) as session:
            spark.await_executor(request)
            begin()
            with held_lock(request) as check_lock:
                yield session, check_lock


def _fail(run: Path, error: Exception) -> int:
    _publish(run / "error.json", describe_error(error))
    return 1


def describe_error(error: Exception) -> dict[str, str]:
    """The content of `error.json`: Spark's condition or the error's type, and one sentence."""
    condition, message = type(error).__name__, str(error)
    if isinstance(error, PySparkException):
        condition = error.getCondition() or condition
    elif isinstance(error, Py4JJavaError):
        condition = str(error.java_exception.getClass().getSimpleName())
        message = str(error.java_exception.getMessage())
    elif isinstance(error, BatonError):
        message = error.detail
    first = next((line.strip() for line in message.splitlines() if line.strip()), condition)
    return {"condition": condition, "message": first[:MOST_MESSAGE]}


def _publish(path: Path, content: dict[str, Any]) -> None:
    """Writes the file so that it appears whole or not at all."""
    unfinished = path.with_suffix(".tmp")
    unfinished.write_text(json.dumps(content, ensure_ascii=False))
    unfinished.replace(path)


def _remove(folder: DriverFolder) -> None:
    shutil.rmtree(folder.work, ignore_errors=True)
    if folder.path.parent.name == DRIVERS:
        shutil.rmtree(folder.path, ignore_errors=True)


def _leave(folder: DriverFolder) -> None:
    release_locks()
    end_java()
    _remove(folder)
    if os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGKILL)  # includes a JVM that is still starting
    os._exit(128 + signal.SIGTERM)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
