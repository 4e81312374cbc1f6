"""A Delta table's log through Spark's JVM, without the Spark job that SQL would need to answer."""

from __future__ import annotations

from typing import Any

from pyspark.sql import SparkSession

NO_TABLE = -1


def delta_log(spark: SparkSession, table: str) -> Any:
    """Delta's own object for the log of the table at this path."""
    return spark._jvm.org.apache.spark.sql.delta.DeltaLog.forTable(spark._jsparkSession, table)


def newest_snapshot(spark: SparkSession, log: Any) -> Any:
    """The table as of its last commit."""
    nothing = spark._jvm.scala.Option.empty()
    # Java, and so py4j, does not see Scala's default arguments
    return log.update(False, nothing, nothing)


def newest_version(spark: SparkSession, table: str) -> int:
    """The version of the table's last commit (the first is 0), or NO_TABLE."""
    version: int = newest_snapshot(spark, delta_log(spark, table)).version()
    return version


def quoted(text: str) -> str:
    """The text as a constant of Spark's SQL.

    >>> quoted("it's")
    "'it\\\\'s'"
    """
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
