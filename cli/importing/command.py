"""`baton import`: any text log over HTTP, closed by a marker, with counts that can be checked.

Wires the pieces of `cli/importing/` to the producer and control, draws the progress, prints the summary.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from cli.client import connect
from cli.importing.delivery import await_delivery
from cli.importing.formats import FORMATS, Fields, Format, parser_for
from cli.importing.lanes import MAX_BATCH_BYTES, MAX_BATCH_FRAGMENTS, BatchLimits
from cli.importing.lines import STDIN, open_lines
from cli.importing.pipeline import send_log
from cli.importing.progress import ImportProgress
from cli.importing.tally import Tally
from cli.importing.times import TIME_UNITS, TimeUnit
from cli.output import output_option, print_json, print_table, producer_url_option, write_key_option
from cli.receipts import MarkerPosition
from shared.errors import BatonError

PATIENCE_S = 240.0
"""How long a request is tried again: less than the 5 minutes (`repeat_ms`) for which ids are remembered."""
WAIT_PATIENCE_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportOptions:
    """What the command line asks for."""

    file: str
    form: Format
    fields: Fields
    name: str
    url: str
    write_key: str = ""
    control: str
    group: str
    lanes: int
    batch: int
    marker: bool
    wait: bool
    stall_s: float
    patience_s: float


@dataclass(slots=True)
class Outcome:
    """What an import came to; `failure` says why it did not go through.

    `sending_s` is the part of `seconds` until everything, the marker too, was acknowledged.
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
        """Whether every line was accepted and what was asked for was done."""
        return self.failure is None and self.tally.all_accepted


@click.command("import")
@click.argument("file")
@click.option(
    "--format", "form", type=click.Choice(FORMATS), required=True, help="How the lines are written."
)
@click.option("--key", help="Field whose value says which session a line belongs to (access-log: host).")
@click.option("--time", "time_field", help="Field of the event time (access-log: time).")
@click.option(
    "--time-unit",
    type=click.Choice(TIME_UNITS),
    default="auto",
    show_default=True,
    help="auto: numbers below 1e11 are seconds, others ms; else CLF or RFC 3339.",
)
@click.option("--end", help="Field that is true (true, 1, yes) on a session's last line.")
@click.option("--name", help="Name of the log in the fragments' ids; the file's name if not given.")
@producer_url_option
@write_key_option
@click.option(
    "--control",
    envvar="BATON_URL",
    default="http://127.0.0.1:8000",
    show_default=True,
    show_envvar=True,
    help="Base URL of control, for --wait.",
)
@click.option("--group", default="default", show_default=True, help="Group that --wait waits for.")
@click.option(
    "--lanes", type=click.IntRange(1, 64), default=4, show_default=True, help="Requests side by side."
)
@click.option(
    "--batch",
    type=click.IntRange(1, MAX_BATCH_FRAGMENTS),
    default=1000,
    show_default=True,
    help="Most fragments in a request.",
)
@click.option("--wait", is_flag=True, help="Return when every session is delivered.")
@click.option(
    "--stall",
    "stall_s",
    type=click.FloatRange(1),
    default=120,
    show_default=True,
    help="--wait gives up when nothing was committed for so many seconds.",
)
@click.option("--no-marker", is_flag=True, help="Do not close the sessions at the log's end.")
@output_option
def import_command(output: str, **given: Any) -> None:
    """Send the log FILE (`-`: standard input; gzip is unpacked) to the producer.

    Every line becomes a fragment whose data are the line's fields. Lanes keep the log's order within each
    stream; each fragment has an id made of the log's name, the line's number and its content, so that
    requests which are sent again (for up to 4 minutes) double nothing. When every line was acknowledged, a
    marker with the highest time closes the sessions.

    tsv and csv need a header line. Text is UTF-8; a line that is not is read as Latin-1, in ndjson it is
    refused. For ndjson, --key, --time and --end may be dotted paths into the objects.

    The exit code is 1 if anything was not accepted, lines that cannot be read included.
    """
    outcome = asyncio.run(run_import(options_for(**given)))
    print_json(summary(outcome)) if output == "json" else _print(outcome)
    if outcome.failure:
        click.echo(f"import: {outcome.failure}", err=True)
    sys.exit(0 if outcome.ok else 1)


