"""Sets unreadable records of the sessions topic aside, in the table `unreadable`, each once."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from services.control.spark.lake.columns import UNREADABLE_COLUMNS, UNREADABLE_PARTITIONS
from services.control.spark.lake.repeats import PLACE
from services.control.spark.lake.rows import WHY_SCHEMA, parse_unreadable
from services.control.spark.lake.table import LakeTable, note_text
from services.control.spark.run.lock import CheckLock
from services.control.spark.run.request import RunRequest


def set_aside(
    spark: SparkSession, request: RunRequest, topic_id: str, records: DataFrame, check_lock: CheckLock
) -> None:
    """Adds the unreadable ones of these records (`read_log`) that the table does not hold. Raises Overtaken.

    It commits before the batch's sessions, so the next run repeats it if this one dies in between.
    """
    group = request.group

    def parse(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return parse_unreadable(batches, group)

    table = LakeTable(spark, request.table("unreadable"))
    if not table.exists():
        check_lock()
        table.create(UNREADABLE_COLUMNS, UNREADABLE_PARTITIONS)
    transaction = table.begin(f"baton.unreadable.{group}")
    number = transaction.recorded() + 1
    held = (
        table.read(transaction.version)
        .where((f.col("group") == group) & (f.col("topic_id") == topic_id))
        .select(*PLACE)
    )
    columns = records.select("partition", "offset", "appended", "key", "value")
    rows = columns.mapInArrow(parse, WHY_SCHEMA).join(f.broadcast(held), [*PLACE], "left_anti")
    constants = {"group": f.lit(group).alias("group"), "topic_id": f.lit(topic_id).alias("topic_id")}
    transaction.write(
        rows.coalesce(1).select(*(constants.get(name, f.col(name)) for name in UNREADABLE_COLUMNS))
    )
    check_lock()
    transaction.commit(note_text({"group": group}), number)
