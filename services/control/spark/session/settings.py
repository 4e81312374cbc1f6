"""Settings of a Spark session for a block only, so the next run does not see them; those for small tables."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping

from pyspark.sql import SparkSession

SMALL_TABLE_BYTES = 8 << 20
SMALL = {
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.files.minPartitionNum": "1",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
"""For work on a table up to SMALL_TABLE_BYTES. Starting a task there takes longer than its work: so each step
is one task, and Spark neither plans again after it nor compiles its plan."""


def for_size(size: int) -> dict[str, str]:
    """The settings for work on a table of so many bytes."""
    return SMALL if size <= SMALL_TABLE_BYTES else {}


@contextlib.contextmanager
def settings(spark: SparkSession, values: Mapping[str, str]) -> Iterator[None]:
    """Gives the session these settings during the block, and then the former ones back."""
    before = {name: spark.conf.get(name, None) for name in values}
    for name, value in values.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, was in before.items():
            if was is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, was)
