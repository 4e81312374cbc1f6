"""Looks up the finished sessions of a key and of a day, in files that are clustered by key.

`python -m bench.spark_tables 10000000` chooses the number of sessions. deltalake writes the table, in one
partition per day with one file each, as the job `maintain` leaves them. The baseline reads the same rows with
pyarrow's dataset of the same table, as `docs/lake.md` does it for pandas.
"""

from __future__ import annotations

import asyncio
import datetime
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable, WriterProperties, write_deltalake
from rich.console import Console

from bench.machine import machine
from bench.report import Row
from services.control.tables.lake import Lake
from services.control.tables.reader import TableReader
from services.control.tables.sessions import LakeSessions
from tests.tables import SESSIONS

SESSIONS_OF_A_KEY_AND_DAY = 2
FRAGMENTS = 5
FRAGMENT_BYTES = 200
DAYS = 10
ROUNDS = 9
DAY_MS = 86_400_000
START = datetime.date(2026, 1, 1)


def write(lake: Path, sessions: int) -> str:
    """Writes the table; returns a key that has sessions on every day."""
    random = np.random.default_rng(1)
    texts = pa.array(
        [
            f'{{"key":"v","data":{{"path":"/{n}"}},"x":"{random.bytes(80).hex()}"}}'[:FRAGMENT_BYTES]
            for n in range(20_000)
        ]
    )
    of_a_day = sessions // DAYS
    keys = np.arange(of_a_day) // SESSIONS_OF_A_KEY_AND_DAY
    key_texts = pc.binary_join_element_wise(
        "visitor-", pc.utf8_lpad(pa.array(keys).cast("string"), 10, "0"), ""
    )
    ends = pa.array(np.arange(0, of_a_day * FRAGMENTS + 1, FRAGMENTS, dtype=np.int32))
    for day in range(DAYS):
        first = day * of_a_day
        numbers = np.arange(first, first + of_a_day)
        at = pa.array((START - datetime.date(1970, 1, 1)).days * DAY_MS + day * DAY_MS + numbers % DAY_MS)
        columns: dict[str, Any] = {name: pa.array(numbers) for name in SESSIONS.names}
        columns |= dict.fromkeys(("first_time", "last_time", "opened_at", "closed_at"), at)
        columns |= {
            "id": pc.utf8_lpad(pa.array(random.permutation(numbers)).cast("string"), 32, "0"),
            "key": key_texts,
            "data": pa.ListArray.from_arrays(
                ends, texts.take(pa.array(random.integers(0, 20_000, len(ends) * FRAGMENTS - FRAGMENTS)))
            ),
            "bytes": pa.repeat(FRAGMENTS * FRAGMENT_BYTES, of_a_day),
            **{
                name: pa.repeat(text, of_a_day)
                for name, text in (("group", "default"), ("reason", "gap"), ("topic_id", "t"))
            },
            "topic_partition": pa.repeat(pa.scalar(0, pa.int32()), of_a_day),
            "day": pa.repeat(START + datetime.timedelta(day), of_a_day),
        }
        write_deltalake(
            lake / "sessions",
            pa.table(columns).select(SESSIONS.names).cast(SESSIONS),
            mode="append",
            partition_by=["group", "day"],
            target_file_size=1 << 30,
            writer_properties=WriterProperties(compression="SNAPPY", max_row_group_size=256 * 1024),
        )
    return f"visitor-{of_a_day // SESSIONS_OF_A_KEY_AND_DAY // 2:010}"


async def measure(lake: Path, key: str) -> tuple[dict[str, list[float]], int]:
    """Seconds of each round by kind of look-up, and the rows of the key."""
    reader = TableReader(Lake(str(lake), ""))
    sessions = LakeSessions(reader)
    sought = {
        "key": {"group": "default", "key": key},
        "no such key": {"group": "default", "key": f"{key}x"},
        "day": {"group": "default", "day": START.isoformat()},
    }
    found: dict[str, list[float]] = {kind: [] for kind in (*sought, "list", "pyarrow")}
    rows = 0
    for _ in range(ROUNDS):
        for kind, values in sought.items():
            began_s = time.perf_counter()
            page, _following = await sessions.newest(values, limit=100, with_data=True)
            found[kind].append(time.perf_counter() - began_s)
            rows = len(page) if kind == "key" else rows
        began_s = time.perf_counter()
        await reader.tables()
        found["list"].append(time.perf_counter() - began_s)
    began_s = time.perf_counter()
    dataset = DeltaTable(lake / "sessions").to_pyarrow_dataset()
    same = dataset.to_table(filter=pc.field("key") == key).num_rows
    found["pyarrow"].append(time.perf_counter() - began_s)
    reader.close()
    assert rows == same == DAYS * SESSIONS_OF_A_KEY_AND_DAY, (rows, same)
    return found, rows


def run(sessions: int = 1_000_000) -> list[Row]:
    """All figures."""
    with tempfile.TemporaryDirectory(prefix="baton-bench-") as folder:
        key = write(Path(folder), sessions)
        size = sum(file.stat().st_size for file in Path(folder).rglob("*.parquet")) >> 20
        found, rows = asyncio.run(measure(Path(folder), key))
    names = {
        "key": f"a key's {rows} sessions of {sessions:,} ({size:,} MB), against pyarrow's dataset",
        "no such key": "a key without sessions",
        "day": "the newest 100 sessions of a day",
        "list": "the list of the tables",
    }
    return [
        Row(
            name=f"tables: {name}",
            unit="s",
            baton=found[kind],
            baseline=found["pyarrow"] if kind == "key" else [],
            target="≤ 1 with 10 million" if kind == "key" else "",
        )
        for kind, name in names.items()
    ]


if __name__ == "__main__":
    console = Console(width=160)
    console.print(machine())
    for row in run(*map(int, sys.argv[1:2])):
        console.print(
            f"{row.name}: median {statistics.median(row.baton):.3f} s, first {row.baton[0]:.3f} s",
            row.baseline,
        )
