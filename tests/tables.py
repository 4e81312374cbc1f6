"""Tables of a lake, written without Spark, for tests: sessions with the columns of the job `lake`."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import CommitProperties, write_deltalake

SESSIONS = pa.schema(
    [
        *((name, pa.string()) for name in ("id", "group", "key", "reason")),
        *((name, pa.int64()) for name in ("stream", "epoch", "first_offset", "last_offset")),
        *((name, pa.int64()) for name in ("first_time", "last_time", "opened_at", "closed_at")),
        *((name, pa.int64()) for name in ("fragments", "bytes")),
        ("data", pa.list_(pa.string())),
        ("log", pa.int64()),
        ("topic_id", pa.string()),
        ("topic_partition", pa.int32()),
        ("topic_offset", pa.int64()),
        ("day", pa.date32()),
    ]
)
NOON = 1_700_049_600_000
"""2023-11-15, 12:00 UTC, in ms."""


def session(number: int, key: str = "ann", **fields: Any) -> dict[str, Any]:
    """A row of the table `sessions`; its id is its number."""
    return {
        "id": f"{number:032x}",
        "group": "default",
        "key": key,
        "reason": "gap",
        "stream": 3,
        "epoch": 1,
        "first_offset": number * 10,
        "last_offset": number * 10 + 1,
        "first_time": NOON + number * 1000,
        "last_time": NOON + number * 1000 + 500,
        "opened_at": NOON + number * 1000,
        "closed_at": NOON + number * 1000 + 900,
        "fragments": 2,
        "bytes": 40,
        "data": [f'{{"key":"{key}"}}', f'{{"key":"{key}","n":{number}}}'],
        "log": 0,
        "topic_id": "abc",
        "topic_partition": 0,
        "topic_offset": number,
        "day": datetime.date(2023, 11, 15),
    } | fields


def write_sessions(lake: Path, rows: Iterable[Mapping[str, Any]], note: str = "") -> None:
    """Appends the rows in one commit, with a note if there is one."""
    write_deltalake(
        lake / "sessions",
        pa.Table.from_pylist(list(rows), SESSIONS),
        mode="append",
        partition_by=["group", "day"],
        commit_properties=CommitProperties(custom_metadata={"userMetadata": note}) if note else None,
    )


def write_table(lake: Path, name: str, rows: pa.Table, **how: Any) -> None:
    """Appends any rows to any table in one commit."""
    write_deltalake(lake / name, rows, mode="append", **how)
