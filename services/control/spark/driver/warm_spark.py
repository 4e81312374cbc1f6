"""A driver's Spark: it starts with the first run, and each run gets a session without the others' state.

Used by `driver/__main__.py`.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from py4j.protocol import Py4JError, Py4JJavaError  # type: ignore[import-untyped]
from pyspark.sql import SparkSession

from services.control.spark.driver.java import java_lives
from services.control.spark.kafka.client import java_properties
from services.control.spark.run.lock import TURN_S
from services.control.spark.run.request import RunRequest
from services.control.spark.session.spark_session import start_spark
from shared.errors import SparkUnavailable

SHARE_OF_WAITING: Final = 0.5
"""The part of its time limit that a run may wait for an executor; the rest is for its work."""
LOCAL_NICE: Final = 5
"""By how much a Java that does all of Spark's work itself gives way: it gets a third of what a service gets.

Not so the driver's Python, which has little to do but must do it in time: its lock would be lost if one of
its threads held the interpreter and waited for its turn behind Java's.
"""


class NoExecutor(SparkUnavailable):
    """The cluster has given the run no executor in time."""


class DriverSpark:
    """Starts Spark when it is first needed, with its temporary files under `work`."""

    def __init__(self, work: Path) -> None:
        self._work = work
        self._spark: SparkSession | None = None

    def __repr__(self) -> str:
        return f"<DriverSpark in {self._work}>"

    @contextlib.contextmanager
    def session(self, request: RunRequest) -> Iterator[SparkSession]:
        """A session for one run; drops what the run leaves behind in Spark. Raises SparkUnavailable."""
        if self._spark is None:
            self._spark = start_spark(
                name=f"baton {request.job} {request.group} {request.id}",
                master=request.master,
                jars=request.jars,
                work=self._work,
                properties=java_properties(request.kafka),
                cluster=request.cluster,
                nice=LOCAL_NICE if request.is_local else 0,
            )
        try:
            yield self._spark.newSession()
        finally:
            with contextlib.suppress(Py4JError, OSError):  # the JVM may have died
                self._forget(self._spark)

    def whereabouts(self) -> dict[str, Any]:
        """Where control finds the progress of a run that begins now; `first_job`: Spark's next job number."""
        assert self._spark is not None
        context = self._spark.sparkContext
        first_job = context._jsc.sc().dagScheduler().numTotalJobs()
        page = urlsplit(context.uiWebUrl)
        # the URL names the host at which executors reach the driver, but its pages may listen on loopback
        ui = f"http://{os.environ.get('SPARK_LOCAL_IP') or page.hostname}:{page.port}"
        return {"ui": ui, "application": context.applicationId, "first_job": first_job}

    def await_executor(self, request: RunRequest) -> None:
        """Waits until an executor has done a first, empty task. Raises NoExecutor."""
        assert self._spark is not None
        wait_s = int((request.timeout_s or TURN_S) * SHARE_OF_WAITING)
        java = self._spark.sparkContext._jvm.java.util
        nothing = java.Collections.singletonList(0)
        task = self._spark.sparkContext._jsc.parallelize(nothing, 1).countAsync()
        try:
            task.get(wait_s, java.concurrent.TimeUnit.SECONDS)
        except Py4JJavaError as error:
            task.cancel(True)
            if error.java_exception.getClass().getSimpleName() != "TimeoutException":
                raise
            raise NoExecutor(
                f"{request.master} has given the run no executor for {wait_s} s: other drivers use its "
                "cores, or no worker has as much memory as an executor needs"
            ) from None

    def lives(self) -> bool:
        """Whether its JVM does; asks only the system, so it may be called often."""
        return self._spark is not None and java_lives()

    def is_fit(self) -> bool:
        """Whether another run can use it. A master that gives up an application stops its Spark."""
        if self._spark is None or not java_lives():
            return False
        with contextlib.suppress(Py4JError, OSError):  # the JVM may be dying
            return not self._spark.sparkContext._jsc.sc().isStopped()
        return False

    @staticmethod
    def _forget(spark: SparkSession) -> None:
        for query in spark.streams.active:
            query.stop()
        spark.catalog.clearCache()
        for rdd in spark.sparkContext._jsc.getPersistentRDDs().values():
            rdd.unpersist(False)
