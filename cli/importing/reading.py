"""Reads a log to the end and makes a fragment of every record that becomes one, in the log's order.

Records that do not become one are noted with their reason, and those that an earlier run has settled are
skipped. Used by `cli/importing/pipeline.py`.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future
from typing import TypeVar

from cli.importing.formats import Fields, Format, LineUnreadable, Row, parser_for
from cli.importing.fragments import Outgoing, encode_fragment, fragment_id, log_digest
from cli.importing.lanes import MAX_BATCH_BYTES
from cli.importing.lines import MAX_LINE_BYTES, LineReader
from cli.importing.notes import Notes
from cli.importing.records import Record, records_for
from cli.terminal.output import time_text
from shared.model.routing import StreamTable

T = TypeVar("T")


class FragmentReader:
    """Reads `lines` as the log called `name`.

    A record with a time after `latest_ms()` is rejected. Raises InvalidInput when the log has not the fields.
    """

    def __init__(
        self,
        lines: LineReader,
        form: Format,
        fields: Fields,
        *,
        name: str,
        table: StreamTable,
        notes: Notes,
        latest_ms: Callable[[], int],
    ) -> None:
        self._lines = lines
        self._records = records_for(form)
        self._parser = parser_for(form, fields)
        self._digest = log_digest(name)
        self._table = table
        self._notes = notes
        self._latest_ms = latest_ms
        self._latest = 0

    async def fragments(self, on_block: Callable[[], None]) -> AsyncIterator[Outgoing]:
        """The fragments to send; `on_block` is called whenever a block was read."""
        lines, tally = self._lines, self._notes.tally
        while (block := await _in_daemon_thread(lines.read_block)) is not None:
            self._latest = self._latest_ms()
            for line in block:
                for record in self._records.feed(line):
                    if fragment := self._fragment(record):
                        yield fragment
            # once a block: the bar needs no more
            tally.bytes_read, tally.position = lines.bytes_read, lines.position
            self._notes.flush()
            on_block()
        for record in self._records.finish():
            if fragment := self._fragment(record):
                yield fragment
        self._notes.flush()

    def _fragment(self, record: Record) -> Outgoing | None:
        """The record's fragment; None if it has none, was settled before, or is noted as not acceptable."""
        row = self._row(record)
        if row is None:
            return None
        stream = self._table.stream_for(row.key.encode())
        if self._notes.is_settled(stream, record):
            return None
        if row.time_ms > self._latest:
            detail = f"{time_text(row.time_ms)} is in the future: is the clock or --time-unit wrong?"
            self._notes.count_unsent(record, "future", detail)
            return None
        raw = record.raw or b""
        value = encode_fragment(row, fragment_id(self._digest, record.first, raw))
        # known without asking: no request could hold it
        if len(value) >= MAX_BATCH_BYTES:
            self._notes.count_unsent(record, "size", f"the fragment would have {len(value)} bytes")
            return None
        return Outgoing(record.first, row.time_ms, value, stream, raw)

    def _row(self, record: Record) -> Row | None:
        notes = self._notes
        if record.raw is None:
            notes.count_unparsed(record, "size", f"the line is longer than {MAX_LINE_BYTES} bytes")
            return None
        try:
            row = self._parser.feed(record.raw)
        except LineUnreadable as error:
            detail = error.detail
            if record.lines > 1:
                detail = f"a quote joins lines {record.first} to {record.last}: {detail}"
            notes.count_unparsed(record, error.reason, detail)
            return None
        if row is None:
            notes.header = self._parser.header
            return None
        # parsed all the same, because the header is among the old lines
        if notes.is_old(record):
            return None
        notes.tally.lines += 1
        notes.tally.parsed += 1
        return row


async def _in_daemon_thread(call: Callable[[], T]) -> T:
    """The result of a blocking call in a thread that does not keep the process alive.

    A read of standard input may never return; the thread of a pool would then keep the process from ending.
    """
    done: Future[T] = Future()
    # a running future cannot be cancelled: when the import fails meanwhile, the thread still ends quietly
    done.set_running_or_notify_cancel()

    def work() -> None:
        try:
            done.set_result(call())
        except BaseException as error:
            done.set_exception(error)

    threading.Thread(target=work, name="read a block", daemon=True).start()
    return await asyncio.wrap_future(done)
