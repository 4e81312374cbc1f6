"""`baton import`: sends any text log over HTTP, closes it with a marker, and counts every line.

Wires the parts of `cli/importing/` to the producer and control, shows progress and prints the summary.
`baton demo` imports its log through `run_import`.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import click

from cli.http.client import connect
from cli.http.receipts import MarkerPosition
from cli.importing.delivery import await_delivery
from cli.importing.formats import FORMATS, Fields, Format, parser_for
from cli.importing.lanes import MAX_BATCH_FRAGMENTS, PATIENCE_S, BatchLimits
from cli.importing.lines import STDIN, open_lines
from cli.importing.pipeline import send_log
from cli.importing.progress import ImportProgress
from cli.importing.tally import Tally
from cli.importing.times import TIME_UNITS, TimeUnit
from cli.terminal.options import group_option, output_option, producer_options, wait_url_option
from cli.terminal.output import print_json, print_table
from shared.errors import BatonError
from shared.model.names import DEFAULT_GROUP

WAIT_PATIENCE_S = 60.0
LINE_COUNTS = ("lines", "parsed", "unparsed", "sent", "accepted", "rejected")


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportOptions:
    """One import; `control` and `group` are those to wait for, `name` is part of the fragments' ids."""

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
    wait: bool = False
    stall_s: float = 120.0


@dataclass(slots=True)
class Outcome:
    """The result of an import; `failure` says why it was not completed.

    `sending_s` is the part of `seconds` until everything was acknowledged, including the marker.
    """

    tally: Tally
    markers: list[MarkerPosition]
    retries: int = 0
    seconds: float = 0.0
    sending_s: float = 0.0
    delivered: bool | None = None
    failure: str | None = None

    @property
    def ok(self) -> bool:
        """Whether every line was accepted and the import was completed."""
        return self.failure is None and self.tally.all_accepted


@click.command("import")
@click.argument("file")
@click.option("--format", "form", type=click.Choice(FORMATS), required=True, help="Format of the lines.")
@click.option("--key", help="Field with the session key of a line (default for access-log: host).")
@click.option("--time", "time_field", help="Field with the event time (default for access-log: time).")
@click.option(
    "--time-unit",
    type=click.Choice(TIME_UNITS),
    default="auto",
    help="auto: numbers below 1e11 are seconds, larger ones ms; text is CLF or RFC 3339.",
)
@click.option("--end", help="Field that is true (true, 1, yes) on a session's last line.")
@click.option("--name", help="Name of the log, part of the fragments' ids; default: the file's name.")
@producer_options
@wait_url_option
@group_option
@click.option("--lanes", type=click.IntRange(1, 64), default=4, help="Number of parallel requests.")
@click.option(
    "--batch",
    type=click.IntRange(1, MAX_BATCH_FRAGMENTS),
    default=1000,
    help="Most fragments per request.",
)
@click.option("--wait", is_flag=True, help="Wait until the group has delivered every session.")
@click.option(
    "--stall",
    "stall_s",
    type=click.FloatRange(1),
    default=120,
    help="Seconds without a commit after which --wait fails.",
)
@click.option("--no-marker", is_flag=True, help="Leave the sessions open at the end of the log.")
@output_option
def import_command(output: str, **given: Any) -> None:
    """Send the log FILE (`-`: standard input; gzip is unpacked) to the producer.

    Every line becomes a fragment whose data holds the line's fields. Each stream keeps the log's order. A
    fragment's id is made of the log's name, the line's number and its content, so that a retried request (for
    up to 4 minutes) or a repeated import duplicates nothing. After the last acknowledgement a marker with the
    highest time closes the sessions.

    tsv and csv need a header line. Text is UTF-8; other lines are read as Latin-1, or rejected in ndjson. For
    ndjson, --key, --time and --end may be dotted paths into the objects.

    The exit code is 1 if any line was not accepted, including unreadable ones.
    """
    outcome = asyncio.run(run_import(parse_options(**given)))
    print_json(summary(outcome)) if output == "json" else _print(outcome)
    if outcome.failure:
        click.echo(f"import: {outcome.failure}", err=True)
    sys.exit(0 if outcome.ok else 1)


