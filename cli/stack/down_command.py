"""`baton down`: stops the local stack of a home by the pids that it stored, in its own order."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import click

from cli.stack.identity import Identity, is_alive, send_signal
from cli.stack.state import StackState, forget_state, load_state

STOP_TIMEOUT_S = 120.0
"""Longer than the stack itself allows each step of its stop."""


@click.command()
@click.option(
    "--home",
    type=click.Path(path_type=Path),
    envvar="BATON_HOME",
    default=Path(".baton"),
    show_default=True,
    help="Folder of the stack to stop.",
)
def down(home: Path) -> None:
    """Stop the local stack that runs in a home; its data stay."""
    state = load_state(home)
    everything = identities(state) if state is not None else []
    if state is None or not any(map(is_alive, everything)):
        forget_state(home)
        click.echo(f"no local stack is running in {home}")
        return
    if send_signal(state.supervisor, signal.SIGTERM):
        _wait_until_gone([state.supervisor], STOP_TIMEOUT_S)
    # only what outlived its supervisor, which Linux does not allow
    for identity in everything:
        send_signal(identity, signal.SIGKILL)
    _wait_until_gone(everything, 10.0)
    forget_state(home)
    click.echo("stopped")


def identities(state: StackState) -> list[Identity]:
    """The supervisor and every process that was running when the state was stored."""
    return [state.supervisor, *(p.identity for p in state.processes if p.identity is not None)]


def _wait_until_gone(identities: list[Identity], timeout_s: float) -> None:
    deadline = time.monotonic() + timeout_s
    while any(map(is_alive, identities)) and time.monotonic() < deadline:
        time.sleep(0.05)
