"""`baton demo`: the whole path at work, from a log to the proof that nothing was lost and nothing invented.

`make demo` is this command. It has a home of its own, fresh, so that every number in it is the demo's; what
it does there is `cli/demo/script.py`.
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
from shared.errors import Conflict

VISITORS = 800
"""About 20,000 lines: enough that a consumer can die in the middle of the import."""


@click.command()
@click.argument("log", required=False, type=click.Path(path_type=Path))
@click.option(
    "--home",
    type=click.Path(path_type=Path),
    help="Folder for data and logs, empty or not there yet; it stays. Without it a temporary one.",
)
@click.option(
    "--port-offset", envvar="BATON_PORT_OFFSET", default=0, show_default=True, help="Added to every port."
)
@click.option(
    "--visitors",
    type=click.IntRange(1, 1_000_000),
    default=VISITORS,
    show_default=True,
    help="Visitors in the log that is made up.",
)
@click.option("--seed", type=int, default=1, show_default=True, help="Of the log that is made up.")
@click.option("--format", "form", type=click.Choice(FORMATS), help="Format of LOG; guessed if not given.")
@click.option("--key", help="Field of LOG that says which session a line belongs to; guessed if not given.")
@click.option("--time", help="Field of LOG with the event time; guessed if not given.")
@click.option("--end", help="Field of LOG that is true on a session's last line.")
@click.option("--item-path", help="JSON path into a fragment whose values the reports count.")
def demo(**given: Any) -> None:
    """Show the whole path at work on LOG, or on a log of web visits that is made up and so has known truth.

    Starts ZooKeeper, Kafka, a producer, three consumers and control; imports the log over HTTP and in the
    middle of it moves a stream, kills a consumer and drains another; runs the Spark jobs lake, reports and
    audit; prints what each stage has counted; stops everything. The exit code is 0 if every number is exact.
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
            click.echo(f"NOT exact, after {took}; the logs of the services stay in {home / 'logs'}", err=True)
            sys.exit(1)
    click.echo(click.style(f"Everything is exact. It took {took}; nothing is left running.", fg="green"))


async def _until_stopped(options: DemoOptions, home: Path) -> list[str]:
    """The demo's faults; SIGTERM and SIGHUP stop it in order, as Ctrl-C does."""
    course = asyncio.create_task(run_demo(options, home), name="demo")
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, course.cancel)
    try:
        return await course
    except asyncio.CancelledError:
        return ["it was stopped before its end"]


@contextlib.contextmanager
def _home(given: Path | None) -> Iterator[Path]:
    """The folder of the demo: a fresh one. A temporary one is removed unless something went wrong in it.

    Raises Conflict when the folder that was given holds something already.
    """
    if given is not None:
        if given.exists() and (not given.is_dir() or any(given.iterdir())):
            raise Conflict(f"{given} is not empty: a demo's numbers are only its own in a fresh --home")
        given.mkdir(parents=True, exist_ok=True)
        yield given.absolute()
        return
    home = Path(tempfile.mkdtemp(prefix="baton-demo-"))
    try:
        yield home
    except BaseException:
        if not (home / "logs").exists():
            shutil.rmtree(home, ignore_errors=True)
        raise
    shutil.rmtree(home, ignore_errors=True)
