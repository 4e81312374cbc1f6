"""Reads tables of the lake for control, by deltalake's engine, in threads: control's loop never waits.

At most `READS_AT_ONCE` reads are under way; a further one is refused at once, because each may hold the rows
of a page and as much again. Used by `api/tables.py`.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder
from deltalake.exceptions import DeltaError

from services.control.core.lake.tables import Asked, ColumnRow, Page, TableRow
from services.control.tables import statements
from services.control.tables.cursor import Cursor, check_place, fingerprint, parse_cursor
from services.control.tables.formats import encode
from services.control.tables.lake import Lake, LakeUnavailable, UnknownTable, columns_of, reading
from services.control.tables.query import Query, QueryInvalid, Value, parse_query
from shared.errors import Conflict, Unavailable

READS_AT_ONCE = 2
PATIENCE_S = 30.0
"""A read that takes longer is answered with 503; its thread ends when the engine does."""
MAX_PAGE_BYTES = 16 * 1024 * 1024
"""Of a page's sessions, by their own sizes; a page has at least one row."""
MAX_ROWS_BYTES = 8 * MAX_PAGE_BYTES
"""Of a page of any table in memory."""

T = TypeVar("T")


class TablesBusy(Unavailable):
    """Too many tables are being read."""


class TableReadTooLong(Unavailable):
    """Reading the table takes too long; filters on key, group or day make it faster."""


class TableChanged(Conflict):
    """The version of the table that the first page was read from is gone; begin with the first page again."""


class TableReader:
    """A `TableSource`. Call `close` at the end."""

    def __init__(self, lake: Lake, *, patience_s: float = PATIENCE_S) -> None:
        self._lake = lake
        self._patience_s = patience_s
        # one more for the list, which is short and must not wait for pages
        self._threads = ThreadPoolExecutor(READS_AT_ONCE + 1, thread_name_prefix="tables")
        self._under_way = 0
        self._is_closed = False
        self._listing: asyncio.Task[list[TableRow]] | None = None
        self._known: dict[str, tuple[tuple[str, int], TableRow]] = {}

    def __repr__(self) -> str:
        return f"<TableReader of {self._lake!r}, {self._under_way} reads under way>"

    def close(self) -> None:
        """Ends what is under way with its next rows: the engine itself cannot be interrupted."""
        self._is_closed = True
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def tables(self) -> list[TableRow]:
        """The tables, by name. Raises Unavailable."""
        if self._listing is None or self._listing.done():
            self._listing = asyncio.ensure_future(self._in_thread(self._read_list))
            self._listing.add_done_callback(_take_note)
        # shared by all who ask meanwhile, so that one who leaves does not cancel it
        return await self._in_time(self._listing)

    async def page(self, asked: Asked) -> Page:
        """A page of a table. Raises UnknownTable, QueryInvalid, TableChanged, Unavailable."""
        if self._under_way >= READS_AT_ONCE:
            raise TablesBusy(f"{READS_AT_ONCE} tables are being read already")
        self._under_way += 1
        page = asyncio.ensure_future(self._in_thread(lambda: self._read_page(asked)))
        page.add_done_callback(self._has_ended)
        return await self._in_time(page)

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

    def _read_page(self, asked: Asked) -> Page:
        until_s = time.monotonic() + self._patience_s

        def check() -> None:
            if self._is_closed or time.monotonic() > until_s:
                raise TableReadTooLong

        cursor = parse_cursor(asked.after) if asked.after else None
        table = self._lake.open(asked.name)
        if cursor is not None:
            table = self._at_version(asked.name, table, cursor)
        query = parse_query(columns_of(table), asked.filters, columns=asked.columns, sort=asked.sort)
        if cursor is not None:
            check_place(cursor, query)
        engine = QueryBuilder().register(statements.TABLE, table)
        skip, place = (cursor.skip, cursor.place) if cursor else (0, None)
        first_step = statements.places_statement(query, place, skip, asked.limit + 1)
        found = _run(engine, first_step, check)
        count = _fitting(found, query, asked.limit)
        places = [_place(found, query, at) for at in (0, count - 1)] if count else []
        if not count:
            second_step = statements.rows_statement(query, [], [], 0, 0)
        else:
            again = skip if places[0] == place or not query.order else 0
            second_step = statements.rows_statement(query, places[0], places[-1], again, count)
        rows = _run(engine, second_step, check)
        following = None
        if count < found.num_rows:
            following = self._cursor(table, query, found, count, skip, place).text()
        body = encode(rows, asked.kind, table=asked.name, version=table.version(), next=following)
        return Page(body=body, next=following)

    def _at_version(self, name: str, newest: DeltaTable, cursor: Cursor) -> DeltaTable:
        gone = f"version {cursor.version} of table {name} is gone; begin with the first page again"
        if str(newest.metadata().id) != cursor.table or cursor.version > newest.version():
            raise TableChanged(gone)
        if cursor.version == newest.version():
            return newest
        try:
            return self._lake.open(name, cursor.version)
        except LakeUnavailable:
            raise TableChanged(gone) from None

    @staticmethod
    def _cursor(
        table: DeltaTable,
        query: Query,
        found: pa.Table,
        count: int,
        skip: int,
        before: Sequence[Value] | None,
    ) -> Cursor:
        last = _place(found, query, count - 1)
        equal = 0
        while equal < count and _place(found, query, count - 1 - equal) == last:
            equal += 1
        if equal == count and (before == last or not query.order):
            equal += skip  # the pages before ended at the same place
        return Cursor(
            table=str(table.metadata().id),
            version=table.version(),
            query=fingerprint(query),
            skip=equal,
            place=last,
        )


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
        columns=[ColumnRow(name=one.name, type=one.type) for one in columns_of(table)],
    )


