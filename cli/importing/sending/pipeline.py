"""The importer: lines become fragments, and the stream table assigns them to lanes.

It reads only as far ahead as the lanes have room, so memory is bounded for any log. Used by
`cli/importing/run.py`; knows neither click nor HTTP.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence

from cli.importing.parsing.formats import Format
from cli.importing.parsing.fragments import Outgoing, log_digest
from cli.importing.parsing.rows import Fields
from cli.importing.reading.clocks import Doubt
from cli.importing.reading.fragment_reader import FragmentReader
from cli.importing.reading.lines import LineReader
from cli.importing.reading.notes import Notes
from cli.importing.sending.closing import bounds_of
from cli.importing.sending.lanes import BatchLimits, Lane, Post
from shared.errors import BatonError, InvalidInput
from shared.model.fragments import MAX_TIME_MS
from shared.model.routing import StreamTable


async def send_log(
    lines: LineReader,
    form: Format,
    fields: Fields,
    *,
    name: str,
    origin: str = "",
    table: StreamTable,
    post: Post,
    lanes: int,
    limits: BatchLimits,
    notes: Notes,
    latest_ms: Callable[[], int] = lambda: MAX_TIME_MS,
    jump_ms: int = bounds_of(()).silence_ms,
    refuses: Collection[Doubt] = (),
    on_progress: Callable[[], None] = lambda: None,
) -> None:
    """Sends every line of a log that is not settled; `notes` has the counts, even on errors.

    `name` and `origin` identify the log in the fragments' ids. A line with a time after `latest_ms()` is
    rejected and not sent, and so is one of the doubts in `refuses` (a time is far ahead by `jump_ms`).
    Fragments of one stream are sent in the log's order, with at most one request per lane in flight. Raises
    InvalidInput when the log as a whole cannot be imported, Unavailable when the producer stays unavailable
    beyond the client's patience, BatonError when it sends an invalid response.
    """
    reader = FragmentReader(
        lines,
        form,
        fields,
        digest=log_digest(name, origin),
        table=table,
        notes=notes,
        latest_ms=latest_ms,
        jump_ms=jump_ms,
        refuses=refuses,
    )

    def settle(batch: Sequence[Outgoing], rejected: Collection[int]) -> None:
        notes.settle(batch, rejected)
        on_progress()

    fleet = [Lane(post, notes.tally, limits, settle) for _ in range(max(1, min(lanes, table.count)))]
    # a stream always goes through the same lane, which keeps the order of its fragments
    lane_of = [fleet[stream % len(fleet)] for stream in range(table.count)]

    async def read() -> None:
        async for fragment in reader.fragments(on_progress):
            await lane_of[fragment.stream].offer(fragment)
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
    finally:
        # the reader may have been interrupted within a block
        notes.flush()


def _first(failures: BaseExceptionGroup[BatonError]) -> BatonError:
    """The failure to report: a fault of the log comes before one of the network."""
    error: BaseException = failures.subgroup(InvalidInput) or failures
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    assert isinstance(error, BatonError)
    return error
