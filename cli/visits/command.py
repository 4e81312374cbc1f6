"""`baton generate`: writes the log of web visits that `cli/visits/generator.py` makes, and its truth."""

from __future__ import annotations

from collections.abc import Iterable
from typing import BinaryIO

import click
import msgspec

from cli.terminal.escaping import echo
from cli.terminal.interrupts import interruptible
from cli.terminal.options import together
from cli.visits.generator import VISITORS, generate

generator_options = together(
    click.option(
        "--visitors",
        type=click.IntRange(1, 1_000_000),
        default=VISITORS,
        help="Visitors in the generated log; about 25 lines each.",
    ),
    click.option(
        "--seed", type=int, default=1, help="Seed of the generated log; the same seed, the same log."
    ),
)


@click.command("generate")
@generator_options
@click.option("--out", type=click.File("wb"), default="-", help="File for the log (`-`: standard output).")
@click.option("--truth", type=click.File("wb"), help="File for the sessions that the log contains.")
def generate_command(visitors: int, seed: int, out: BinaryIO, truth: BinaryIO | None) -> None:
    """Generate a log of web visits (NDJSON) whose sessions are known.

    Import it with: baton import FILE --format ndjson --key key --time time --end end

    The truth is NDJSON, one session a line, ordered by the session's first line: key, first_time and
    last_time (lowest and highest time, ms), fragments, reason (`end`, or `gap` for silence), lines (the
    numbers of its lines in the log, from 1). It holds for a group with the default gap and lateness, and for
    a log that is imported completely.
    """
    with interruptible(lambda: "the files are incomplete; the same command writes them again"):
        visits = generate(visitors, seed)
        _write(out, visits.lines)
        if truth:
            _write(truth, visits.truth)
    # on standard error: the log may go to standard output
    echo(f"{len(visits.lines):,} lines, {len(visits.truth):,} sessions of {visitors:,} visitors", err=True)


def _write(file: BinaryIO, rows: Iterable[msgspec.Struct]) -> None:
    file.writelines(msgspec.json.encode(row) + b"\n" for row in rows)
