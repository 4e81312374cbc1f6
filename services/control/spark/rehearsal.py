"""A small job that does what ours do, so that Java can archive the classes that they load.

`baton jars` runs it: `python -m services.control.spark.rehearsal JARS ARCHIVE`.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession

from services.control.spark.run.request import ClusterOptions
from services.control.spark.session.spark_session import start_spark
from shared.class_archive import into_archive

WRITES = (
    "create table {table} using delta partitioned by (day) as select * from sessions",
    "insert into {table} select * from sessions",
)
QUERY = """
select day, rank, count(*), count(distinct a.key), percentile_approx(length(item), 0.5), max(time)
from (
  select *, row_number() over (partition by day order by time) as rank
  from (select *, explode(array(get_json_object(data, '$.id'))) as item from {table})
) as a
join (select distinct key from sessions) as b on a.key = b.key
group by day, rank order by day, rank
"""


def main(jars: str, archive: Path) -> None:
    """Runs the job; Java writes the archive when it ends."""
    options = {"spark.driver.extraJavaOptions": " ".join(into_archive(archive))}
    with tempfile.TemporaryDirectory(prefix="baton-rehearsal-") as folder:
        spark = start_spark(
            name="rehearsal",
            master="local[1]",
            jars=jars,
            work=Path(folder, "work"),
            cluster=ClusterOptions(options=options),
        )
        rehearse(spark, f"delta.`{folder}/table`")
        java = spark.sparkContext._gateway.proc
        spark.stop()
        # Java ends when its input does, and writes the archive then
        java.stdin.close()
        java.wait()


def rehearse(spark: SparkSession, table: str) -> None:
    """Writes a table, and reads it."""
    sessions = spark.range(100).selectExpr(
        "cast(id as string) as key",
        "id % 2 as day",
        "to_json(struct(id)) as data",
        "timestamp_seconds(id) as time",
    )
    sessions.mapInArrow(unchanged, sessions.schema).persist().createOrReplaceTempView("sessions")
    for statement in WRITES:
        spark.sql(statement.format(table=table))
    spark.sql(QUERY.format(table=table)).collect()


def unchanged(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    return batches


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