def options_for(
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
    **plain: Any,
) -> ImportOptions:
    """The options as they were given, with a format's own defaults. Raises click.UsageError."""
    if wait and no_marker:
        raise click.UsageError("--wait waits for the marker, so it does not go with --no-marker")
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
        patience_s=PATIENCE_S,
        **plain,
    )


async def run_import(
    options: ImportOptions, on_progress: Callable[[Tally], None] = lambda _: None
) -> Outcome:
    """Does the whole import; errors of the way end in the outcome's `failure`, never in a lost count.

    `on_progress` gets the counts so far whenever lines were read or acknowledged.
    """
    outcome = Outcome(Tally(), [])
    started = time.monotonic()
    with ImportProgress(outcome.tally) as progress:
        try:
            await _import(options, outcome, progress, on_progress)
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
        async with connect(
            options.url,
            patience_s=options.patience_s,
            connections=options.lanes + 1,
            write_key=options.write_key,
        ) as producer:
            try:
                await send_log(
                    lines,
                    parser,
                    name=options.name,
                    table=await producer.table(),
                    sink=producer,
                    lanes=options.lanes,
                    limits=BatchLimits(fragments=options.batch, bytes=MAX_BATCH_BYTES),
                    tally=tally,
                    on_progress=update,
                )
                if options.marker and tally.highest_time_ms is not None:
                    outcome.markers = await producer.post_markers(tally.highest_time_ms)
            finally:
                outcome.retries = producer.retries
                outcome.sending_s = time.monotonic() - started
    if options.wait and outcome.markers:
        outcome.delivered = False
        async with connect(options.control, patience_s=WAIT_PATIENCE_S) as control:
            await await_delivery(
                control,
                options.group,
                outcome.markers,
                stall_s=options.stall_s,
                on_progress=progress.delivering,
            )
        outcome.delivered = True


def summary(outcome: Outcome) -> dict[str, Any]:
    """The outcome as `-o json` prints it."""
    tally = outcome.tally
    return {
        "lines": tally.lines,
        "parsed": tally.parsed,
        "unparsed": tally.unparsed,
        "sent": tally.sent,
        "accepted": tally.accepted,
        "rejected": tally.rejected,
        "retries": outcome.retries,
        "repeats_possible": outcome.retries > 0,
        "bytes": tally.bytes,
        "bytes_read": tally.bytes_read,
        "highest_time": tally.highest_time_ms,
        "reasons": [
            {"reason": reason, "count": found.count, "line": found.line, "detail": found.detail}
            for reason, found in tally.reasons.items()
        ],
        "markers": outcome.markers,
        "delivered": outcome.delivered,
        "seconds": round(outcome.seconds, 3),
        "sending_s": round(outcome.sending_s, 3),
        "failure": outcome.failure,
    }


def _print(outcome: Outcome) -> None:
    tally = outcome.tally
    rows: list[tuple[str, int]] = [
        ("lines read", tally.lines),
        ("parsed", tally.parsed),
        ("sent", tally.sent),
        ("accepted", tally.accepted),
        ("rejected", tally.rejected),
        ("not readable", tally.unparsed),
        ("requests sent again", outcome.retries),
        ("bytes accepted", tally.bytes),
        ("markers", len(outcome.markers)),
    ]
    print_table(("", "count"), rows)
    for reason, found in tally.reasons.items():
        click.echo(f"{found.count:,} × {reason}, first in line {found.line:,}: {found.detail}")
    rate = tally.accepted / outcome.sending_s if outcome.sending_s else 0.0
    done = f"; everything was delivered after {outcome.seconds:.1f} s" if outcome.delivered else ""
    click.echo(f"Sent in {outcome.sending_s:.1f} s, {rate:,.0f} fragments/s{done}")
