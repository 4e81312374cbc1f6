"""Runs of real Spark jobs: one at a time for each job of a group, and none sees another's state."""

from __future__ import annotations

import asyncio
import signal
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import msgspec
import pytest

from services.control.spark.run.request import RunRequest, ZooKeeperPlace
from tests.lake import session_record
from tests.spark import Pipeline
from tests.spark_control import LOCK_TIMEOUT_S
from tests.spark_driver import StartDriver
from tests.waiting import until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


async def test_a_driver_that_stood_still_commits_nothing_after_its_successor(
    spark: SparkSession, kafka: str, zookeeper: str, namespace: str, tmp_path: Path, start_driver: StartDriver
) -> None:
    """SIGSTOP past the end of its lock: the next run begins and ends; then the first wakes up, and fails."""
    pipeline = Pipeline(kafka=kafka, namespace=namespace)
    await pipeline.create()
    await pipeline.deliver([session_record(f"k{n}", n) for n in range(50)])
    request = msgspec.structs.replace(
        pipeline.request("lake", tmp_path / "lake"),
        zookeeper=ZooKeeperPlace(servers=zookeeper, timeout_s=LOCK_TIMEOUT_S),
    )

    first = start_driver(tmp_path / "first", request)
    await asyncio.to_thread(first.wait_until, (first.run / "driver.json").exists)
    first.signal(signal.SIGSTOP)
    second = start_driver(tmp_path / "second", msgspec.structs.replace(request, id="run-2"))
    assert await asyncio.to_thread(second.wait) == 0, second.log()
    ids = _delivered_ids(spark, request)
    first.signal(signal.SIGCONT)

    assert len(ids) == 50
    assert await asyncio.to_thread(first.wait) == 1, first.log()
    assert msgspec.json.decode((first.run / "error.json").read_bytes())["condition"] == "LockLost"
    assert _delivered_ids(spark, request) == ids


def _delivered_ids(spark: SparkSession, request: RunRequest) -> list[str]:
    return sorted(row.id for row in spark.read.format("delta").load(request.table("sessions")).collect())


async def test_a_driver_whose_spark_has_stopped_takes_no_run(spark: SparkSession, tmp_path: Path) -> None:
    """As when the master has removed its application: its Java still lives."""
    from services.control.spark.driver.warm_spark import DriverSpark

    driver = DriverSpark(tmp_path)
    driver._spark = spark
    was_fit = driver.is_fit()
    stopped = SimpleNamespace(isStopped=lambda: True)
    context = SimpleNamespace(_jsc=SimpleNamespace(sc=lambda: stopped))
    driver._spark = cast("SparkSession", SimpleNamespace(sparkContext=context))

    assert was_fit
    assert not driver.is_fit()


async def test_a_run_that_gets_no_executor_says_so(spark: SparkSession, tmp_path: Path) -> None:
    """It waits for half of its time limit, while others use all of the cores, and leaves no task behind."""
    from services.control.spark.driver.warm_spark import DriverSpark, NoExecutor

    context, held = spark.sparkContext, tmp_path / "held"
    held.touch()

    def hold(_: object) -> None:
        while held.exists():
            time.sleep(0.01)

    driver = DriverSpark(tmp_path)
    driver._spark = spark
    pipeline = Pipeline(kafka="127.0.0.1:1", namespace="")
    request = pipeline.request("lake", tmp_path)
    hurried = msgspec.structs.replace(request, timeout_s=2.0)
    others = threading.Thread(target=context.parallelize(range(2), 2).foreachPartition, args=(hold,))
    others.start()
    try:
        await until(lambda: context.statusTracker().getActiveJobsIds())
        with pytest.raises(NoExecutor, match="for 1 s"):
            driver.await_executor(hurried)
    finally:
        held.unlink()
        others.join()
    driver.await_executor(request)
    # Spark notes the end of a job a moment after it
    await until(lambda: not context.statusTracker().getActiveJobsIds())


async def test_a_run_knows_nothing_of_the_one_before(spark: SparkSession, tmp_path: Path) -> None:
    """Neither its settings nor its views nor what it has cached."""
    from services.control.spark.driver.warm_spark import DriverSpark

    driver = DriverSpark(tmp_path)
    driver._spark = spark
    request = Pipeline(kafka="127.0.0.1:1", namespace="").request("lake", tmp_path)

    with driver.session(request) as first:
        first.conf.set("spark.sql.shuffle.partitions", "3")
        first.range(5).createOrReplaceTempView("arrived")
        first.range(5).persist().count()
        first.sparkContext.parallelize([1]).persist().count()
    with driver.session(request) as second:
        cached = second.sparkContext._jsc.getPersistentRDDs().size()
        views = [table.name for table in second.catalog.listTables()]
        partitions = second.conf.get("spark.sql.shuffle.partitions")

    assert (cached, views) == (0, [])
    assert partitions == spark.conf.get("spark.sql.shuffle.partitions") != "3"
