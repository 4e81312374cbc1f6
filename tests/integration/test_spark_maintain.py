"""`maintain` on real tables: it compacts, clusters and vacuums, beside the lake."""

from __future__ import annotations

import asyncio
import os
import re
import time
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from services.control.spark.lake import maintain as upkeep
from services.control.spark.lake.job import lake
from services.control.spark.lake.maintain import maintain
from tests.lake import forget_tables, session_record, table_keys
from tests.spark import LARGE, Pipeline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OLD_LAKE = Path(__file__).parents[1] / "data" / "lake-layout-1.tar.gz"


async def test_maintain_compacts_what_changed_and_removes_what_is_old(
    spark: SparkSession, kafka: str, namespace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A day becomes one file, sorted by key, which is left alone until the day grows. Orphans and replaced
    files go after `keep_days`; younger versions can be read. Here with the settings for large tables.
    """
    monkeypatch.setattr(upkeep, "for_size", lambda _: LARGE)
    pipeline = Pipeline(kafka=kafka, namespace=namespace)
    await pipeline.create()
    request, keeping = pipeline.request("lake", tmp_path), pipeline.request("maintain", tmp_path, keep_days=2)
    for number in range(2):
        await pipeline.deliver(
            [session_record(f"{number}{n}", 10 * number + n) for n in range(3)], partition=0
        )
        await pipeline.deliver([session_record(f"{number}-", 100 + number)], partition=1)
        await asyncio.to_thread(lake, spark, request)
    table = Path(request.table("sessions"))
    day = table / "group=default" / "day=2023-11-15"
    old, young = day / "part-old.parquet", day / "part-young.parquet"
    for orphan, days in ((old, 3), (young, 1)):
        orphan.write_bytes(b"left by a run that was killed")
        at = time.time() - days * 86_400
        os.utime(orphan, (at, at))
    await pipeline.deliver([session_record("beside", 500)], partition=0)
    beside: list[int] = []

    def lake_runs_first() -> None:
        if not beside:
            beside.append(lake(spark, request)["added"])

    first = await asyncio.to_thread(maintain, spark, keeping, lake_runs_first)
    second = await asyncio.to_thread(maintain, spark, keeping)
    await pipeline.deliver([session_record("more", 600)], partition=0)
    after = await asyncio.to_thread(lake, spark, request)
    before = DeltaTable(str(table)).version()
    third = await asyncio.to_thread(maintain, spark, keeping)

    compacted = [one["tables"]["sessions"]["compacted"] for one in (first, second, third)]
    assert (compacted, beside) == ([1, 0, 1], [1])
    assert (after["added"], after["sessions"]) == (1, 10)
    assert set(table_keys(spark, table).values()) == {1}
    (file,) = spark.read.format("delta").load(str(table)).inputFiles()
    keys = pq.read_table(urlsplit(file).path, columns=["key"]).column("key").to_pylist()
    assert keys == sorted(keys)
    assert (old.exists(), young.exists()) == (False, True)
    assert DeltaTable(str(table), version=before).to_pyarrow_table(columns=["key"]).num_rows == 10

    replaced_days_ago(table, 3)
    forget_tables(spark)
    await asyncio.to_thread(maintain, spark, keeping)

    assert list(day.glob("*.parquet")) == [Path(urlsplit(file).path)]
    assert set(table_keys(spark, table).values()) == {1}


def replaced_days_ago(table: Path, days: int) -> None:
    """Lets the table's files be that old, and those that were replaced be so since then."""
    at = time.time() - days * 86_400
    for file in (table / "_delta_log").iterdir():
        if file.suffix == ".json":
            old = f'"deletionTimestamp":{at * 1000:.0f}'
            file.write_text(re.sub(r'"deletionTimestamp":\d+', old, file.read_text()))
        elif file.is_file():  # checkpoints and checksums, which say the same
            file.unlink()
    for file in table.rglob("*.parquet"):
        os.utime(file, (at, at))
