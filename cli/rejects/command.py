"""`baton rejected`: counts and lists rejected fragments; `baton rejected replay` sends them again.

Wires `cli/rejects/listing.py` and `cli/rejects/replay.py` to Kafka and the producer. It reads the topic
directly from Kafka, so it also works when no service runs.
"""

from __future__ import annotations

import asyncio
import sys
from contextlib import AbstractAsyncContextManager
from typing import Any

import click
from click.core import ParameterSource

from cli.commands.control import print_list
from cli.http.client import connect
from cli.importing.sending.lanes import PATIENCE_S, BatchLimits
from cli.kafka.rejects import RejectedLog, open_rejected
from cli.rejects.listing import Listing
from cli.rejects.replay import Replayed, count, read_open, replay
from cli.rejects.single import dismiss, parse_reason, show
from cli.terminal.escaping import echo
from cli.terminal.exit_codes import ExitCode, exit_code_for
from cli.terminal.interrupts import interruptible
from cli.terminal.layout import Column
from cli.terminal.lists import formats_option
from cli.terminal.options import kafka_options, output_option, producer_options
from cli.terminal.output import Columns, print_json, print_objects, time_text
from cli.terminal.since import parse_since
from shared.errors import BatonError
from shared.kafka.connect.access import Kafka
from shared.model.names import Names

SHOWN_CHARACTERS = 60
"""Characters of a reject in the table; JSON shows more."""
REASON_COLUMNS: Columns = {
    "REASON": "reason",
    "COUNT": "count",
    "CUT": Column("cut", rank=3),
    "BYTES": Column("bytes", rank=4),
    "FIRST": Column(lambda row: time_text(row["first"]), rank=2),
    "LAST": Column(lambda row: time_text(row["last"]), rank=1),
}
REJECT_COLUMNS: Columns = {
    "ID": "id",
    "TIME": Column(lambda row: time_text(row["time"]), rank=4),
    "REASON": lambda row: f"{row['reason']}, cut" if row["cut"] else row["reason"],
    "SIZE": Column("size", rank=3),
    "DETAIL": Column("detail", rank=1, is_prose=True),
    "BEGINNING": Column(lambda row: row["beginning"][:SHOWN_CHARACTERS], rank=2, is_prose=True),
}


@click.group("rejected", invoke_without_command=True)
@click.option("--reason", callback=parse_reason, help="Only rejects with this reason.")
@click.option(
    "--since",
    "since_ms",
    callback=parse_since,
    help="Only rejects since then: 90s, 15m, 2h, 3d ago, or an RFC 3339 time.",
)
@click.option("--limit", type=click.IntRange(0, 10_000), default=20, help="Most rejects to show.")
@kafka_options
@formats_option
@click.pass_context
def rejected(
    ctx: click.Context,
    reason: str | None,
    since_ms: int | None,
    limit: int,
    kafka: Kafka,
    names: Names,
    output: str,
) -> None:
    """Count the rejected fragments by reason, and show the newest: when, why, and their beginning.

    Each is listed once, with the reason of its last rejection, until it is dismissed. Rejects are kept for
    five days. Characters that are not printable are escaped.
    """
    # click runs the group before its subcommand
    if ctx.invoked_subcommand is not None:
        # click would accept and then ignore them: `rejected --reason key replay` must not replay everything
        given = [name for name in ctx.params if ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE]
        if given:
            raise click.UsageError(f"put the options after {ctx.invoked_subcommand}")
        return
    listing = asyncio.run(_list(kafka, names, since_ms, limit=limit, reason=reason))
    if output == "text":
        _print_listing(listing)
        return
    answer = {
        "rejected": listing.rows(),
        "reasons": listing.by_reason(),
        "total": listing.total,
        "dismissed": listing.dismissed,
    }
    print_list(answer, "rejected", output, REJECT_COLUMNS)


