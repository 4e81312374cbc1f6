"""docs/lake.md is true: its columns are those of the tables, and its Spark example runs on them."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from services.control.spark.lake.job import lake
from services.control.spark.reports.job import reports
from tests.spark import Pipeline, fragment

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAGE = Path(__file__).parents[2] / "docs" / "lake.md"
NOON = 1_700_049_600_000


def documented(table: str) -> dict[str, str]:
    """The columns that the page gives the table, with their types."""
    section = PAGE.read_text().split(f"\n`{table}` has ", 1)[1].split("\n| --- ", 1)[1].split("\n\n", 1)[0]
    rows = re.findall(r"(?m)^\| (`.+?) \| (\S+) \|", section)
    return {
        name: kind.replace("&lt;", "<").replace("&gt;", ">")
        for names, kind in rows
        for name in re.findall(r"`(\w+)`", names)
    }


async def test_the_page_describes_the_tables_and_its_example_runs(
    spark: SparkSession, kafka: str, namespace: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every column with its type, and the Spark example on the tables of two jobs.

    No table has deletion vectors.
    """
    pipeline = Pipeline(kafka=kafka, namespace=namespace)
    await pipeline.create()
    await pipeline.send(
        [
            *(fragment("ann", NOON + n * 1_000, data={"path": "/a"}) for n in range(3)),
            fragment("ann", NOON + 9_000, data={"path": "/b"}, end=True),
        ]
    )
    found, _ = await pipeline.sessions()
    await pipeline.deliver([*((one.key.encode(), raw) for one, raw in found), (b"ann", b"?")], partition=0)
    for job in (lake, reports):
        await asyncio.to_thread(job, spark, pipeline.request(job.__name__, tmp_path))

    request = pipeline.request("lake", tmp_path)
    reported = ("periods", "items", "transitions", "retention", "keys")
    for table in ("sessions", "unreadable", *(f"reports/{name}" for name in reported)):
        schema = spark.read.format("delta").load(request.table(*table.split("/"))).dtypes
        assert documented(table) == dict(schema), table
    for table in ("sessions", "unreadable", *(f"reports/{name}" for name in (*reported, "_partials"))):
        detail = spark.sql(f"DESCRIBE DETAIL delta.`{request.table(*table.split('/'))}`").first()
        assert detail is not None
        assert detail.properties["delta.enableDeletionVectors"] == "false", table
        assert "deletionVectors" not in detail.tableFeatures, table
    (example,) = re.findall(r"```python\n(.*?start_spark.*?)```", PAGE.read_text(), re.S)
    example = example.replace('".baton/lake"', repr(request.table())).replace(
        '".baton/look"', repr(str(tmp_path / "look"))
    )
    await asyncio.to_thread(exec, example, {})
    shown = capsys.readouterr().out
    assert re.search(r"\|ann\s*\|4\s*\|2023-11-15 12:00:00\|9.0\s*\|", shown)
    assert re.search(r"\|/a\s*\|3\s*\|", shown)
