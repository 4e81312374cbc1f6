"""Reads the lake for control in threads, so that control's loop never waits, and lists its tables.

At most `READS_AT_ONCE` reads of rows are under way; a further one is refused at once. Used by `sessions.py`,
and for the list by `http/api/tables.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import pyarrow as pa
from deltalake import DeltaTable

from services.control.core.lake.tables import TableRow
from services.control.tables.lake import Lake, UnknownTable, columns_of, reading
from shared.errors import Unavailable

READS_AT_ONCE = 2
PATIENCE_S = 30.0
"""A read that takes longer is answered with 503; its thread ends when the engine does."""

T = TypeVar("T")


class TablesBusy(Unavailable):
    """Too many tables are being read."""


class TableReadTooLong(Unavailable):
    """Reading the table takes too long."""


class TableReader:
    """A `TableSource`. Call `close` at the end."""

    def __init__(self, lake: Lake, *, patience_s: float = PATIENCE_S) -> None:
        self._lake = lake
        self._patience_s = patience_s
        # one more for the list, which is short and must not wait for rows
        self._threads = ThreadPoolExecutor(READS_AT_ONCE + 1, thread_name_prefix="tables")
        self._under_way = 0
        self._listing: asyncio.Task[list[TableRow]] | None = None
        self._known: dict[str, tuple[tuple[str, int], TableRow]] = {}

    def __repr__(self) -> str:
        return f"<TableReader of {self._lake!r}, {self._under_way} reads under way>"

    def close(self) -> None:
        """Begins no further read: the engine cannot be interrupted in one that is under way."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def tables(self) -> list[TableRow]:
        """The tables, by name. Raises Unavailable."""
        if self._listing is None or self._listing.done():
            self._listing = asyncio.ensure_future(self._in_thread(self._read_list))
            self._listing.add_done_callback(_take_note)
        # shared by all who ask meanwhile, so that one who leaves does not cancel it
        return await self._in_time(self._listing)

    async def read(self, read: Callable[[Lake], T]) -> T:
        """What `read` returns, which is called in a thread. Raises what it raises, and Unavailable."""
        if self._under_way >= READS_AT_ONCE:
            raise TablesBusy(f"{READS_AT_ONCE} tables are being read already")
        self._under_way += 1
        rows = asyncio.ensure_future(self._in_thread(lambda: read(self._lake)))
        rows.add_done_callback(self._has_ended)
        return await self._in_time(rows)

    def _has_ended(self, reading: asyncio.Future[Any]) -> None:
        self._under_way -= 1
        _take_note(reading)

    async def _in_thread(self, call: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, call)

    async def _in_time(self, reading: asyncio.Future[T]) -> T:
        done, _ = await asyncio.wait({reading}, timeout=self._patience_s)
        if not done:
            raise TableReadTooLong(f"reading takes longer than {self._patience_s:g} s")
        return reading.result()

    # in a thread
    def _read_list(self) -> list[TableRow]:
        rows = []
        for name in self._lake.names():
            try:
                table = self._lake.open(name)
            except UnknownTable:
                continue  # removed meanwhile
            with reading(name):
                seen = (str(table.metadata().id), table.version())
                known, row = self._known.get(name, (None, None))
                if row is None or known != seen:
                    row = describe(name, table)
                    self._known[name] = (seen, row)
            rows.append(row)
        return rows


def describe(name: str, table: DeltaTable) -> TableRow:
    """The table's row in the list, from its log alone."""
    files = pa.table(table.get_add_actions(flatten=True))
    counts = files.column("num_records")
    last = table.history(1)
    return TableRow(
        name=name,
        version=table.version(),
        committed_at=last[0].get("timestamp") if last else None,
        # a writer need not say how many rows a file has
        rows=sum(counts.to_pylist()) if not counts.null_count else None,
        files=files.num_rows,
        bytes=sum(files.column("size_bytes").to_pylist()),
        partitioned_by=list(table.metadata().partition_columns),
        columns=columns_of(table),
    )


def _take_note(reading: asyncio.Future[Any]) -> None:
    """Looks at its error: perhaps nobody waits for it any more."""
    if not reading.cancelled():
        reading.exception()
