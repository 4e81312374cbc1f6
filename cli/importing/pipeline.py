"""The importer: lines become rows, rows become fragments, and the stream table assigns them to lanes.

It reads only as far ahead as the lanes have room, so memory is bounded for any log. Used by
`cli/importing/command.py`; knows neither click nor HTTP.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future
from typing import TypeVar

from cli.importing.formats import Fields, Format, LineUnreadable, Parser, Row, parser_for
from cli.importing.fragments import Outgoing, encode_fragment, fragment_id, log_digest
from cli.importing.lanes import MAX_BATCH_BYTES, BatchLimits, Lane, Post
from cli.importing.lines import MAX_LINE_BYTES, LineReader
from cli.importing.records import Record, Records, records_for
from cli.importing.tally import Tally
from cli.terminal.output import time_text
from shared.errors import BatonError, InvalidInput
from shared.model.fragments import MAX_TIME_MS
from shared.model.routing import StreamTable

T = TypeVar("T")


async def send_log(
    lines: LineReader,
    form: Format,
    fields: Fields,
    *,
    name: str,
    table: StreamTable,
    post: Post,
    lanes: int,
    limits: BatchLimits,
    tally: Tally,
    latest_ms: Callable[[], int] = lambda: MAX_TIME_MS,
    on_progress: Callable[[], None] = lambda: None,
) -> None:
    """Sends every line of the log called `name`; `tally` has the counts, even when this raises.

    A line with a time after `latest_ms()` is rejected and not sent. Fragments of one stream are sent in the
    log's order, with at most one request per lane in flight. Raises InvalidInput when the log as a whole
    cannot be imported, Unavailable when the producer stays unavailable beyond the client's patience,
    BatonError when it sends an invalid response.
    """
    records, parser = records_for(form), parser_for(form, fields)
    fleet = [Lane(post, tally, limits, on_progress) for _ in range(max(1, min(lanes, table.count)))]
    # a stream always goes through the same lane, which keeps the order of its fragments
    lane_of = [fleet[stream % len(fleet)] for stream in range(table.count)]

    async def read() -> None:
        async for key, fragment in _fragments(
            lines, records, parser, log_digest(name), tally, latest_ms, on_progress
        ):
            await lane_of[table.stream_for(key.encode())].offer(fragment)
        # only now: before, a lane with an empty queue would have ended too early
        for lane in fleet:
            lane.close()

    try:
        async with asyncio.TaskGroup() as tasks:
            for number, lane in enumerate(fleet):
                tasks.create_task(lane.run(), name=f"lane {number}")
            tasks.create_task(read(), name="read the log")
    except* BatonError as failures:
        # several lanes may fail at once, and the caller wants one sentence
        raise _first(failures) from None


async def _fragments(
    lines: LineReader,
    records: Records,
    parser: Parser,
    digest: str,
    tally: Tally,
    latest_ms: Callable[[], int],
    on_progress: Callable[[], None],
) -> AsyncIterator[tuple[str, Outgoing]]:
    """The key and the fragment of every record that becomes one, in the log's order."""
    latest = 0
    while (block := await _in_daemon_thread(lines.read_block)) is not None:
        latest = latest_ms()
        for line in block:
            for record in records.feed(line):
                if found := _fragment(parser, record, digest, tally, latest):
                    yield found
        # once a block: the bar needs no more
        tally.bytes_read, tally.position = lines.bytes_read, lines.position
        on_progress()
    for record in records.finish():
        if found := _fragment(parser, record, digest, tally, latest):
            yield found


def _fragment(
    parser: Parser, record: Record, digest: str, tally: Tally, latest_ms: int
) -> tuple[str, Outgoing] | None:
    """The key and the fragment of a record; None if it has none, or if it was counted as not acceptable."""
    row = _parse(parser, record, tally)
    if row is None:
        return None
    if row.time_ms > latest_ms:
        detail = f"{time_text(row.time_ms)} is in the future: is the clock or --time-unit wrong?"
        tally.count_unsent(record.first, "future", detail)
        return None
    value = encode_fragment(row, fragment_id(digest, record.first, record.raw or b""))
    # known without asking: no request could hold it
    if len(value) >= MAX_BATCH_BYTES:
        tally.count_unsent(record.first, "size", f"the fragment would have {len(value)} bytes")
        return None
    return row.key, Outgoing(record.first, row.time_ms, value)


def _parse(parser: Parser, record: Record, tally: Tally) -> Row | None:
    if record.raw is None:
        tally.count_unparsed(record.first, "size", f"the line is longer than {MAX_LINE_BYTES} bytes")
        return None
    try:
        row = parser.feed(record.raw)
    except LineUnreadable as error:
        detail = error.detail
        if record.lines > 1:
            detail = f"a quote joins lines {record.first} to {record.last}: {detail}"
        # a stray quote may have joined what were whole records
        tally.count_unparsed(record.first, error.reason, detail, lines=record.lines)
        return None
    if row is not None:
        tally.lines += 1
        tally.parsed += 1
    return row


def _first(failures: BaseExceptionGroup[BatonError]) -> BatonError:
    """The failure to report: a fault of the log comes before one of the network."""
    error: BaseException = failures.subgroup(InvalidInput) or failures
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    assert isinstance(error, BatonError)
    return error


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
