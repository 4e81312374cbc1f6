"""How the outcome of an import is printed: as a table with sentences, or as JSON (`-o json`).

Used by `cli/importing/command.py`. The names in the JSON are an interface for programs.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from cli.importing.options import Outcome
from cli.terminal.escaping import echo
from cli.terminal.output import print_table

LINE_COUNTS = ("lines", "parsed", "unparsed", "sent", "accepted", "rejected")


def summary(outcome: Outcome) -> dict[str, Any]:
    """The outcome as `-o json` prints it."""
    tally = outcome.tally
    counts = {name: getattr(tally, name) for name in LINE_COUNTS}
    if outcome.dry_run:
        counts |= {"sent": 0, "accepted": 0, "would_send": tally.accepted - outcome.earlier}
    return {
        **counts,
        "dry_run": outcome.dry_run,
        "notice": outcome.notice,
        "accepted_earlier": outcome.earlier,
        "retries": outcome.retries,
        # what was in flight when an earlier run ended is sent again
        "repeats_possible": outcome.retries > 0 or outcome.earlier > 0,
        "bytes": tally.bytes,
        "bytes_read": tally.bytes_read,
        "lines_waiting": tally.waiting,
        "nuls_dropped": tally.nuls,
        "highest_time": tally.highest_time_ms,
        "reasons": [{"reason": reason, **asdict(found)} for reason, found in tally.reasons.items()],
        "doubts": [{"doubt": doubt, **asdict(found)} for doubt, found in tally.doubts.items()],
        "markers": outcome.markers,
        "rejected_file": outcome.rejected_file,
        "left_open": outcome.left_open,
        "delivered": outcome.delivered,
        "seconds": round(outcome.seconds, 3),
        "sending_s": round(outcome.sending_s, 3),
        "failure": outcome.failure,
    }


def print_outcome(outcome: Outcome) -> None:
    """Prints the counts, why and where lines were not accepted, and how it ended."""
    if outcome.notice:
        echo(outcome.notice)
    # without lines the failure, or the marker, is all there is to say
    if outcome.tally.lines:
        print_table(("", "count"), _rows(outcome))
    # the table says how many, these say why and where
    for sentence in outcome.tally.sentences():
        echo(sentence)
    if outcome.tally.waiting:
        echo("The last line has no end, and waits for the next import: `--close` sends it as it is.")
    if outcome.tally.nuls:
        echo(f"{outcome.tally.nuls:,} NULs before lines were dropped: was the log truncated in use?")
    if outcome.rejected_file:
        more = f" (except for {outcome.left_out:,} that are too long for it)" if outcome.left_out else ""
        echo(f"The lines that were not accepted are in {outcome.rejected_file}{more}")
    if outcome.left_open:
        echo(f"Left open: {outcome.left_open}")
    if outcome.dry_run:
        echo("Nothing was sent: this was a dry run.")
    elif outcome.tally.lines:
        echo(_pace(outcome))
    else:
        if outcome.markers:
            echo(f"Sent {len(outcome.markers):,} markers.")
        if outcome.delivered:
            echo(f"Every session was delivered after {outcome.seconds:.1f} s.")


def _rows(outcome: Outcome) -> list[tuple[str, int]]:
    tally = outcome.tally
    accepted_now = tally.accepted - outcome.earlier
    rows = [("lines read", tally.lines), ("parsed", tally.parsed)]
    if outcome.dry_run:
        rows += [("would be sent", accepted_now)]
    else:
        rows += [("sent", tally.sent), ("accepted", tally.accepted)]
    if outcome.earlier:
        rows += [("accepted earlier", outcome.earlier)]
    rows += [("rejected", tally.rejected), ("unreadable", tally.unparsed)]
    if not outcome.dry_run:
        rows += [
            ("requests retried", outcome.retries),
            ("bytes accepted", tally.bytes),
            ("markers", len(outcome.markers)),
        ]
    return rows


def _pace(outcome: Outcome) -> str:
    # without the time that --wait took
    accepted = outcome.tally.accepted - outcome.earlier
    rate = accepted / outcome.sending_s if outcome.sending_s else 0.0
    done = f"; every session was delivered after {outcome.seconds:.1f} s" if outcome.delivered else ""
    return f"Sent in {outcome.sending_s:.1f} s, {rate:,.0f} fragments/s{done}"
