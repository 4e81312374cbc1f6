"""The job `reports`, compared with a plain Spark job that computes the same figures, and batch by batch.

The plain job reads the same sessions from Parquet: sums per hour, day and range, percentiles (approximate, as
Spark has them), new, returning and heaviest keys; items, entries, exits and transitions; retention; totals of
keys. It writes Parquet and keeps nothing. Then runs follow each other that each find new sessions: those of
the next half a day, as a stream brings them, and then such as fall into all of the ten days, so that no
published figure holds.
Spark is started once and warmed by a small table. Run it with `python -m bench.spark_reports`, or smaller
with `python -m bench.spark_reports 20000 2000`.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from bench.machine import machine
from bench.report import Row, growth_row

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SESSIONS = 1_000_000
BATCH = 50_000
BATCHES = 20
FRAGMENTS = 5
SIZE = 200
KEYS = 200_000
PAGES = 500
DAYS = 10
SPAN_MS = DAYS * 86_400_000
START_MS = 1_700_006_400_000
ROUNDS = 3


def sessions_of(
    spark: SparkSession, first: int, count: int, span_ms: int = SPAN_MS, start_ms: int = START_MS
) -> DataFrame:
    """So many sessions: five fragments of 200 bytes each, keys, pages and times spread by a hash."""
    began = f"{start_ms} + pmod(xxhash64(id, 1), {span_ms})"
    path = f"concat('/page/', pmod(xxhash64(id, n), {PAGES}))"
    pad = f"""',"pad":"', repeat('x', {SIZE - 60}), '"}}'"""
    fragment = f"""concat('{{"key":"', key, '","data":{{"path":"', {path}, '"}}', {pad})"""
    return (
        spark.range(first, first + count)
        .selectExpr(
            "*", f"concat('visitor-', pmod(xxhash64(id, 2), {KEYS})) AS key", f"{began} AS first_time"
        )
        .selectExpr(
            "hex(id) AS id",
            "'default' AS `group`",
            "key",
            "CASE pmod(id, 3) WHEN 0 THEN 'end' WHEN 1 THEN 'limit' ELSE 'gap' END AS reason",
            "first_time",
            "first_time + pmod(xxhash64(id, 3), 1000000) AS last_time",
            f"{FRAGMENTS}L AS fragments",
            f"{FRAGMENTS * SIZE}L AS bytes",
            f"transform(sequence(1, {FRAGMENTS}), n -> {fragment}) AS data",
            "date(timestamp_millis(first_time)) AS day",
        )
    )


def append(
    spark: SparkSession,
    lake: Path,
    first: int,
    count: int,
    span_ms: int = SPAN_MS,
    start_ms: int = START_MS,
) -> None:
    """Adds them to the table as `lake` does, in one commit."""
    frame = sessions_of(spark, first, count, span_ms, start_ms)
    frame.write.format("delta").mode("append").partitionBy("group", "day").save(f"{lake}/sessions")


def plain(spark: SparkSession, source: str, target: str) -> None:
    """The same figures by the usual means, from Parquet to Parquet."""
    table = spark.read.parquet(source)
    table.createOrReplaceTempView("plain_sessions")
    spark.sql(
        "CREATE OR REPLACE TEMP VIEW plain_periods AS SELECT *, timestamp_millis(first_time) AS began, "
        "min(timestamp_millis(first_time)) OVER (PARTITION BY key) AS first FROM plain_sessions"
    )
    each = (
        "LATERAL VIEW inline(array(struct('range' AS period, timestamp'1970-01-01' AS start), "
        "struct('hour' AS period, date_trunc('hour', began) AS start), "
        "struct('day' AS period, date_trunc('day', began) AS start))) "
        "AS period, start"
    )
    percentiles = ", ".join(
        f"percentile_approx({value}, array(0.5, 0.9, 0.99), 300)" + f" AS {name}"
        for name, value in (("duration", "last_time - first_time"), ("length", "fragments"))
    )
    queries = {
        "sums": "SELECT period, start, count(*), sum(fragments), sum(bytes), count_if(fragments = 1), "
        f"avg(last_time - first_time), count_if(reason = 'end'), count_if(reason = 'gap'), {percentiles} "
        f"FROM plain_periods {each} GROUP BY period, start",
        "keys": "SELECT period, start, count_if(new), count_if(NOT new), sum(if(place <= 1, n, 0)), "
        "sum(if(place <= 10, n, 0)), sum(if(place <= 100, n, 0)) FROM (SELECT *, row_number() OVER "
        "(PARTITION BY period, start ORDER BY n DESC, key) AS place FROM (SELECT period, start, key, "
        f"sum(fragments) AS n, min(began) = min(first) AS new FROM plain_periods {each} "
        "GROUP BY period, start, key)) GROUP BY period, start",
        "totals": "SELECT key, count(*), sum(fragments), sum(bytes), min(first) FROM plain_periods "
        "GROUP BY key",
        "retention": "SELECT date(first), datediff(date(began), date(first)), count(DISTINCT key) "
        "FROM plain_periods GROUP BY 1, 2",
    }
    spark.sql(
        "CREATE OR REPLACE TEMP VIEW plain_items AS SELECT id, began, at, "
        "get_json_object(fragment, '$.data.path') AS item FROM "
        "(SELECT id, timestamp_millis(first_time) AS began, posexplode(data) AS (at, fragment) "
        "FROM plain_sessions)"
    )
    spark.sql(
        "CREATE OR REPLACE TEMP VIEW plain_steps AS SELECT *, lead(item) OVER w AS next, "
        "row_number() OVER w AS n FROM plain_items WHERE item IS NOT NULL "
        "WINDOW w AS (PARTITION BY id ORDER BY at)"
    )
    items = (
        "count(*) AS n, count(DISTINCT id) AS m, count_if(n = 1) AS entries, count_if(next IS NULL) AS exits"
    )
    place = "row_number() OVER (PARTITION BY period, start ORDER BY n DESC) AS place"
    queries["items"] = (
        f"SELECT * FROM (SELECT *, {place} FROM "
        f"(SELECT period, start, item, {items} FROM plain_steps {each} GROUP BY period, start, item)) "
        "WHERE place <= 20"
    )
    queries["transitions"] = (
        f"SELECT * FROM (SELECT *, {place} FROM "
        f"(SELECT period, start, item, next, count(*) AS n FROM plain_steps {each} WHERE next IS NOT NULL "
        "GROUP BY period, start, item, next)) WHERE place <= 20"
    )
    for name, query in queries.items():
        frame = spark.sql(query)
        frame.toDF(*(f"c{n}" for n in range(len(frame.columns)))).write.parquet(f"{target}/{name}")


def run(home: Path, sessions: int = SESSIONS, batch: int = BATCH) -> list[Row]:
    """The rows of both figures. Raises what Spark raises."""
    from cli.stack.jars.lock import jar_folder
    from services.control.spark.reports.job import reports
    from services.control.spark.run.request import RunRequest
    from services.control.spark.session.spark_session import start_spark
    from shared.model.group import GroupSettings

    jars = str(jar_folder("spark"))
    spark = start_spark(name="bench", master="local[2]", jars=jars, work=home / "spark")

    def timed(work: Any, *arguments: Any) -> float:
        began = time.perf_counter()
        work(*arguments)
        return time.perf_counter() - began

    def report(lake: Path) -> None:
        request = RunRequest(
            id="bench",
            job="reports",
            kafka="",
            lake=str(lake),
            jars=jars,
            group_settings=GroupSettings(),
            streams=1,
        )
        reports(spark.newSession(), request)

    mine, other = [], []
    for number in range(-1, ROUNDS):
        lake, copy = home / f"lake{number}", home / f"copy{number}"
        append(spark, lake, 0, sessions if number >= 0 else 1_000)
        sessions_of(spark, 0, sessions if number >= 0 else 1_000).write.parquet(f"{copy}/sessions")
        seconds = timed(plain, spark, f"{copy}/sessions", f"{copy}/reports"), timed(report, lake)
        if number >= 0:
            other.append(seconds[0])
            mine.append(seconds[1])
            print(f"round {number + 1}: {seconds[1]:.1f}, plain {seconds[0]:.1f}", flush=True)
        for folder in (lake, copy):
            shutil.rmtree(folder)
    growth = []
    step_ms = SPAN_MS // BATCHES
    for name, each_ms, span_ms in (("each later", step_ms, step_ms), ("all of the same days", 0, SPAN_MS)):
        lake, steps = home / name.replace(" ", "-"), []
        for number in range(BATCHES):
            append(spark, lake, number * batch, batch, span_ms, START_MS + number * each_ms)
            steps.append(timed(report, lake))
        print(name, *(f"{step:.1f}" for step in steps), flush=True)
        growth.append(growth_row(f"reports, {BATCHES} runs of {batch:,} new sessions, {name}", steps))
        shutil.rmtree(lake)
    spark.stop()
    return [
        Row(
            name=f"reports, {sessions:,} sessions of {FRAGMENTS} × {SIZE} B; baseline: a plain job",
            unit="s",
            baton=mine,
            baseline=other,
            target="≤ 1.5",
        ),
        *growth,
    ]


def main(arguments: list[str]) -> int:
    """Runs it alone; arguments: sessions in all, sessions of a batch."""
    from bench.__main__ import table

    console = Console(width=160)
    console.print(machine())
    with tempfile.TemporaryDirectory(prefix="baton-reports-") as folder:
        console.print(table(run(Path(folder), *map(int, arguments))))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
