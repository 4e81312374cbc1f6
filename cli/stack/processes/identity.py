"""Identifies a process by its pid and its start time, so that a reused pid is never signalled.

On Linux the start comes from /proc, together with the boot's id, since clock ticks restart at each boot;
elsewhere it comes from `ps`. psutil would not do: its start time is seconds since the epoch, computed from
the system's boot time, which changes when the clock is set. Used by `baton up`, `baton down` and tests.
"""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import msgspec


class Identity(msgspec.Struct, frozen=True):
    """One process: `started` is an opaque text that no later process with the same pid has."""

    pid: int
    started: str


def parse_stat(text: str) -> tuple[str, str]:
    """State letter and start time (clock ticks since boot) from the text of `/proc/<pid>/stat`.

    The command's name is in parentheses and may itself contain blanks and parentheses.

    >>> parse_stat("7 (a) b) S 1 " + " ".join(str(n) for n in range(5, 30)))
    ('S', '22')
    """
    fields = text[text.rindex(")") + 2 :].split()
    return fields[0], fields[19]


def identify(pid: int) -> Identity | None:
    """The identity of the process that runs with this pid now, or None."""
    try:
        if Path("/proc/self/stat").exists():
            state, ticks = parse_stat(Path(f"/proc/{pid}/stat").read_text())
            # ticks restart with each boot, so alone they could match
            boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
            # a zombie has ended; only its parent has not looked yet
            return None if state in "ZX" else Identity(pid, f"{boot}:{ticks}")
        # elsewhere, macOS for example, to the second: a pid does not come back that soon
        answer = subprocess.run(
            ["ps", "-o", "lstart=", "-p", str(pid)], capture_output=True, text=True, timeout=10, check=True
        )
        return Identity(pid, answer.stdout.strip())
    except (OSError, subprocess.SubprocessError, ValueError, IndexError):
        return None


def is_alive(identity: Identity) -> bool:
    """Whether this very process still runs; a zombie does not."""
    return identify(identity.pid) == identity


def send_signal(identity: Identity, number: signal.Signals) -> bool:
    """Sends a signal to this very process; False when it is gone (or not ours)."""
    try:
        if not hasattr(os, "pidfd_open"):
            if not is_alive(identity):
                return False
            os.kill(identity.pid, number)
            return True
        # the descriptor pins the process: no other can take its pid between the check and the signal
        descriptor = os.pidfd_open(identity.pid)
        try:
            if not is_alive(identity):
                return False
            signal.pidfd_send_signal(descriptor, number)
            return True
        finally:
            os.close(descriptor)
    except (ProcessLookupError, PermissionError):
        return False
