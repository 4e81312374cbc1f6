"""The lake and the reports on real Kafka: the table equals the topic, even after the driver is killed."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest

from services.control.spark.lake import lake
from services.control.spark.reports import reports
from services.control.spark.request import RunRequest
from shared.errors import NotFound
from shared.model.sessions import Session, encode_session, session_id
from tests.spark import Pipeline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RUN_TIMEOUT_S = 400.0
PROJECT = Path(__file__).resolve().parents[2]
DAY = 86_400_000
NOON = 1_700_049_600_000  # 2023-11-15T12:00:00Z


def _session(
    key: str, first_offset: int, *, at: int = NOON, seconds: int = 60, paths: tuple[str, ...] = ("/a",)
) -> tuple[bytes, bytes]:
    """A session's record: one fragment per path."""
    data = [msgspec.json.encode({"key": key, "data": {"path": path}}) for path in paths]
    session = Session(
        id=session_id("default", 0, key, first_offset),
        group="default",
        key=key,
        stream=0,
        epoch=1,
        first_offset=first_offset,
        last_offset=first_offset + len(data) - 1,
        first_time=at,
        last_time=at + seconds * 1000,
        opened_at=at,
        closed_at=at,
        fragments=len(data),
        bytes=sum(len(raw) for raw in data),
        reason="end" if key == "ender" else "gap",
        data=[],
    )
    return key.encode(), encode_session(session, data)


def _table_ids(spark: SparkSession, lake_folder: Path) -> list[str]:
    return sorted(row.id for row in spark.read.format("delta").load(f"{lake_folder}/sessions").collect())


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

    def wait_until(self, has_happened: Callable[[], bool]) -> None:
        """Waits for the condition; fails if the driver ends first."""
        deadline = time.monotonic() + RUN_TIMEOUT_S
        while not has_happened():
            assert self._process.poll() is None, self.log()
            assert time.monotonic() < deadline, self.log()
            time.sleep(0.002)

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


def _process_stats() -> Iterator[str]:
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            yield path.read_text()


async def test_the_table_holds_every_session_once_and_as_delivered(
    spark: SparkSession, kafka: str, namespace: str, tmp_path: Path
) -> None:
    """Duplicates appear once, a second run adds nothing, fragments keep their bytes, 2 MB sessions fit."""
    pipeline = Pipeline(kafka=kafka, namespace=namespace)
    await pipeline.create()
    odd = b'{"key": "odd",  "data": {"n": 1.000000000000000000001e+2, "n": "\\u00e9"}} '
    template, value = _session("odd", 7)
    spelled = value[: value.index(b'"data":[') + 8] + odd + b"]}"
    big = _session("big", 9, paths=("/" + "x" * 31_000,) * 55)
    await pipeline.deliver([_session("a", 1), (template, spelled), big], partition=0)
    await pipeline.deliver([_session("a", 1), _session("b", 2, at=NOON + DAY)], partition=1)

    first = await asyncio.to_thread(lake, spark, pipeline.request("lake", tmp_path))
    await pipeline.deliver([_session("b", 2, at=NOON + DAY), _session("c", 3)], partition=0)
    second = await asyncio.to_thread(lake, spark, pipeline.request("lake", tmp_path))
    third = await asyncio.to_thread(lake, spark, pipeline.request("lake", tmp_path))

    assert (first["sessions"], second["sessions"], third["sessions"]) == (4, 5, 5)
    assert third["commits"] == 0
    rows = {row.key: row for row in spark.read.format("delta").load(f"{tmp_path}/sessions").collect()}
    assert rows["odd"].data == [odd.decode()]
    assert [len(one) for one in rows["big"].data] == [31_033] * 55
    assert (rows["b"].day.isoformat(), rows["b"].first_time) == ("2023-11-16", NOON + DAY)


