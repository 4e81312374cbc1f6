"""`baton down`: stops the local stack of a home, by the process identities that the stack stored there."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import click

from cli.stack.processes.identity import Identity, is_alive, send_signal
from cli.stack.processes.state import StackState, forget_state, load_state
from cli.terminal.escaping import echo
from cli.terminal.interrupts import interruptible
from cli.terminal.options import home_option

STOP_TIMEOUT_S = 120.0
"""Longer than all steps of an orderly stop together."""


@click.command()
@home_option
def down(home: Path) -> None:
    """Stop the local stack of a home and keep its data."""
    state = load_state(home)
    processes = identities(state) if state is not None else []
    # the supervisor may be dead while its processes live, so all of them are checked
    if state is None or not any(map(is_alive, processes)):
        forget_state(home)
        echo(f"no local stack is running in {home}")
        return
    with interruptible(lambda: "the stack keeps stopping; run the same command again to wait for its end"):
        if send_signal(state.supervisor, signal.SIGTERM):
            _wait_until_gone([state.supervisor], STOP_TIMEOUT_S)
    # processes that outlived their supervisor; on Linux the kernel kills those (cli/stack/processes/leash.py)
    for identity in processes:
        send_signal(identity, signal.SIGKILL)
    _wait_until_gone(processes, 10.0)
    forget_state(home)
    echo("stopped")


def identities(state: StackState) -> list[Identity]:
    """The supervisor and every process that ran when the state was stored."""
    return [state.supervisor, *(p.identity for p in state.processes if p.identity is not None)]


def _wait_until_gone(identities: list[Identity], timeout_s: float) -> None:
    deadline = time.monotonic() + timeout_s
    while any(map(is_alive, identities)) and time.monotonic() < deadline:
        time.sleep(0.05)
