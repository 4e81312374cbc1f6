"""The lake on real Kafka: the table equals the topic, even after the driver is killed."""

from __future__ import annotations

import asyncio
import functools
import random
import signal
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from services.control.spark.audit.job import audit
from services.control.spark.lake.checksums import day_sums
from services.control.spark.lake.job import lake
from services.control.spark.lake.positions import newest_note
from services.control.spark.lake.table import LakeTable
from services.control.spark.run.request import ZooKeeperPlace
from services.control.tables.lake import Lake
from services.control.tables.positions import LakePositions
from shared.model.group import GroupSettings
from tests.e2e.fleet import new_seed
from tests.lake import DAY_MS, NOON_MS, hidden_files, record_of, session_record
from tests.spark import Pipeline, closed_log
from tests.spark_control import LOCK_TIMEOUT_S
from tests.spark_driver import StartDriver

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HOUR_MS = 3_600_000


def _table_ids(spark: SparkSession, table: Path) -> list[str]:
    return sorted(row.id for row in spark.read.format("delta").load(str(table)).collect())


def _files(table: Path) -> set[Path]:
    return set(table.rglob("*.parquet"))


def _is_above(count: Callable[[], int], before: int) -> bool:
    return count() > before


async def test_the_table_holds_every_session_once_and_as_delivered(
    spark: SparkSession, kafka: str, namespace: str, tmp_path: Path
) -> None:
    """Duplicates appear once, a second run adds nothing, fragments keep their bytes, 2 MB sessions fit.

    The note has the number and the checksums of just these rows.
    """
    pipeline = Pipeline(kafka=kafka, namespace=namespace, settings=GroupSettings(delivery="at_least_once"))
    await pipeline.create()
    odd = b'{"key": "odd",  "data": {"n": 1.000000000000000000001e+2, "n": "\\u00e9"}} '
    template, value = session_record("odd", 7)
    spelled = value[: value.index(b'"data":[') + 8] + odd + b"]}"
    big = session_record("big", 9, paths=("/" + "x" * 31_000,) * 55)
    late = session_record("b", 2, opened_at=NOON_MS + DAY_MS, first_time=NOON_MS - DAY_MS)
    await pipeline.deliver([session_record("a", 1), (template, spelled), big], partition=0)
    await pipeline.deliver([session_record("a", 1), late], partition=1)

    first = await asyncio.to_thread(lake, spark, pipeline.request("lake", tmp_path))
    await pipeline.deliver([late, session_record("c", 3)], partition=0)
    second = await asyncio.to_thread(lake, spark, pipeline.request("lake", tmp_path))
    third = await asyncio.to_thread(lake, spark, pipeline.request("lake", tmp_path))

    assert (first["sessions"], second["sessions"], third["sessions"]) == (4, 5, 5)
    assert (first["duplicates"], second["duplicates"], third["commits"]) == (1, 1, 0)
    table = spark.read.format("delta").load(pipeline.request("lake", tmp_path).table("sessions"))
    rows = {row.key: row for row in table.collect()}
    assert len(rows) == table.count() == 5
    assert rows["odd"].data == [odd.decode()]
    assert [len(one) for one in rows["big"].data] == [31_033] * 55
    assert (rows["b"].day.isoformat(), rows["b"].first_time) == ("2023-11-16", NOON_MS - DAY_MS)
    assert (rows["b"].topic_partition, rows["b"].topic_offset, rows["b"].log) == (1, 1, 0)
    sums = table.selectExpr("sum(fragments) AS fragments", "sum(bytes) AS bytes").first()
    assert sums is not None
    noted = newest_note(LakeTable(spark, third["table"]), third["version"], "default").note
    assert noted is not None
    assert noted.sums is not None
    # the lake's checksums are of the records, before Spark, Arrow and Parquet
    assert noted.sums.differences(day_sums(table)) == {}
    assert {day: rows for day, (rows, _) in noted.sums.spans.items()} == {"2023-11-15": 4, "2023-11-16": 1}
    assert (third["fragments"], third["bytes"]) == (sums.fragments, sums.bytes)
    held = LakePositions(Lake(str(tmp_path), namespace)).read({"default"})
    offsets = {int(partition): offset for partition, offset in third["offsets"].items()}
    assert held == {("default", third["topic_id"]): offsets}


async def test_what_at_most_once_has_lost_is_permitted(
    spark: SparkSession, kafka: str, namespace: str, tmp_path: Path
) -> None:
    """The lake holds what was delivered, once; the audit finds the loss, and that the delivery permits it."""
    settings = GroupSettings(delivery="at_most_once")
    pipeline = Pipeline(kafka=kafka, namespace=namespace, settings=settings)
    await pipeline.create()
    await pipeline.send(closed_log(60, 6, step_ms=1000))
    sessions, positions = await pipeline.sessions()
    kept = [(session.key.encode(), value) for session, value in sessions][1:]
    await pipeline.deliver(kept)
    await pipeline.commit(positions)

    held = await asyncio.to_thread(lake, spark, pipeline.request("lake", tmp_path))
    again = await asyncio.to_thread(lake, spark, pipeline.request("lake", tmp_path))
    judged = await asyncio.to_thread(audit, spark, pipeline.request("audit", tmp_path))

    assert (held["added"], held["duplicates"], again["commits"]) == (len(kept), 0, 0)
    assert judged["verdict"] == "within the promise of at_most_once", judged["examples"]
    assert (judged["missing"], judged["delivered"], judged["lake_judged"]) == (1, len(kept), len(kept))

    # no session comes twice, so none is looked for in the table
    await pipeline.deliver([session_record("more", 1_000)])
    with hidden_files(Path(pipeline.request("lake", tmp_path).table("sessions"))):
        more = await asyncio.to_thread(lake, spark, pipeline.request("lake", tmp_path))
    assert more["added"] == 1


