"""One import from its first question to the last acknowledgement: asks, books, sends, closes, waits.

Connects the parts of `cli/importing/` with the producer and control. `baton import` and `baton demo` use
`run_import`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from cli.http.client import BatonClient, connect
from cli.http.control import connect_to_control
from cli.http.receipts import MarkerPosition, Receipt
from cli.importing.books.booking import Booking
from cli.importing.books.ledger import Ledger
from cli.importing.books.leftovers import is_same_file
from cli.importing.books.start import Start, find_start
from cli.importing.options import ImportOptions, Outcome
from cli.importing.progress import ImportProgress
from cli.importing.reading.lines import open_lines
from cli.importing.sending.closing import TimeBounds
from cli.importing.sending.lanes import PATIENCE_S, BatchLimits
from cli.importing.sending.pipeline import send_log
from cli.importing.sending.target import Target, look_up
from cli.importing.sending.waiting import await_delivery
from cli.terminal.exit_codes import exit_code_for
from cli.terminal.output import time_text
from shared.errors import BatonError, InvalidInput
from shared.model.names import DEFAULT_GROUP

WAIT_PATIENCE_S = 60.0


async def run_import(
    options: ImportOptions, on_progress: Callable[[Outcome], None] = lambda _: None
) -> Outcome:
    """Runs the whole import. An error ends up in the outcome's `failure`, so that no count is lost.

    `on_progress` gets it, as it stands, whenever lines were read or acknowledged.
    """
    outcome = Outcome(dry_run=options.dry_run)
    started = time.monotonic()
    progress = ImportProgress()
    # around everything, so that an error is printed below the bar
    with progress.bar:
        try:
            await _import(options, outcome, progress, on_progress)
        # the counts up to here are the most useful part of a failed import
        except BatonError as error:
            outcome.failure = error.detail
            outcome.failed_with = exit_code_for(error)
    outcome.seconds = time.monotonic() - started
    return outcome


async def _import(
    options: ImportOptions, outcome: Outcome, progress: ImportProgress, on_progress: Callable[[Outcome], None]
) -> None:
    def update() -> None:
        progress.update(outcome.tally, outcome.tally.accepted - outcome.earlier)
        on_progress(outcome)

    # first: nothing is sent to a wrong address, and nothing to wait for in a group that does not exist
    target = await _look_up(options)
    booking = await _book(options, target)
    outcome.notice, outcome.tally = booking.start.notice, booking.notes.tally
    outcome.earlier = outcome.tally.accepted
    on_progress(outcome)
    try:
        await _send_and_close(options, target, booking, outcome, progress, update)
    finally:
        booking.close()
        outcome.rejected_file, outcome.left_out = booking.rejected_file, booking.left_out
    if options.wait and not options.dry_run:
        await _await_delivery(options, outcome, booking.start.markers or outcome.markers, progress)


async def _look_up(options: ImportOptions) -> Target:
    # without markers nothing depends on the groups
    control = options.control if options.marker else None
    # a log may come before its default group, which reads it from the beginning
    is_named = options.wait or options.group != DEFAULT_GROUP
    return await look_up(options.url, options.write_key, control, options.group if is_named else None)


async def _book(options: ImportOptions, target: Target) -> Booking:
    """The books of this import. Raises Conflict if the log was imported before."""
    if options.rejected is not None and is_same_file(options.rejected, options.file):
        raise InvalidInput(f"{options.rejected} is the log itself: give --rejected another file")
    if options.state is None:
        return Booking(Start(name=options.name), None, options.rejected)
    ledger = Ledger(options.state)
    start = await find_start(
        options,
        target.table.version,
        target.cluster,
        ledger,
        lambda time_ms: _may_close(options, target.bounds, time_ms),
    )
    # a dry run looks at the ledger, but enters nothing
    return Booking(start, None if options.dry_run else ledger, options.rejected)


async def _send_and_close(
    options: ImportOptions,
    target: Target,
    booking: Booking,
    outcome: Outcome,
    progress: ImportProgress,
    update: Callable[[], None],
) -> None:
    started = time.monotonic()
    # one for each lane, and one for the markers
    connections = options.lanes + 1
    async with connect(
        options.url,
        patience_s=PATIENCE_S,
        # the producer has answered the first questions, so it is only restarting
        connect_patience_s=PATIENCE_S,
        connections=connections,
        bearer=options.write_key,
    ) as producer:
        try:
            if not booking.start.is_sent:
                await _send(options, target, booking, producer, progress, update)
            await _close(options, target.bounds, booking, producer, outcome)
        finally:
            # a failed import reports its retries too: they say whether repeats are possible
            outcome.retries = producer.retries
            outcome.sending_s = time.monotonic() - started


async def _send(
    options: ImportOptions,
    target: Target,
    booking: Booking,
    producer: BatonClient,
    progress: ImportProgress,
    update: Callable[[], None],
) -> None:
    """Returns when every line that can be a fragment is acknowledged or rejected."""
    begun = booking.start.begun
    with open_lines(options.file, ends=options.close) as lines:
        progress.begin(lines.size)
        await send_log(
            lines,
            options.form,
            options.fields,
            name=booking.start.name,
            origin="" if begun is None else begun.origin,
            table=target.table,
            post=_count_only if options.dry_run else options.pace(producer.post_fragments),
            lanes=options.lanes,
            limits=BatchLimits(fragments=options.batch),
            notes=booking.notes,
            latest_ms=lambda: target.bounds.latest_ms(_now_ms()),
            jump_ms=target.bounds.silence_ms,
            refuses=options.refuses,
            on_progress=update,
        )
        booking.enter_sent(lines)


async def _count_only(body: bytes) -> Receipt:
    """What a dry run does instead of posting: it accepts all."""
    return Receipt(accepted=body.count(b"\n") + 1)


async def _close(
    options: ImportOptions, bounds: TimeBounds, booking: Booking, producer: BatonClient, outcome: Outcome
) -> None:
    """Writes the markers, or says in the outcome why it must not."""
    # after every acknowledgement: an earlier marker would close sessions under the last fragments
    highest_ms = outcome.tally.highest_time_ms
    if not options.marker or highest_ms is None:
        return
    if not _may_close(options, bounds, highest_ms):
        outcome.left_open = (
            f"the log ends at {time_text(highest_ms)}, so a marker could end sessions that still run, and was"
            " not sent: the sessions end by silence, or at once with --close"
        )
    elif not options.dry_run:
        outcome.markers = await producer.post_markers(highest_ms)
        booking.enter_closed(outcome.markers)


def _may_close(options: ImportOptions, bounds: TimeBounds, time_ms: int) -> bool:
    return options.marker and (options.close or bounds.is_past(time_ms, _now_ms()))


async def _await_delivery(
    options: ImportOptions, outcome: Outcome, markers: Sequence[MarkerPosition], progress: ImportProgress
) -> None:
    if outcome.left_open:
        raise BatonError(f"cannot wait for sessions that stay open: {outcome.left_open}")
    # an empty log has nothing to wait for
    if not markers:
        return
    # until the wait is over: an error in it must not look like a delivery
    outcome.delivered = False
    # control may restart while we wait, which must not fail the import
    async with connect_to_control(
        options.control, patience_s=WAIT_PATIENCE_S, connect_patience_s=WAIT_PATIENCE_S
    ) as control:
        await await_delivery(
            lambda: control.pages("/streams", "streams", "stream", {"group": options.group}),
            markers,
            options.group,
            stall_s=options.stall_s,
            on_progress=progress.delivering,
        )
    outcome.delivered = True


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
