"""One import from its first question to the last acknowledgement: asks, sends, closes, waits.

Connects the parts of `cli/importing/` with the producer and control. `baton import` and `baton demo` use
`run_import`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from cli.http.client import BatonClient, connect
from cli.http.receipts import MarkerPosition
from cli.importing.closing import TimeBounds
from cli.importing.delivery import await_delivery
from cli.importing.formats import Fields, Format
from cli.importing.lanes import PATIENCE_S, BatchLimits
from cli.importing.lines import open_lines
from cli.importing.pipeline import send_log
from cli.importing.progress import ImportProgress
from cli.importing.tally import Tally
from cli.importing.target import Target, look_up
from cli.terminal.output import time_text
from shared.errors import BatonError
from shared.model.names import DEFAULT_GROUP

WAIT_PATIENCE_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportOptions:
    """One import; `name` is part of the fragments' ids, `group` the one to wait for.

    `marker`: close the sessions at the end of the log; `close`: even where others' sessions may still run.
    """

    file: str
    form: Format
    fields: Fields
    name: str
    url: str
    write_key: str = ""
    control: str
    group: str = DEFAULT_GROUP
    lanes: int = 4
    batch: int = 1000
    marker: bool = True
    close: bool = False
    wait: bool = False
    stall_s: float = 120.0


@dataclass(slots=True)
class Outcome:
    """The result of an import; `failure` says why it was not completed.

    `sending_s` is the part of `seconds` until everything was acknowledged, including the marker. `left_open`
    says why no marker was sent, if the log needs one.
    """

    tally: Tally
    markers: list[MarkerPosition]
    retries: int = 0
    seconds: float = 0.0
    sending_s: float = 0.0
    delivered: bool | None = None
    left_open: str | None = None
    failure: str | None = None

    @property
    def ok(self) -> bool:
        """Whether every line was accepted and the import was completed."""
        return self.failure is None and self.tally.all_accepted


async def run_import(
    options: ImportOptions, on_progress: Callable[[Tally], None] = lambda _: None
) -> Outcome:
    """Runs the whole import. An error ends up in the outcome's `failure`, so that no count is lost.

    `on_progress` gets the counts whenever lines were read or acknowledged.
    """
    outcome = Outcome(Tally(), [])
    started = time.monotonic()
    progress = ImportProgress(outcome.tally)
    # around everything, so that an error is printed below the bar
    with progress.bar:
        try:
            await _import(options, outcome, progress, on_progress)
        # the counts up to here are the most useful part of a failed import
        except BatonError as error:
            outcome.failure = error.detail
    outcome.seconds = time.monotonic() - started
    return outcome


async def _import(
    options: ImportOptions, outcome: Outcome, progress: ImportProgress, on_progress: Callable[[Tally], None]
) -> None:
    def update() -> None:
        progress.update()
        on_progress(outcome.tally)

    # first: nothing is sent to a wrong address, and nothing to wait for in a group that does not exist
    target = await _look_up(options)
    started = time.monotonic()
    # one for each lane, and one for the markers
    connections = options.lanes + 1
    async with connect(
        options.url, patience_s=PATIENCE_S, connections=connections, write_key=options.write_key
    ) as producer:
        try:
            await _send(options, target, producer, outcome.tally, progress, update)
            await _close(options, target.bounds, producer, outcome)
        finally:
            # a failed import reports its retries too: they say whether repeats are possible
            outcome.retries = producer.retries
            outcome.sending_s = time.monotonic() - started
    if options.wait:
        await _await_delivery(options, outcome, progress)


async def _look_up(options: ImportOptions) -> Target:
    # without markers nothing depends on the groups
    control = options.control if options.marker else None
    # a log may come before its default group, which reads it from the beginning
    is_named = options.wait or options.group != DEFAULT_GROUP
    return await look_up(options.url, options.write_key, control, options.group if is_named else None)


async def _send(
    options: ImportOptions,
    target: Target,
    producer: BatonClient,
    tally: Tally,
    progress: ImportProgress,
    update: Callable[[], None],
) -> None:
    """Returns when every line that can be a fragment is acknowledged or rejected."""
    with open_lines(options.file) as lines:
        progress.begin(lines.size)
        await send_log(
            lines,
            options.form,
            options.fields,
            name=options.name,
            table=target.table,
            post=producer.post_fragments,
            lanes=options.lanes,
            limits=BatchLimits(fragments=options.batch),
            tally=tally,
            latest_ms=lambda: target.bounds.latest_ms(_now_ms()),
            on_progress=update,
        )


async def _close(options: ImportOptions, bounds: TimeBounds, producer: BatonClient, outcome: Outcome) -> None:
    """Writes the markers, or says in the outcome why it must not."""
    # after every acknowledgement: an earlier marker would close sessions under the last fragments
    highest_ms = outcome.tally.highest_time_ms
    if not options.marker or highest_ms is None:
        return
    if options.close or bounds.is_past(highest_ms, _now_ms()):
        outcome.markers = await producer.post_markers(highest_ms)
        return
    outcome.left_open = (
        f"the log ends at {time_text(highest_ms)}, so a marker could end sessions that still run, and was not"
        " sent: the sessions end by silence, or at once with --close"
    )


async def _await_delivery(options: ImportOptions, outcome: Outcome, progress: ImportProgress) -> None:
    if outcome.left_open:
        raise BatonError(f"cannot wait for sessions that stay open: {outcome.left_open}")
    # an empty log has nothing to wait for
    if not outcome.markers:
        return
    # until the wait is over: an error in it must not look like a delivery
    outcome.delivered = False
    # control may restart while we wait, which must not fail the import
    async with connect(options.control, patience_s=WAIT_PATIENCE_S) as control:
        await await_delivery(
            lambda: control.pages("/streams", "streams", "stream", {"group": options.group}),
            outcome.markers,
            options.group,
            stall_s=options.stall_s,
            on_progress=progress.delivering,
        )
    outcome.delivered = True


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
