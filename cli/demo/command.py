"""`baton demo`: the whole pipeline, from a log to the proof that no fragment was lost or duplicated.

`make demo` runs this command. It uses a fresh home, so that every count in it comes from the demo;
`cli/demo/script.py` holds what it does there.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from cli.demo.script import DemoOptions, run_demo
from cli.importing.formats import FORMATS
from cli.terminal.options import port_offset_option
from cli.visits.generator import VISITORS
from shared.errors import Conflict


@click.command()
@click.argument("log", required=False, type=click.Path(path_type=Path))
@click.option(
    "--home",
    type=click.Path(path_type=Path),
    help="Folder for data and logs, new or empty, which is kept; default: a temporary one.",
)
@port_offset_option
@click.option(
    "--visitors",
    type=click.IntRange(1, 1_000_000),
    default=VISITORS,
    show_default=True,
    help="Visitors in the generated log.",
)
@click.option("--seed", type=int, default=1, show_default=True, help="Seed of the generated log.")
@click.option("--format", "form", type=click.Choice(FORMATS), help="Format of LOG; guessed by default.")
@click.option("--key", help="Field of LOG with the session key of a line; guessed by default.")
@click.option("--time", help="Field of LOG with the event time; guessed by default.")
@click.option("--end", help="Field of LOG that is true on a session's last line.")
@click.option("--item-path", help="JSON path into a fragment whose values the reports count.")
def demo(**given: Any) -> None:
    """Run the whole pipeline on LOG, or on a generated log of web visits whose sessions are known.

    Starts ZooKeeper, Kafka, a producer, three consumers and control. Imports the log over HTTP, and meanwhile
    moves a stream, kills a consumer and drains another. Runs the Spark jobs lake, reports and audit, prints
    the counts of every stage, and stops everything. The exit code is 0 if all counts are exact.
    """
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
    options = DemoOptions(**given)
    began = time.monotonic()
    with _home(options.home) as home:
        faults = asyncio.run(_until_stopped(options, home))
        took = f"{time.monotonic() - began:.0f} s"
        for fault in faults:
            click.echo(f"demo: {fault}", err=True)
        if faults:
            click.echo(f"NOT exact, after {took}; the services' logs are in {home / 'logs'}", err=True)
            sys.exit(1)
    click.echo(click.style(f"Everything is exact. It took {took}; nothing is left running.", fg="green"))


async def _until_stopped(options: DemoOptions, home: Path) -> list[str]:
    """The demo's faults; SIGTERM and SIGHUP stop it in order, like Ctrl-C."""
    running = asyncio.create_task(run_demo(options, home), name="demo")
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, running.cancel)
    try:
        return await running
    except asyncio.CancelledError:
        return ["stopped before its end"]


@contextlib.contextmanager
def _home(given: Path | None) -> Iterator[Path]:
    """A fresh folder for the demo; a temporary one is removed unless the demo failed after writing logs.

    Raises Conflict when the given folder is not empty.
    """
    if given is not None:
        if given.exists() and (not given.is_dir() or any(given.iterdir())):
            raise Conflict(f"{given} is not empty: the demo's counts need a fresh --home")
        given.mkdir(parents=True, exist_ok=True)
        yield given.absolute()
        return
    home = Path(tempfile.mkdtemp(prefix="baton-demo-"))
    try:
        yield home
    except BaseException:
        # the logs explain a failure, so they stay
        if not (home / "logs").exists():
            shutil.rmtree(home, ignore_errors=True)
        raise
    shutil.rmtree(home, ignore_errors=True)
