"""How the outcome of an import is printed: as a table with sentences, or as JSON (`-o json`).

Used by `cli/importing/command.py`. The names in the JSON are an interface for programs.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import click

from cli.importing.run import Outcome
from cli.terminal.output import print_table

LINE_COUNTS = ("lines", "parsed", "unparsed", "sent", "accepted", "rejected")


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
        "left_open": outcome.left_open,
        "delivered": outcome.delivered,
        "seconds": round(outcome.seconds, 3),
        "sending_s": round(outcome.sending_s, 3),
        "failure": outcome.failure,
    }


def print_outcome(outcome: Outcome) -> None:
    """Prints the counts, why and where lines were not accepted, and how it ended."""
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
    if outcome.left_open:
        click.echo(f"Left open: {outcome.left_open}")
    # without the time that --wait took
    rate = tally.accepted / outcome.sending_s if outcome.sending_s else 0.0
    done = f"; every session was delivered after {outcome.seconds:.1f} s" if outcome.delivered else ""
    click.echo(f"Sent in {outcome.sending_s:.1f} s, {rate:,.0f} fragments/s{done}")