async def test_only_files_that_may_hold_a_copy_are_compared(
    spark: SparkSession, kafka: str, namespace: str, tmp_path: Path
) -> None:
    """Of one day: not those in which the stream has other offsets, although those of other streams are near;
    nor those of earlier hours, whatever their streams and offsets.
    """
    pipeline = Pipeline(kafka=kafka, namespace=namespace, settings=GroupSettings(delivery="at_least_once"))
    await pipeline.create()
    request = pipeline.request("lake", tmp_path)
    table = Path(request.table("sessions"))

    def record(stream: int, offset: int, opened_at: int) -> tuple[bytes, bytes]:
        return record_of("k", [b'{"key":"k"}'], offset, (opened_at,) * 3, stream=stream)

    async def added(*records: tuple[bytes, bytes], but: Sequence[Path] = ()) -> tuple[int, int]:
        """What is new, and what is held already, with all files hidden but these."""
        for n, one in enumerate(records):
            await pipeline.deliver([one], partition=n)
        with hidden_files(table, *but):
            result = await asyncio.to_thread(lake, spark, request)
        return result["added"], result["duplicates"]

    await added(record(0, 1, NOON_MS), record(1, 1_000, NOON_MS))
    # between 500 and 2000 lies an offset that the table has, but of stream 1
    assert await added(record(0, 500, NOON_MS), record(1, 2_000, NOON_MS)) == (2, 0)
    # one file with both streams, from 600 to 2100
    await pipeline.deliver([record(0, 600, NOON_MS), record(1, 2_100, NOON_MS)])
    assert await added() == (2, 0)
    later = record(0, 700, NOON_MS + HOUR_MS), record(1, 2_200, NOON_MS + HOUR_MS)
    before = _files(table)
    assert await added(*later) == (2, 0)

    new = sorted(_files(table) - before)
    assert await added(later[0], record(1, 2_201, NOON_MS + HOUR_MS), but=new) == (1, 1)


async def test_a_driver_killed_at_any_moment_leaves_each_session_once(
    spark: SparkSession, kafka: str, zookeeper: str, namespace: str, tmp_path: Path, start_driver: StartDriver
) -> None:
    """SIGKILL before a batch is written, with its files written, or with it committed but not reported.

    The seed chooses; `make kill-matrix` has every moment. The next run waits for the lock of the dead one.
    """
    chance = random.Random(new_seed())
    pipeline = Pipeline(kafka=kafka, namespace=namespace)
    await pipeline.create()
    request = pipeline.request("lake", tmp_path / "lake")
    sessions = Path(request.table("sessions"))
    place = ZooKeeperPlace(servers=zookeeper, timeout_s=LOCK_TIMEOUT_S)
    delivered = [session_record(f"k{n % 7}", n) for n in range(400)]
    await pipeline.deliver(delivered[:200], partition=0)
    await asyncio.to_thread(lake, spark, request)
    await pipeline.deliver(delivered[200:], partition=1)

    def commits() -> int:
        return len(list((sessions / "_delta_log").glob("*.json")))

    def files() -> int:
        return len(_files(sessions))

    killed = start_driver(tmp_path / "killed", msgspec.structs.replace(request, id="killed", zookeeper=place))
    moments: dict[str, Callable[[], bool]] = {
        "ready": (killed.run / "driver.json").exists,
        "files": functools.partial(_is_above, files, files()),
        "commit": functools.partial(_is_above, commits, commits()),
    }
    moment = chance.choice(sorted(moments))
    print(f"killed at {moment!r}")
    await asyncio.to_thread(killed.wait_until, moments[moment])
    killed.signal(signal.SIGKILL)
    assert killed.wait() == -signal.SIGKILL
    last = start_driver(tmp_path / "last", msgspec.structs.replace(request, id="last", zookeeper=place))

    assert await asyncio.to_thread(last.wait) == 0, last.log()
    assert _table_ids(spark, sessions) == sorted(msgspec.json.decode(value)["id"] for _, value in delivered)
    assert sorted(path.name for path in last.run.iterdir()) == [
        *("driver.json", "driver.log", "request.json", "result.json")
    ]
    reported = msgspec.json.decode((last.run / "driver.json").read_bytes())
    assert reported["ui"].startswith("http://127.0.0.1:")
    assert msgspec.json.decode((last.run / "result.json").read_bytes())["sessions"] == len(delivered)


def test_sigterm_ends_driver_and_java_at_once(
    kafka: str, namespace: str, tmp_path: Path, start_driver: StartDriver
) -> None:
    """Two seconds after SIGTERM to its group, no process of it runs and its work folder is gone."""
    pipeline = Pipeline(kafka=kafka, namespace=namespace)
    driver = start_driver(tmp_path / "run", pipeline.request("lake", tmp_path / "lake"))
    driver.wait_until((driver.run / "driver.json").exists)

    driver.signal(signal.SIGTERM)

    assert driver.wait() != 0
    deadline = time.monotonic() + 2
    while driver.live_processes() and time.monotonic() < deadline:
        time.sleep(0.02)
    assert driver.live_processes() == []
    assert not (driver.run / "work").exists()


def test_a_failed_run_reports_why(tmp_path: Path, start_driver: StartDriver) -> None:
    """`error.json` holds a condition and one sentence; the exit code is 1."""
    pipeline = Pipeline(kafka="127.0.0.1:1", namespace="")
    driver = start_driver(tmp_path / "run", pipeline.request("dance", tmp_path / "lake"))

    assert driver.wait() == 1
    assert msgspec.json.decode((driver.run / "error.json").read_bytes()) == {
        "condition": "NotFound",
        "message": "there is no job 'dance', only audit, lake, maintain, reports",
    }
