"""Transactions of Delta's own on real Spark: what replaces a partition leaves nothing of it, and no more."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from services.control.spark import delta
from services.control.spark.delta import Overtaken, Transaction, delta_log
from services.control.spark.lake.table import LakeTable
from services.control.spark.reports.kept import Note
from services.control.spark.reports.plan import parse_plan
from services.control.spark.reports.publishing import Publisher
from services.control.spark.run.lock import unlocked
from shared.model.names import DEFAULT_GROUP

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Table:
    """A table of numbers, partitioned by `report`."""

    def __init__(self, spark: SparkSession, path: Path) -> None:
        self._spark = spark
        self.path = str(path)
        self._number = 0
        spark.sql(
            f"CREATE TABLE delta.`{path}` (report STRING, n BIGINT) USING delta PARTITIONED BY (report)"
        )

    def begin(self, report: str, *numbers: int) -> Transaction:
        """A transaction that has written the report's new rows and not committed them."""
        transaction = Transaction(self._spark, delta_log(self._spark, self.path), report)
        transaction.write(
            self._spark.createDataFrame([(report, n) for n in numbers], "report STRING, n BIGINT")
        )
        transaction.remove({"report": report})
        return transaction

    def commit(self, transaction: Transaction, report: str) -> None:
        """Raises Overtaken."""
        self._number += 1
        transaction.commit(report, self._number)

    def replace(self, report: str, *numbers: int) -> None:
        self.commit(self.begin(report, *numbers), report)

    def sql(self, statement: str) -> None:
        self._spark.sql(statement.format(f"delta.`{self.path}`"))

    def rows(self) -> dict[str, list[int]]:
        """The numbers of each report, sorted."""
        found: dict[str, list[int]] = {}
        for row in self._spark.read.format("delta").load(self.path).orderBy("n").collect():
            found.setdefault(row.report, []).append(row.n)
        return found


def test_a_partition_is_replaced_whatever_others_have_done_to_it(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows appended, deleted, compacted or restored since; with and without the search in the log."""
    table = Table(spark, tmp_path / "table")
    table.replace("a", 1, 2)
    table.replace("b", 3)
    table.sql("INSERT INTO {} VALUES ('a', 4), ('b', 5)")
    table.sql("DELETE FROM {} WHERE n = 1")
    table.sql("OPTIMIZE {}")
    table.replace("a", 6)
    assert table.rows() == {"a": [6], "b": [3, 5]}

    table.sql("RESTORE {} TO VERSION AS OF 3")
    assert table.rows() == {"a": [1, 2, 4], "b": [3, 5]}
    table.replace("b", 7)
    table.replace("a", 8)
    assert table.rows() == {"a": [8], "b": [7]}

    monkeypatch.setattr(delta, "MOST_COMMITS", 0)
    table.sql("INSERT INTO {} VALUES ('a', 9)")
    table.replace("a", 10)

    assert table.rows() == {"a": [10], "b": [7]}


def test_of_two_that_replace_the_same_partition_one_commits(spark: SparkSession, tmp_path: Path) -> None:
    """Also the first two, which find nothing to remove. Transactions on different partitions do not meet."""
    table = Table(spark, tmp_path / "table")
    first, second, other = table.begin("a", 1), table.begin("a", 2), table.begin("b", 3)

    table.commit(second, "a")
    table.commit(other, "b")
    with pytest.raises(Overtaken):
        table.commit(first, "a")

    assert table.rows() == {"a": [2], "b": [3]}


def test_of_two_that_add_the_same_column_one_starts_over(spark: SparkSession, tmp_path: Path) -> None:
    """As two groups' jobs do after an upgrade."""
    table = LakeTable(spark, Table(spark, tmp_path / "table").path)
    missing = table.missing({"report": "STRING", "more": "STRING"})
    table.add_columns(missing)

    with pytest.raises(Overtaken):
        table.add_columns(missing)

    assert table.columns() == {"report": "string", "n": "bigint", "more": "string"}
    assert table.partitions() == ("report",)


def test_of_two_runs_that_make_a_table_the_later_one_counts(spark: SparkSession, tmp_path: Path) -> None:
    """The earlier one froze between its check of the lock and its write. The next run replaces the rows."""

    def publish(n: int, check_lock: Callable[[], None]) -> None:
        note = Note(plan="p", lineage="l", version=n, start_ms=0)
        publisher = Publisher(
            spark, {"t": str(tmp_path / "t")}, DEFAULT_GROUP, parse_plan({}), note, check_lock
        )
        publisher.publish({"t": spark.createDataFrame([(n,)], "n BIGINT")})

    def rows() -> list[int]:
        return [row.n for row in spark.read.format("delta").load(str(tmp_path / "t")).collect()]

    publish(1, lambda: publish(2, unlocked))
    made = rows()
    publish(3, unlocked)

    assert (made, rows()) == ([2], [3])
