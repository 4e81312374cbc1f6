"""Sessions for tests of the lake, by hand, and what its tables hold."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from services.control.spark.delta import java_class
from shared.model.sessions import Reason, Session, encode_session, session_id

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DAY_MS = 86_400_000
NOON_MS = 1_700_049_600_000  # 2023-11-15T12:00:00Z


def forget_tables(spark: SparkSession) -> None:
    """Lets Spark read every table's log anew, after it was changed by hand."""
    java_class(spark, "org.apache.spark.sql.delta.DeltaLog").clearCache()


def session_record(
    key: str,
    first_offset: int,
    *,
    opened_at: int = NOON_MS,
    first_time: int | None = None,
    seconds: int = 60,
    paths: tuple[str, ...] = ("/a",),
    group: str = "default",
) -> tuple[bytes, bytes]:
    """A session's record: one fragment per path. `first_time` is `opened_at` unless given (ms UTC)."""
    data = [msgspec.json.encode({"key": key, "data": {"path": path}}) for path in paths]
    began = opened_at if first_time is None else first_time
    times = (began, began + seconds * 1000, opened_at)
    return record_of(key, data, first_offset, times, group=group, reason="end" if key == "ender" else "gap")


def record_of(
    key: str,
    data: Sequence[bytes],
    first_offset: int,
    times: tuple[int, int, int],
    *,
    stream: int = 0,
    group: str = "default",
    reason: Reason = "gap",
) -> tuple[bytes, bytes]:
    """The record of a session; `times`: `first_time`, `last_time` and `opened_at` (ms UTC)."""
    first_time, last_time, opened_at = times
    session = Session(
        id=session_id(group, stream, key, first_offset),
        group=group,
        key=key,
        stream=stream,
        epoch=1,
        first_offset=first_offset,
        last_offset=first_offset + len(data) - 1,
        first_time=first_time,
        last_time=last_time,
        opened_at=opened_at,
        closed_at=opened_at,
        fragments=len(data),
        bytes=sum(map(len, data)),
        reason=reason,
        data=[],
    )
    return key.encode(), encode_session(session, data)


def table_keys(spark: SparkSession, table: Path, group: str = "default") -> Counter[str]:
    """How many sessions of each key the table holds."""
    rows = spark.read.format("delta").load(str(table)).where(f"`group` = '{group}'")
    return Counter(row.key for row in rows.select("key").collect())


@contextlib.contextmanager
def hidden_files(table: Path, *but: Path) -> Iterator[None]:
    """Hides the data that the table has now, except for these files."""
    paths = [path for path in table.rglob("*.parquet") if path not in but]
    for path in paths:
        path.rename(path.with_suffix(".away"))
    yield
    for path in paths:
        path.with_suffix(".away").rename(path)
