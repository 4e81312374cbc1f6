"""The version and existence of a Delta table, without the Spark job that SQL would need to answer."""

from __future__ import annotations

from pyspark.sql import SparkSession

NO_TABLE = -1


def newest_version(spark: SparkSession, table: str) -> int:
    """The version of the table's last commit (the first is 0), or NO_TABLE."""
    delta_log = spark._jvm.org.apache.spark.sql.delta.DeltaLog
    nothing = spark._jvm.scala.Option.empty()
    # Java, and so py4j, does not see Scala's default arguments
    version: int = delta_log.forTable(spark._jsparkSession, table).update(False, nothing, nothing).version()
    return version
