"""What Spark's SQL says about Delta tables only at the cost of a job: a table's version, its existence."""

from __future__ import annotations

from pyspark.sql import SparkSession

NO_TABLE = -1


def newest_version(spark: SparkSession, table: str) -> int:
    """The version of the table's last commit (its first is 0), NO_TABLE when there is none."""
    delta_log = spark._jvm.org.apache.spark.sql.delta.DeltaLog
    nothing = spark._jvm.scala.Option.empty()
    # Scala's default arguments do not exist for Java, so neither for py4j
    version: int = delta_log.forTable(spark._jsparkSession, table).update(False, nothing, nothing).version()
    return version
