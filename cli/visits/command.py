"""`baton generate`: writes the log of web visits that `cli/visits/generator.py` makes, and its truth."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

import click
import msgspec

from cli.visits.generator import VISITORS, generate
from shared.errors import BatonError


@click.command("generate")
@click.option(
    "--visitors",
    type=click.IntRange(1, 1_000_000),
    default=VISITORS,
    show_default=True,
    help="Number of visitors; about 25 lines each.",
)
@click.option("--seed", type=int, default=1, show_default=True, help="The same seed gives the same log.")
@click.option("--out", default="-", show_default=True, help="File for the log (`-`: standard output).")
@click.option("--truth", help="File for the sessions that the log contains.")
def generate_command(visitors: int, seed: int, out: str, truth: str | None) -> None:
    """Generate a log of web visits (NDJSON) whose sessions are known.

    Import it with: baton import FILE --format ndjson --key key --time time --end end

    The truth is NDJSON, one session a line, ordered by the session's first line: key, first_time and
    last_time (lowest and highest time, ms), fragments, reason (`end`, or `gap` for silence), lines (the
    numbers of its lines in the log, from 1). It holds for a group with the default gap and lateness, and for
    a log that is imported completely.
    """
    visits = generate(visitors, seed)
    _write(out, visits.lines)
    if truth:
        _write(truth, visits.truth)
    click.echo(
        f"{len(visits.lines):,} lines, {len(visits.truth):,} sessions of {visitors:,} visitors", err=True
    )


def _write(file: str, rows: Iterable[msgspec.Struct]) -> None:
    with _open(file) as target:
        target.writelines(msgspec.json.encode(row) + b"\n" for row in rows)


@contextlib.contextmanager
def _open(file: str) -> Iterator[BinaryIO]:
    if file == "-":
        yield sys.stdout.buffer
        return
    try:
        with Path(file).open("wb") as target:
            yield target
    except OSError as error:
        raise BatonError(f"{file}: {error.strerror}") from None
