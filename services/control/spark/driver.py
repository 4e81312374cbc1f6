"""One run of one job: `python -m services.control.spark.driver <run folder>`.

Reads `request.json`, starts Spark, writes the address of its UI to `driver.json`, runs the job's program, and
writes `result.json` or, with exit code 1, `error.json`. Each file appears whole, by a rename. SIGTERM ends
the driver and its JVM at once. Control's runner starts it; it also runs by hand.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from services.control.spark.audit import audit
from services.control.spark.kafka_client import check_access, java_properties
from services.control.spark.lake import lake
from services.control.spark.reports import reports
from services.control.spark.request import Result, RunRequest, read_request
from services.control.spark.spark_session import start_spark
from shared.errors import BatonError, NotFound

PROGRAMS: dict[str, Callable[[SparkSession, RunRequest], Result]] = {
    "lake": lake,
    "reports": reports,
    "audit": audit,
}
MOST_MESSAGE = 600
logger = logging.getLogger("driver")


def main(arguments: list[str]) -> int:
    """Runs the job in the folder that is the only argument. Returns the exit code."""
    is_help = arguments in (["-h"], ["--help"])
    if is_help or len(arguments) != 1 or arguments[0].startswith("-"):
        usage = "usage: python -m services.control.spark.driver <run folder>"
        print(usage, file=sys.stdout if is_help else sys.stderr)
        return 0 if is_help else 2
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    run = Path(arguments[0]).resolve()
    work = run / "work"
    signal.signal(signal.SIGTERM, lambda number, frame: _leave(work))
    try:
        _publish(run / "result.json", _run(run, work))
    except Exception as error:
        logger.exception("run failed")
        _publish(run / "error.json", describe_error(error))
        return 1
    finally:
        _end_java()
        shutil.rmtree(work, ignore_errors=True)
    return 0


def _run(run: Path, work: Path) -> Result:
    request = read_request(run)
    program = PROGRAMS.get(request.job)
    if program is None:
        raise NotFound(f"there is no job {request.job!r}, only {', '.join(sorted(PROGRAMS))}")
    name = f"baton {request.job} {request.group} {request.id}"
    asyncio.run(check_access(request.kafka))
    properties = java_properties(request.kafka)
    spark = start_spark(name=name, master=request.master, jars=request.jars, work=work, properties=properties)
    context = spark.sparkContext
    _publish(
        run / "driver.json",
        {"pid": os.getpid(), "ui": context.uiWebUrl, "application": context.applicationId},
    )
    return program(spark, request)


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


def _end_java() -> None:
    """Kills the JVM instead of waiting for its slow shutdown: everything is committed by now."""
    process = getattr(SparkContext._gateway, "proc", None)
    if process is not None and process.poll() is None:
        process.kill()
        process.wait()


def _leave(work: Path) -> None:
    _end_java()
    shutil.rmtree(work, ignore_errors=True)
    if os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGKILL)  # includes a JVM that is still starting
    os._exit(128 + signal.SIGTERM)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
