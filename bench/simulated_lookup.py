"""What a simulated control (`simulated_control.py`) finds when somebody looks up a key or a stream."""

from __future__ import annotations

import random
import time
from pathlib import Path

import msgspec

from services.control.core.found import RecordPage, record_row
from shared.model.names import Names
from shared.model.open_sessions import SHOWN, HeldKey, HeldStream, OpenSessionRow, Unreadable
from shared.model.routing import initial_table
from shared.model.sessions import session_id
from tests.tables import session, write_sessions

PATHS = ("/", "/shoes", "/shoes/trail-7", "/cart", "/search?q=rain+jacket", "/help/returns")
MINUTE_MS = 60_000
GAP_MS, LATENESS_MS = 30 * MINUTE_MS, 5 * MINUTE_MS
PER_STREAM = 10_000
"""Records of each log."""


def wall_ms() -> int:
    """The time, ms UTC."""
    return time.time_ns() // 1_000_000


def key_of(stream: int, number: int) -> str:
    """A key that a stream has."""
    return f"visitor-{stream * 100 + number:08x}"


class SimulatedOwners:
    """An `OwnerSource` whose keys all have an open session, made up from the key."""

    async def key(self, group: str, member: str, address: str, stream: int, key: str) -> HeldKey:
        """Nine fragments within the last minutes."""
        row, data = _open(key)
        return HeldKey(stream=stream, epoch=3, position=9, w=row.last_at, a=row.last_at, open=row, data=data)

    async def stream(self, group: str, member: str, address: str, stream: int) -> HeldStream:
        """Ten sessions."""
        rows = [_open(key_of(stream, number))[0] for number in range(SHOWN)]
        return HeldStream(
            stream=stream,
            epoch=3,
            position=9,
            w=wall_ms(),
            a=wall_ms(),
            open_sessions=len(rows),
            oldest=sorted(rows, key=lambda row: row.first_offset),
            heaviest=sorted(rows, key=lambda row: -row.bytes),
            last_unreadable=Unreadable(offset=7, why="the record's key is not the fragment's"),
        )


class SimulatedRecords:
    """A `RecordSource` with fragments of a few keys."""

    async def newest(self, stream: int, limit: int, before: int | None) -> RecordPage:
        """Every 97th record is a marker."""
        until = PER_STREAM if before is None else min(before, PER_STREAM)
        since, now_ms = max(0, until - limit), wall_ms()
        rows = []
        for offset in reversed(range(since, until)):
            at = now_ms - (PER_STREAM - offset) * 900
            key = key_of(stream, offset * offset % SHOWN)
            value = _fragment(key, at, random.Random(offset)) if offset % 97 else b'{"time":%d}' % at
            rows.append(record_row(offset, at, key.encode() if offset % 97 else None, value))
        topic = Names().fragments(stream)
        following = since if 0 < since < until else None
        return RecordPage(stream=stream, topic=topic, first=0, end=PER_STREAM, fragments=rows, next=following)


def write_lake(folder: Path, streams: int) -> None:
    """Six finished sessions of each of a few keys."""
    now_ms, table, rows = wall_ms(), initial_table(streams), []
    for key in (key_of(17, number) for number in range(3)):
        stream = table.stream_for(key.encode())
        for number in range(6):
            began, chance = now_ms - (number + 1) * 11 * 60 * MINUTE_MS, random.Random(f"{key} {number}")
            data = [
                _fragment(key, began + n * 40_000, chance).decode() for n in range(chance.randrange(2, 30))
            ]
            offset = 90_000 - number * 7_000
            rows.append(
                session(
                    number,
                    key,
                    id=session_id("default", stream, key, offset),
                    stream=stream,
                    reason=("end", "gap", "limit")[number % 3],
                    first_offset=offset,
                    last_offset=offset + 700,
                    first_time=began,
                    last_time=began + (len(data) - 1) * 40_000,
                    fragments=len(data),
                    bytes=sum(map(len, data)),
                    data=data,
                )
            )
    write_sessions(folder, rows)


def _fragment(key: str, at_ms: int, chance: random.Random) -> bytes:
    return msgspec.json.encode({"key": key, "time": at_ms, "data": {"path": chance.choice(PATHS)}})


def _open(key: str) -> tuple[OpenSessionRow, list[str]]:
    chance = random.Random(key)
    minutes = sorted(chance.uniform(3, 12) for _ in range(chance.randrange(2, 12)))[::-1]
    times = [wall_ms() - int(minute * MINUTE_MS) for minute in minutes]
    data = [_fragment(key, at, chance).decode() for at in times]
    offset = chance.randrange(4_000_000, 5_000_000)
    row = OpenSessionRow(
        key=key,
        first_offset=offset,
        last_offset=offset + 977,
        first_time=times[0],
        last_time=times[-1],
        opened_at=times[0],
        last_at=times[-1],
        fragments=len(data),
        bytes=sum(map(len, data)),
        parked=chance.random() < 0.2,
        silent_after=times[-1] + GAP_MS + LATENESS_MS,
        idle_after=times[-1] + GAP_MS + LATENESS_MS,
    )
    return row, data