@rejected.command("replay")
@click.option("--reason", required=True, callback=parse_reason, help="Replay rejects with this reason.")
@click.option("--dry-run", "is_dry", is_flag=True, help="Only count them.")
@click.option("--from-start", "is_from_start", is_flag=True, help="Also those that were replayed before.")
@producer_options
@kafka_options
@output_option
def replay_command(
    reason: str,
    is_dry: bool,
    is_from_start: bool,
    url: str,
    write_key: str,
    kafka: Kafka,
    names: Names,
    output: str,
) -> None:
    """Send rejected fragments with one reason to the producer again, each once; for example after a fix.

    Kafka remembers how far a reason was replayed, and the next replay continues there. A fragment without an
    id gets that of its reject, `rejected/<partition>/<offset>`. Truncated rejects and those that are not JSON
    objects are counted and skipped, and dismissed ones are left alone. A fragment that is rejected again is
    reported with its new reason, and keeps the id of its reject.

    The exit code is 1 if any of them was not accepted.
    """
    replayed = Replayed()

    def interrupted() -> str:
        _print_replayed(replayed, reason, is_dry=is_dry)
        return "the same command continues after the last acknowledged fragment"

    opened = open_rejected(kafka, names, reason=reason, is_from_start=is_from_start)
    with interruptible(interrupted):
        failure = asyncio.run(_replay(replayed, opened, reason, url, write_key, is_dry=is_dry))
    if output == "json":
        print_json(summary(replayed, reason, failure, is_dry=is_dry))
    else:
        _print_replayed(replayed, reason, is_dry=is_dry)
    if failure:
        echo(f"rejected replay: {failure.detail}", err=True)
        sys.exit(exit_code_for(failure))
    # also if some were rejected again: a script must not take that for done
    sys.exit(ExitCode.DONE if is_dry or replayed.all_accepted else ExitCode.FAILED)


rejected.add_command(show)
rejected.add_command(dismiss)


def summary(replayed: Replayed, reason: str, failure: BatonError | None, *, is_dry: bool) -> dict[str, Any]:
    """The outcome as `-o json` prints it."""
    tally = replayed.tally
    return {
        "reason": reason,
        "dry_run": is_dry,
        "started_over": replayed.has_started_over,
        "found": replayed.found,
        "cut": replayed.cut,
        "no_object": replayed.no_object,
        "dismissed": replayed.dismissed,
        "to_send": replayed.to_send,
        "sent": tally.sent,
        "accepted": tally.accepted,
        "rejected": tally.rejected,
        "reasons": [
            {"reason": again, "count": found.count, "offset": found.line, "detail": found.detail}
            for again, found in tally.reasons.items()
        ],
        "failure": failure.detail if failure else None,
    }


async def _list(
    kafka: Kafka, names: Names, since_ms: int | None, *, limit: int, reason: str | None
) -> Listing:
    async with open_rejected(kafka, names) as log:
        # without a time, everything that is still kept
        starts = {n: first for n, (first, _) in log.bounds.items()}
        if since_ms is not None:
            starts = await log.starts(since_ms)
        # what supersedes or dismisses a reject comes after it
        listing = Listing(await read_open(log, starts), limit=limit, reason=reason)
        for partition, start in starts.items():
            async for page in log.read(partition, start):
                listing.add(page)
        return listing


async def _replay(
    replayed: Replayed,
    opened: AbstractAsyncContextManager[RejectedLog],
    reason: str,
    url: str,
    write_key: str,
    *,
    is_dry: bool,
) -> BatonError | None:
    """Why the replay failed; None when it is complete."""
    try:
        async with opened as log:
            if is_dry:
                await count(log, reason, replayed)
                return None
            # only now: a dry run needs no producer
            async with connect(url, patience_s=PATIENCE_S, bearer=write_key) as producer:
                await replay(log, producer, reason, limits=BatchLimits(), replayed=replayed)
    except BatonError as error:
        # returned, not raised: the counts up to here are printed first
        return error
    return None


def _print_listing(listing: Listing) -> None:
    if not listing.total:
        dismissed = f"no reject is open; {listing.dismissed:,} dismissed"
        echo(dismissed if listing.dismissed else "nothing was rejected")
        return
    print_objects(REASON_COLUMNS, listing.by_reason())
    if rows := listing.rows():
        print_objects(REJECT_COLUMNS, rows)


def _print_replayed(replayed: Replayed, reason: str, *, is_dry: bool) -> None:
    tally = replayed.tally
    # named even in a success: these rejects stay unsent for good
    skipped = [f"{replayed.cut:,} truncated"] if replayed.cut else []
    skipped += [f"{replayed.no_object:,} not JSON objects"] if replayed.no_object else []
    skipped += [f"{replayed.dismissed:,} dismissed"] if replayed.dismissed else []
    rest = f"; skipped: {', '.join(skipped)}" if skipped else ""
    if replayed.has_started_over:
        echo("the topic was created anew since the last replay, so this one began at its start")
    if is_dry:
        echo(f"{replayed.to_send:,} with reason {reason!r} would be sent again{rest}")
        return
    echo(f"{tally.accepted:,} with reason {reason!r} were accepted, {tally.rejected:,} rejected again{rest}")
    for sentence in tally.sentences("at offset"):
        echo(sentence)
