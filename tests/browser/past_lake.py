"""A small lake without Spark: finished sessions of some keys, and the table of a report."""

from __future__ import annotations

import datetime
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec
import pyarrow as pa

from bench.simulated_runs import report
from shared.model.names import DEFAULT_GROUP
from shared.model.routing import initial_table
from shared.model.sessions import session_id
from tests.tables import session, write_sessions, write_table

MINUTE_MS: Final = 60_000
STEP_MS: Final = 40_000
KEYS: Final = tuple(f"visitor-{n}" for n in range(8))
"""Keys that have finished sessions, besides those that are open."""
EACH: Final = 6
"""Finished sessions of a key."""
PATHS: Final = ("/", "/shoes", "/shoes/trail-7", "/cart", "/search?q=rain+jacket", "/help/returns")


def write(lake: Path, streams: int, now_ms: int) -> None:
    """Writes the tables `sessions` and `reports/periods`."""
    write_sessions(lake, finished(streams, now_ms))
    hours = report(now_ms)["hours"]
    periods = [
        hour
        | {"group": DEFAULT_GROUP, "report": "default", "period": "hour"}
        | {"start": datetime.datetime.fromisoformat(hour["start"])}
        for hour in hours
    ]
    write_table(lake, "reports/periods", pa.Table.from_pylist(periods))


def session_ids(key: str, streams: int) -> list[str]:
    """The ids of the key's finished sessions, newest first."""
    stream = initial_table(streams).stream_for(key.encode())
    return [session_id(DEFAULT_GROUP, stream, key, _offset(number)) for number in range(EACH)]


def finished(streams: int, now_ms: int) -> Iterator[dict[str, Any]]:
    """The sessions of all keys, the newest some hours old."""
    table = initial_table(streams)
    for key in KEYS:
        stream, chance = table.stream_for(key.encode()), random.Random(key)
        ids = session_ids(key, streams)
        for number in range(EACH):
            began = now_ms - (number + 1) * 11 * 60 * MINUTE_MS
            times = [began + n * STEP_MS for n in range(chance.randrange(2, 30))]
            data = [
                msgspec.json.encode({"key": key, "time": at, "data": {"path": chance.choice(PATHS)}}).decode()
                for at in times
            ]
            offset = _offset(number)
            yield session(
                number,
                key,
                id=ids[number],
                stream=stream,
                reason=("end", "gap", "limit")[number % 3],
                first_offset=offset,
                last_offset=offset + 700,
                first_time=began,
                last_time=times[-1],
                fragments=len(data),
                bytes=sum(map(len, data)),
                data=data,
            )


def _offset(number: int) -> int:
    return 90_000 - number * 7_000
