"""A row's checksum over all columns of the table `sessions`, in Python and in Spark.

The lake computes it from the record, before Spark sees the row. The audit computes it from the stored row. So
it covers everything between the two: Arrow, Spark, Parquet, compaction, and what somebody has altered since.
60 bits of a SHA-256, because a sum of them is all that is kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from typing import Any, Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from services.control.spark.kafka.delivered import LOG, NUMBERS
from services.control.spark.lake.sums import MODULUS, Span

SUMMED: Final = (
    *("group", "topic_id", "day", "topic_partition", "topic_offset"),
    *("id", "key", "reason", *NUMBERS, LOG),
)
"""Every column but `data`, as text in this order."""
_SEPARATOR: Final = "\x1f"
_HEAD: Final = _SEPARATOR.join(["%s"] * (len(SUMMED) + 1))
_BETWEEN: Final = _SEPARATOR.encode()
_HEX_DIGITS: Final = 15


def checksum_of(values: tuple[Any, ...], data: Sequence[bytes]) -> int:
    """The checksum of a row: the values of SUMMED, and its fragments. Takes 4 µs."""
    text = _BETWEEN.join([(_HEAD % (*values, len(data))).encode(), *data])
    return int.from_bytes(sha256(text).digest()[:8]) >> 4


def checksum() -> Column:
    """The same of a stored row."""
    head = [f.coalesce(f.col(name).cast("string"), f.lit("null")) for name in SUMMED]
    fragments = f.transform("data", lambda one: f.coalesce(one, f.lit("null")))
    text = f.concat_ws(_SEPARATOR, *head, f.size("data").cast("string"), fragments)
    digits = f.substring(f.sha2(text.cast("binary"), 256), 1, _HEX_DIGITS)
    return f.conv(digits, 16, 10).cast("bigint")


def day_sums(rows: DataFrame) -> dict[str, Span]:
    """Number of rows and sum of their checksums for each day. Reads all columns."""
    sums = rows.groupBy("day").agg(
        f.count("*").alias("n"), f.sum(checksum().cast("decimal(38,0)")).alias("sum")
    )
    return {str(one.day): (one.n, int(one["sum"]) % MODULUS) for one in sums.collect()}
