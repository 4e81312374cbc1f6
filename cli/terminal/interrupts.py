"""Ctrl-C in a command: what it did, what keeps running, and exit code 130.

A long command wraps its work in `interruptible` with a summary. A command without one is ended by
`cli/main.py`, with the same exit code.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable, Iterator

import click

from cli.terminal.escaping import echo

INTERRUPTED = 130
"""128 + SIGINT, as shells report a program that Ctrl-C ended."""


@contextlib.contextmanager
def interruptible(summary: Callable[[], str]) -> Iterator[None]:
    """Runs the block; after Ctrl-C prints the summary on standard error and exits with 130.

    `summary` is called after the interruption, so it can report how far the block got. Around `asyncio.run`
    the main task has been cancelled by then, so everything that it opened is closed.
    """
    try:
        yield
    except KeyboardInterrupt:
        say_interrupted(summary())
        raise click.exceptions.Exit(INTERRUPTED) from None


def say_interrupted(summary: str) -> None:
    """Prints the summary of an interrupted command."""
    echo(f"baton: interrupted: {summary}", err=True)


def signal_event() -> asyncio.Event:
    """An event that SIGINT, SIGTERM and SIGHUP set, from now on; a SIGINT after that ends this process.

    For the running event loop.
    """
    loop = asyncio.get_running_loop()
    received = asyncio.Event()

    def on_interrupt() -> None:
        if received.is_set():
            os._exit(INTERRUPTED)
        received.set()

    loop.add_signal_handler(signal.SIGINT, on_interrupt)
    for number in (signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, received.set)
    return received