def _take_note(reading: asyncio.Future[Any]) -> None:
    """Looks at its error: perhaps nobody waits for it any more."""
    if not reading.cancelled():
        reading.exception()


def _run(engine: QueryBuilder, statement: str, check: Callable[[], None]) -> pa.Table:
    """The statement's rows; calls `check` between them. Raises TableChanged, Unavailable, QueryInvalid."""
    try:
        reader = pa.RecordBatchReader.from_stream(engine.execute(statement))
        batches, size = [], 0
        for batch in reader:
            batches.append(batch)
            size += batch.nbytes
            if size > MAX_ROWS_BYTES:
                fault = f"the page has more than {MAX_ROWS_BYTES >> 20} MB: choose fewer columns or rows"
                raise QueryInvalid([("limit", fault)])
            check()
        return pa.Table.from_batches(batches, reader.schema)
    except (DeltaError, OSError, pa.ArrowException) as error:
        if "not found" in str(error).lower() or "no such file" in str(error).lower():
            raise TableChanged from None
        raise LakeUnavailable("the table cannot be read", cause=str(error)) from None


def _fitting(found: pa.Table, query: Query, limit: int) -> int:
    """How many of the rows make up the page."""
    count = min(limit, int(found.num_rows))
    if not query.weight or query.weight not in found.column_names:
        return count
    size = 0
    for at, weight in enumerate(found.column(query.weight).slice(0, count).to_pylist()):
        size += weight or 0
        if size > MAX_PAGE_BYTES:
            return max(1, int(at))
    return count


def _place(found: pa.Table, query: Query, at: int) -> list[Value]:
    """The values by which a row is ordered, as a cursor has them."""
    return [_plain(found.column(order.column.name)[at], order.column.kind) for order in query.order]


def _plain(value: Any, kind: str) -> Value:
    if kind == "time":
        value = value.cast(pa.timestamp("us", value.type.tz)).cast(pa.int64())
    plain: Value = value.as_py() if kind != "date" else value.cast(pa.string()).as_py()
    if isinstance(plain, float) and not math.isfinite(plain):
        return None if math.isnan(plain) else repr(plain)  # JSON has no such numbers
    return plain
