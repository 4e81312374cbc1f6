"""`baton demo`: the whole pipeline, from a log to the proof that no fragment was lost or duplicated.

`make demo` runs this command. It uses a fresh home, so that every count in it comes from the demo;
`cli/demo/script.py` holds what it does there.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shlex
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import click

from cli.demo.log import DemoLog, generated_log, real_log
from cli.demo.report import where_to_look
from cli.demo.script import CONSUMERS, ENVIRONMENT, AtEnd, run_demo
from cli.importing.parsing.formats import FORMATS
from cli.stack.local.stack import prepare
from cli.stack.local.summary import console_url, summary_of
from cli.stack.options import StackOptions
from cli.stack.processes.state import make_home
from cli.terminal.escaping import echo
from cli.terminal.interrupts import interruptible, signal_event
from cli.terminal.options import port_offset_option, secure_option
from cli.visits.command import generator_options
from shared.errors import Conflict


@click.command()
@click.argument("log", required=False, type=click.Path(path_type=Path))
@click.option(
    "--home",
    type=click.Path(path_type=Path),
    help="Folder for data and logs, new or empty, which is kept; default: a temporary one.",
)
@port_offset_option
@secure_option
@click.option("--stay", is_flag=True, help="Leave the stack running after the report, until Ctrl-C.")
@generator_options
@click.option("--format", "form", type=click.Choice(FORMATS), help="Format of LOG; guessed by default.")
@click.option("--key", help="Field of LOG with the session key of a line; guessed by default.")
@click.option("--time", help="Field of LOG with the event time; guessed by default.")
@click.option("--end", help="Field of LOG that is true on a session's last line.")
@click.option("--item-path", help="JSON path into a fragment whose values the reports count.")
def demo(
    log: Path | None,
    home: Path | None,
    port_offset: int,
    secure: bool,
    stay: bool,
    visitors: int,
    seed: int,
    **guesses: Any,
) -> None:
    """Run the whole pipeline on LOG, or on a generated log of web visits whose sessions are known.

    Starts ZooKeeper, Kafka, a producer, three consumers and control. Imports the log over HTTP, and meanwhile
    moves a stream, kills a consumer and drains another. Runs the Spark jobs lake, reports and audit, prints
    the counts of every stage, and stops everything. The exit code is 0 if all counts are exact.
    With --stay it stops at Ctrl-C or `baton down`, so that you can look around in the console.
    """
    began = time.monotonic()
    with _fresh(home) as home:
        given = real_log(log, **guesses) if log else generated_log(home, visitors, seed)
        options = StackOptions(
            home=home,
            port_offset=port_offset,
            consumers=CONSUMERS,
            secure=secure,
            # never the lake that the user's own Baton has
            environment={**ENVIRONMENT, "BATON_LAKE": str(home / "lake")},
        )
        if secure:
            # where the clients of this process find the stack's certificates
            os.environ["BATON_HOME"] = str(home)
        # the log first: a wrong one is reported before anything starts
        with interruptible(lambda: f"nothing was proven, and nothing is left running{_logs_in(home)}"):
            # here, and not only in the event loop, which would hold Ctrl-C back until the end of a download
            prepare(options)
            faults = asyncio.run(
                _until_stopped(given, options, partial(_stay, options, began) if stay else None)
            )
        took = f"{time.monotonic() - began:.0f} s"
        for fault in faults:
            echo(f"demo: {fault}", err=True)
        if faults:
            echo(f"NOT exact, after {took}{_logs_in(home)}", err=True)
            sys.exit(1)
    if stay:
        echo("Everything was exact; nothing is left running.")
        return
    click.secho(f"Everything is exact. It took {took}; nothing is left running.", fg="green")
    echo(where_to_look(console_url(options)))


async def _stay(options: StackOptions, began: float, faults: Sequence[str]) -> None:
    """Says where to look, and returns when somebody wants the stack to stop."""
    # before anybody can read how
    stopped = signal_event()
    verdict = "NOT everything is exact" if faults else "Everything is exact"
    took = f"{time.monotonic() - began:.0f} s"
    click.secho(f"{verdict}. It took {took}. The stack stays.", fg="red" if faults else "green")
    echo(summary_of(options))
    echo(
        "Then look around with `baton top`, `baton streams`, `baton events`, `baton jobs`, `baton doctor`.\n"
        f"Ctrl-C or `baton down --home {shlex.quote(str(options.home))}` stops everything"
    )
    # a desktop's browser; elsewhere a text browser might take the terminal
    if sys.stdout.isatty() and (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
        click.launch(console_url(options))
    await stopped.wait()


def _logs_in(home: Path) -> str:
    return f"; the services' logs are in {home / 'logs'}" if (home / "logs").exists() else ""


async def _until_stopped(log: DemoLog, options: StackOptions, at_end: AtEnd | None) -> list[str]:
    """The demo's faults; SIGTERM and SIGHUP stop it in order, and so does Ctrl-C, which raises."""
    running = asyncio.create_task(run_demo(log, options, at_end), name="demo")
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, running.cancel)
    try:
        return await running
    except asyncio.CancelledError:
        # Ctrl-C cancels this task itself
        if (task := asyncio.current_task()) is not None and task.cancelling():
            raise
        # not an error: the stack has stopped in order, but nothing was proven
        return ["stopped before its end"]


@contextlib.contextmanager
def _fresh(given: Path | None) -> Iterator[Path]:
    """A fresh folder for the demo; a temporary one is removed unless the demo failed after writing logs.

    Raises Conflict when the given folder is not empty.
    """
    if given is not None:
        # counts of an earlier run in the same Kafka would not be exact
        if given.is_dir() and any(given.iterdir()):
            raise Conflict(f"{given} is not empty: the demo's counts need a fresh --home")
        make_home(given)
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
