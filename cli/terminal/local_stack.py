"""Finds the local stack that a client command means when no address is given: the one of this folder.

Reads what `baton up` has written to its home (`cli/stack/state.py`): to `BATON_HOME`, or to `.baton` in the
current folder or one above it, as git finds its repository.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from pathlib import Path

import msgspec

STATE_FILE = "stack.json"


class _Supervisor(msgspec.Struct):
    pid: int


class Addresses(msgspec.Struct, frozen=True, kw_only=True):
    """Where the services of a running stack are; the part of its state that clients need."""

    supervisor: _Supervisor
    control: str = ""
    producer: str = ""
    kafka: str = ""
    namespace: str = ""

    @property
    def is_trusted(self) -> bool:
        """Whether everything is on this machine: a folder of another user must not redirect a write key."""
        urls = (self.control, self.producer)
        return all(url.startswith("http://127.0.0.1:") for url in urls) and self.kafka.startswith(
            "127.0.0.1:"
        )


def find_stack(environment: Mapping[str, str] = os.environ, folder: Path | None = None) -> Addresses | None:
    """The running stack of this folder, or None."""
    folder = folder or Path.cwd()
    given = environment.get("BATON_HOME")
    homes = [Path(given)] if given else [above / ".baton" for above in (folder, *folder.parents)]
    for home in homes:
        # the nearest home decides, even when its stack does not run
        if (home / STATE_FILE).exists():
            return _read(home / STATE_FILE)
    return None


def _read(state: Path) -> Addresses | None:
    with contextlib.suppress(OSError, msgspec.DecodeError):
        found = msgspec.json.decode(state.read_bytes(), type=Addresses)
        # signal 0 only asks: a stack that was killed leaves its file behind
        os.kill(found.supervisor.pid, 0)
        return found if found.is_trusted else None
    return None
