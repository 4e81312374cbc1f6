"""`baton import`: sends any text log over HTTP, closes its sessions, and counts every line.

The options and their help; `cli/importing/run.py` does the work and `cli/importing/summary.py` prints it.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import Any

import click

from cli.importing.books.ledger import state_folder
from cli.importing.options import ImportOptions, Outcome
from cli.importing.parsing.formats import FORMATS, USUAL_FIELDS, Format
from cli.importing.parsing.rows import CLIENT_FROM, NULLS, ClientFrom, Fields
from cli.importing.parsing.times import TIME_UNITS, TimeUnit
from cli.importing.reading.clocks import DOUBTS
from cli.importing.reading.lines import STDIN
from cli.importing.run import run_import
from cli.importing.sending.lanes import MAX_BATCH_FRAGMENTS
from cli.importing.summary import print_outcome, summary
from cli.terminal.escaping import echo
from cli.terminal.interrupts import interruptible
from cli.terminal.options import group_option, output_option, producer_options, wait_url_option
from cli.terminal.output import print_json


@click.command("import")
@click.argument("file")
@click.option("--format", "form", type=click.Choice(FORMATS), required=True, help="Format of the lines.")
@click.option("--key", help="Field with the session key of a line; default: the client's address, if known.")
@click.option(
    "--time", "time_field", help="Field with the event time; default: that of the format, if known."
)
@click.option(
    "--time-unit",
    type=click.Choice(TIME_UNITS),
    default="auto",
    help="auto: numbers are s, ms, us or ns by their size; text is CLF or a date with a time of day.",
)
@click.option("--time-zone", "zone", help="Zone of times that name none, as Europe/Berlin or +02:00.")
@click.option("--time-format", help="Pattern of the time as for strptime, as %d.%m.%Y %H:%M:%S.")
@click.option(
    "--client-from",
    type=click.Choice(CLIENT_FROM),
    default="host",
    help="Client of an access log: the host, the first of a list of forwarded addresses in its place, or the"
    " first address after the user agent.",
)
@click.option(
    "--null",
    "nulls",
    multiple=True,
    help=f"Key that stands for no value, in any case; default in text formats: {' '.join(NULLS)}.",
)
@click.option(
    "--refuse",
    "refuses",
    type=click.Choice(DOUBTS),
    multiple=True,
    help="Reject lines whose time is far ahead of the lines around them, or before 2000.",
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
@click.option(
    "--wait",
    is_flag=True,
    help="Wait until the group has delivered every session, also of a log that was imported before.",
)
@click.option(
    "--stall",
    "stall_s",
    type=click.FloatRange(1),
    default=120,
    help="Seconds without a commit after which --wait fails.",
)
@click.option("--no-marker", is_flag=True, help="Leave the sessions open at the end of the log.")
@click.option(
    "--close",
    is_flag=True,
    help="The log ends here: close the sessions even if others may still run, and send a last line without"
    " an end.",
)
@click.option("--again", is_flag=True, help="Send the log even if the ledger says that it was sent before.")
@click.option("--dry-run", is_flag=True, help="Read and check the log, but send nothing.")
@click.option(
    "--rejected",
    type=click.Path(path_type=Path, dir_okay=False),
    help="File for the lines that are not accepted, which is replaced; default: one beside the ledger.",
)
@output_option
def import_command(output: str, **given: Any) -> None:
    """Send the log FILE (`-`: standard input) to the producer; gzip, bzip2, xz and zstd are unpacked.

    Every line becomes a fragment whose data holds the line's fields. Each stream keeps the log's order. A
    fragment's id is made of the log, the line's number and its content, so that requests can be retried (for
    up to 4 minutes). A line whose time is further in the future than the groups accept is rejected. A last
    line without its end waits for the next import, unless the log is packed or --close is given.

    A ledger (in BATON_STATE) knows which logs were imported. The same log is not sent twice without
    --again (--wait then only waits), an interrupted import is resumed, and of a log that has grown only the
    new lines are sent.

    After the last acknowledgement a marker with the highest time closes the sessions. It closes those of
    everybody up to that time. So without --close it is sent only if that time is older than the gap plus the
    lateness of every group, as control knows them.

    tsv and csv need a header line, w3c (IIS, CloudFront) a line #Fields:. Text is UTF-8, or UTF-16 with a
    byte order mark; other lines are read as Latin-1, or rejected in ndjson. For ndjson, --key, --time and
    --end may be dotted paths into the objects.

    The exit code is 1 if any line was not accepted, including unreadable ones. The write key needs the scope
    `mark` for the marker, which is checked before anything is sent.
    """
    options, so_far = parse_options(**given), Outcome()

    def note(outcome: Outcome) -> None:
        nonlocal so_far
        so_far = outcome

    with interruptible(lambda: interrupted_text(options, so_far)):
        outcome = asyncio.run(run_import(options, note))
    print_json(summary(outcome)) if output == "json" else print_outcome(outcome)
    if outcome.failure:
        echo(f"import: {outcome.failure}", err=True)
    sys.exit(outcome.exit_code)


def interrupted_text(options: ImportOptions, so_far: Outcome) -> str:
    """What an interrupted import has done, and how it can go on."""
    read = f"{so_far.tally.lines:,} lines were read"
    if options.dry_run:
        return f"{read}, and nothing was sent"
    sent = f"{read}, and {so_far.tally.accepted:,} fragments acknowledged, which stay"
    once_more = f"The same command{' without --again' if options.again else ''}"
    if so_far.delivered is False:
        done = f"{sent}. All was sent" if so_far.tally.lines else "all was sent before"
        then = f"{once_more} waits on"
        if options.file == STDIN:
            then = "`baton streams` shows what is left to read"
        return f"{done}, and only the wait has ended. {then}"
    if options.file == STDIN:
        return f"{sent}. Standard input cannot be continued: import what is left of it by itself"
    return f"{sent}. {once_more} sends the rest"


def parse_options(
    *,
    file: str,
    form: Format,
    key: str | None,
    time_field: str | None,
    time_unit: TimeUnit,
    zone: str | None,
    time_format: str | None,
    client_from: ClientFrom,
    nulls: tuple[str, ...],
    end: str | None,
    name: str | None,
    no_marker: bool,
    close: bool,
    wait: bool,
    **others: Any,
) -> ImportOptions:
    """The options of the command line, with the format's defaults. Raises click.UsageError."""
    if wait and no_marker:
        raise click.UsageError("--wait waits for the marker, so it excludes --no-marker")
    if close and no_marker:
        raise click.UsageError("--close sends the marker that --no-marker leaves out")
    usual_key, usual_time = USUAL_FIELDS.get(form, (None, None))
    if client_from != "host":
        if not form.startswith("access-log"):
            raise click.UsageError("--client-from is for access logs")
        usual_key = "client"
    key, time_field = key or usual_key, time_field or usual_time
    if time_format and time_unit != "auto":
        raise click.UsageError("--time-format says how times are written, so it excludes --time-unit")
    if not key or not time_field:
        raise click.UsageError(f"--format {form} needs --key and --time")
    return ImportOptions(
        file=file,
        form=form,
        fields=Fields(
            key=key,
            time=time_field,
            unit=time_unit,
            end=end,
            zone=zone,
            time_format=time_format,
            nulls=nulls or None,
            client_from=client_from,
        ),
        name=name or (file if file == STDIN else Path(file).name),
        marker=not no_marker,
        close=close,
        state=state_folder(os.environ),
        wait=wait,
        **others,
    )