def parse_options(
    *,
    file: str,
    form: Format,
    key: str | None,
    time_field: str | None,
    time_unit: TimeUnit,
    end: str | None,
    name: str | None,
    no_marker: bool,
    wait: bool,
    **others: Any,
) -> ImportOptions:
    """The options of the command line, with the format's defaults. Raises click.UsageError."""
    if wait and no_marker:
        raise click.UsageError("--wait waits for the marker, so it excludes --no-marker")
    # its fields are fixed, so they can have defaults
    if form == "access-log":
        key, time_field = key or "host", time_field or "time"
    if not key or not time_field:
        raise click.UsageError(f"--format {form} needs --key and --time")
    return ImportOptions(
        file=file,
        form=form,
        fields=Fields(key=key, time=time_field, unit=time_unit, end=end),
        name=name or (file if file == STDIN else Path(file).name),
        marker=not no_marker,
        wait=wait,
        **others,
    )


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
    tally, started = outcome.tally, time.monotonic()

    def update() -> None:
        progress.update()
        on_progress(tally)

    parser = parser_for(options.form, options.fields)
    with open_lines(options.file) as lines:
        progress.begin(lines.size)
        # one for each lane, and one for the table and the markers
        connections = options.lanes + 1
        async with connect(
            options.url, patience_s=PATIENCE_S, connections=connections, write_key=options.write_key
        ) as producer:
            try:
                await send_log(
                    lines,
                    parser,
                    name=options.name,
                    table=await producer.table(),
                    post=producer.post_fragments,
                    lanes=options.lanes,
                    limits=BatchLimits(fragments=options.batch),
                    tally=tally,
                    on_progress=update,
                )
                # after every acknowledgement: an earlier marker would close sessions under the last fragments
                if options.marker and tally.highest_time_ms is not None:
                    outcome.markers = await producer.post_markers(tally.highest_time_ms)
            finally:
                # a failed import reports its retries too: they say whether repeats are possible
                outcome.retries = producer.retries
                outcome.sending_s = time.monotonic() - started
    # without markers nothing was sent, so nothing can be awaited
    if options.wait and outcome.markers:
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


def summary(outcome: Outcome) -> dict[str, Any]:
    """The outcome as `-o json` prints it."""
    tally = outcome.tally
    return {
        **{name: getattr(tally, name) for name in LINE_COUNTS},
        "retries": outcome.retries,
        "repeats_possible": outcome.retries > 0,
        "bytes": tally.bytes,
        "bytes_read": tally.bytes_read,
        "highest_time": tally.highest_time_ms,
        "reasons": [{"reason": reason, **asdict(found)} for reason, found in tally.reasons.items()],
        "markers": outcome.markers,
        "delivered": outcome.delivered,
        "seconds": round(outcome.seconds, 3),
        "sending_s": round(outcome.sending_s, 3),
        "failure": outcome.failure,
    }


def _print(outcome: Outcome) -> None:
    tally = outcome.tally
    rows = [
        ("lines read", tally.lines),
        ("parsed", tally.parsed),
        ("sent", tally.sent),
        ("accepted", tally.accepted),
        ("rejected", tally.rejected),
        ("unreadable", tally.unparsed),
        ("requests retried", outcome.retries),
        ("bytes accepted", tally.bytes),
        ("markers", len(outcome.markers)),
    ]
    print_table(("", "count"), rows)
    # the table says how many, these say why and where
    for sentence in tally.sentences():
        click.echo(sentence)
    # without the time that --wait took
    rate = tally.accepted / outcome.sending_s if outcome.sending_s else 0.0
    done = f"; every session was delivered after {outcome.seconds:.1f} s" if outcome.delivered else ""
    click.echo(f"Sent in {outcome.sending_s:.1f} s, {rate:,.0f} fragments/s{done}")
