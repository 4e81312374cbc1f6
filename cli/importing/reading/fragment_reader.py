"""Reads a log to the end and makes a fragment of every record that becomes one, in the log's order.

Records that do not become one are noted with their reason, and those that an earlier run has settled are
skipped. Used by `sending/pipeline.py`.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator
from concurrent.futures import Future
from typing import TypeVar

from cli.importing.parsing.formats import Format, parser_for
from cli.importing.parsing.fragments import MAX_BATCH_BYTES, Outgoing, encode_fragment, fragment_id
from cli.importing.parsing.rows import Fields, LineUnreadable, Row
from cli.importing.reading.clocks import ClockWatch, Doubt
from cli.importing.reading.lines import MAX_LINE_BYTES, LineReader
from cli.importing.reading.notes import Notes
from cli.importing.reading.records import Record, records_for
from cli.terminal.output import time_text
from shared.model.routing import StreamTable

T = TypeVar("T")


Parsed = Row | LineUnreadable | None
"""What became of a record; None for a blank line, a header, or a line of an earlier import."""


class FragmentReader:
    """Reads `lines` as the log that `digest` identifies.

    A record with a time after `latest_ms()` is rejected, and so is one with a doubt that `refuses` names; a
    time is far ahead by `jump_ms`. Raises InvalidInput when the log has not the fields.
    """

    def __init__(
        self,
        lines: LineReader,
        form: Format,
        fields: Fields,
        *,
        digest: str,
        table: StreamTable,
        notes: Notes,
        latest_ms: Callable[[], int],
        jump_ms: int,
        refuses: Collection[Doubt],
    ) -> None:
        self._lines = lines
        self._records = records_for(form)
        self._parser = parser_for(form, fields)
        self._digest = digest
        self._table = table
        self._notes = notes
        self._latest_ms = latest_ms
        self._refuses = refuses
        self._clocks: ClockWatch[tuple[Record, Parsed]] = ClockWatch(jump_ms)
        self._latest = 0

    async def fragments(self, on_block: Callable[[], None]) -> AsyncIterator[Outgoing]:
        """The fragments to send; `on_block` is called whenever a block was read."""
        lines, tally = self._lines, self._notes.tally
        while (block := await _in_daemon_thread(lines.read_block)) is not None:
            self._latest = self._latest_ms()
            for line in block:
                for fragment in self._judged(self._records.feed(line)):
                    yield fragment
            # a pipe may give nothing more for hours
            if lines.size is None:
                for fragment in self._fragments(self._clocks.finish()):
                    yield fragment
            # once a block: the bar needs no more
            tally.bytes_read, tally.position, tally.nuls = lines.bytes_read, lines.position, lines.nuls
            self._notes.flush()
            on_block()
        for fragment in self._judged(self._records.finish()):
            yield fragment
        for fragment in self._fragments(self._clocks.finish()):
            yield fragment
        tally.waiting = int(lines.is_waiting)
        self._notes.flush()

    def _judged(self, records: Iterable[Record]) -> Iterator[Outgoing]:
        """The fragments of these records and those held back before, as soon as their times are judged."""
        for record in records:
            parsed = self._parsed(record)
            # a time that is refused anyway says nothing about others
            time_ms = parsed.time_ms if isinstance(parsed, Row) and parsed.time_ms <= self._latest else None
            for (earlier, its), doubt in self._clocks.feed((record, parsed), time_ms):
                if fragment := self._fragment(earlier, its, doubt):
                    yield fragment

    def _fragments(self, judged: Iterable[tuple[tuple[Record, Parsed], Doubt | None]]) -> Iterator[Outgoing]:
        for (record, parsed), doubt in judged:
            if fragment := self._fragment(record, parsed, doubt):
                yield fragment

    def _fragment(self, record: Record, row: Parsed, doubt: Doubt | None) -> Outgoing | None:
        """The record's fragment; None if it has none, was settled before, or is noted as not acceptable."""
        notes = self._notes
        if isinstance(row, LineUnreadable):
            notes.count_unparsed(record, row.reason, row.detail)
            return None
        # parsed all the same, because the header is among the old lines
        if row is None or notes.is_old(record):
            return None
        notes.tally.lines += 1
        notes.tally.parsed += 1
        if doubt and doubt not in self._refuses:
            notes.tally.count_doubt(record.first, doubt, lambda: _doubt_text(doubt, row.time_ms))
        stream = self._table.stream_for(row.key.encode())
        if notes.is_settled(stream, record):
            return None
        if row.time_ms > self._latest:
            detail = f"{time_text(row.time_ms)} is in the future: is the clock or --time-unit wrong?"
            notes.count_unsent(record, "future", detail)
            return None
        if doubt in self._refuses:
            notes.count_unsent(record, str(doubt), _doubt_text(doubt, row.time_ms))
            return None
        raw = record.raw or b""
        value = encode_fragment(row, fragment_id(self._digest, record.first, raw))
        # known without asking: no request could hold it
        if len(value) >= MAX_BATCH_BYTES:
            notes.count_unsent(record, "size", f"the fragment would have {len(value)} bytes")
            return None
        return Outgoing(record.first, None if doubt == "ahead" else row.time_ms, value, stream, raw)

    def _parsed(self, record: Record) -> Parsed:
        if record.raw is None:
            return LineUnreadable("size", f"the line is longer than {MAX_LINE_BYTES} bytes")
        try:
            row = self._parser.feed(record.raw)
        except LineUnreadable as error:
            if record.lines > 1:
                joined = f"a quote joins lines {record.first} to {record.last}"
                return LineUnreadable(error.reason, f"{joined}: {error.detail}")
            return error
        if row is None:
            self._notes.header = self._parser.header
        return row


def _doubt_text(doubt: Doubt | None, time_ms: int) -> str:
    if doubt == "ahead":
        return f"{time_text(time_ms)} is far ahead of the lines around it, and may end the sessions of others"
    return f"{time_text(time_ms)} is before 2000: is --time-unit wrong, or was a clock not set?"


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