async def test_a_driver_killed_at_any_moment_leaves_each_session_once(
    spark: SparkSession, kafka: str, namespace: str, tmp_path: Path
) -> None:
    """SIGKILL with a batch planned, with it in the table but not recorded, and with the next one planned."""
    pipeline = Pipeline(kafka=kafka, namespace=namespace)
    await pipeline.create()
    folder = tmp_path / "lake"
    checkpoint = folder / "_checkpoints" / "sessions.default"
    log = folder / "sessions" / "_delta_log"
    moments: list[Callable[[], bool]] = [
        lambda: (checkpoint / "offsets" / "0").exists(),
        lambda: (log / f"{1:020d}.json").exists(),
        lambda: (checkpoint / "offsets" / "1").exists(),
    ]

    delivered = []
    for number, moment in enumerate(moments):
        part = [_session(f"k{n % 7}", 1000 * number + n) for n in range(200)]
        delivered += part
        await pipeline.deliver(part, partition=number % 2)
        driver = Driver(tmp_path / f"run{number}", pipeline.request("lake", folder))
        await asyncio.to_thread(driver.wait_until, moment)
        driver.signal(signal.SIGKILL)
        assert driver.wait() == -signal.SIGKILL
    last = Driver(tmp_path / "last", pipeline.request("lake", folder))

    assert await asyncio.to_thread(last.wait) == 0, last.log()
    assert _table_ids(spark, folder) == sorted(msgspec.json.decode(value)["id"] for _, value in delivered)
    assert sorted(path.name for path in last.run.iterdir()) == [
        *("driver.json", "driver.log", "request.json", "result.json")
    ]
    reported = msgspec.json.decode((last.run / "driver.json").read_bytes())
    assert reported["ui"].startswith("http://127.0.0.1:")
    assert msgspec.json.decode((last.run / "result.json").read_bytes())["sessions"] == len(delivered)


def test_sigterm_ends_driver_and_java_at_once(kafka: str, namespace: str, tmp_path: Path) -> None:
    """Two seconds after SIGTERM to its group, no process of it runs and its work folder is gone."""
    pipeline = Pipeline(kafka=kafka, namespace=namespace)
    driver = Driver(tmp_path / "run", pipeline.request("lake", tmp_path / "lake"))
    driver.wait_until((driver.run / "driver.json").exists)

    driver.signal(signal.SIGTERM)

    assert driver.wait() != 0
    deadline = time.monotonic() + 2
    while driver.live_processes() and time.monotonic() < deadline:
        time.sleep(0.02)
    assert driver.live_processes() == []
    assert not (driver.run / "work").exists()


def test_a_failed_run_reports_why(tmp_path: Path) -> None:
    """`error.json` holds a condition and one sentence; the exit code is 1."""
    pipeline = Pipeline(kafka="127.0.0.1:1", namespace="")
    driver = Driver(tmp_path / "run", pipeline.request("dance", tmp_path / "lake"))

    assert driver.wait() == 1
    assert msgspec.json.decode((driver.run / "error.json").read_bytes()) == {
        "condition": "NotFound",
        "message": "there is no job 'dance', only audit, lake, reports",
    }


def test_reports_need_a_lake(spark: SparkSession, tmp_path: Path) -> None:
    """Without the table, the error says which job to run first."""
    request = Pipeline(kafka="127.0.0.1:1", namespace="").request("reports", tmp_path)

    with pytest.raises(NotFound, match="run the job `lake` first"):
        reports(spark, request)


async def test_reports_match_the_sessions(
    spark: SparkSession, kafka: str, namespace: str, tmp_path: Path
) -> None:
    """Counts, exact percentiles, reasons, new and returning keys, and items, against results by hand."""
    pipeline = Pipeline(kafka=kafka, namespace=namespace)
    await pipeline.create()
    await pipeline.deliver(
        [
            _session("a", 1, seconds=10, paths=("/in", "/x", "/x", "/out")),
            _session("b", 2, seconds=20, paths=("/x",)),
            _session("ender", 3, at=NOON + 3_600_000, seconds=40, paths=("/in", "/out")),
            _session("a", 9, at=NOON + DAY, seconds=0, paths=("/in",)),
        ]
    )
    await asyncio.to_thread(lake, spark, pipeline.request("lake", tmp_path))

    result = await asyncio.to_thread(reports, spark, pipeline.request("reports", tmp_path, top=2))

    first, second = result["days"]
    expected = {"start": "2023-11-15T00:00:00Z", "sessions": 3, "fragments": 7, "keys_new": 3}
    expected |= {"keys_returning": 0, "ended_end": 1, "ended_gap": 2, "ended_limit": 0}
    expected |= {"duration_ms_p50": 20_000.0, "duration_ms_p90": 36_000.0, "length_p50": 2.0}
    assert {name: first[name] for name in expected} == expected
    assert (second["keys_new"], second["keys_returning"]) == (0, 1)
    assert [(hour["start"][:13], hour["sessions"]) for hour in result["hours"]] == [
        *(("2023-11-15T12", 2), ("2023-11-15T13", 1), ("2023-11-16T12", 1))
    ]
    assert [(row["item"], row["count"], row["sessions"]) for row in result["items"]] == [
        *(("/in", 3, 3), ("/x", 3, 2))
    ]
    assert [(row["item"], row["count"]) for row in result["entries"]] == [("/in", 3), ("/x", 1)]
    assert [(row["item"], row["count"]) for row in result["exits"]] == [("/out", 2), ("/in", 1)]
