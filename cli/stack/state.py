"""What a running local stack leaves in its home: its pids and addresses, and a lock while it lives.

`baton up` writes them, `baton down` finds the processes by them (never by a name). The lock is held by
the supervising process and falls with it, so it alone says whether a stack runs in this home.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

import msgspec

from cli.stack.faults import AlreadyRunning
from cli.stack.identity import Identity


class ProcessState(msgspec.Struct, frozen=True, kw_only=True):
    """One supervised process; `identity` is None while it is not running."""

    name: str
    address: str
    identity: Identity | None = None


class StackState(msgspec.Struct, frozen=True, kw_only=True):
    """The local stack of one home."""

    supervisor: Identity
    ready: bool = False
    control: str = ""
    producer: str = ""
    processes: list[ProcessState] = []


def state_file(home: Path) -> Path:
    """Where the state of the stack in this home is kept while it runs."""
    return home / "stack.json"


def save_state(home: Path, state: StackState) -> None:
    """Replaces the stored state in one step."""
    temporary = home / f".stack-{os.getpid()}.json"
    temporary.write_bytes(msgspec.json.format(msgspec.json.encode(state), indent=2))
    temporary.replace(state_file(home))


def load_state(home: Path) -> StackState | None:
    """The stored state, or None where there is none that can be read."""
    try:
        return msgspec.json.decode(state_file(home).read_bytes(), type=StackState)
    except (OSError, msgspec.DecodeError):
        return None


def forget_state(home: Path) -> None:
    """Removes the stored state: nothing runs any more."""
    state_file(home).unlink(missing_ok=True)


@contextlib.contextmanager
def lock_home(home: Path) -> Iterator[None]:
    """Holds the home for this process alone. Raises AlreadyRunning."""
    home.mkdir(parents=True, exist_ok=True)
    with (home / "lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            state = load_state(home)
            who = f" (pid {state.supervisor.pid})" if state else ""
            raise AlreadyRunning(
                f"a local stack is already running in {home}{who}: stop it with `baton down --home {home}`,"
                " or choose another --home and --port-offset"
            ) from None
        yield
