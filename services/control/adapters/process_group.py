"""A driver and everything that it starts: one process group, known by its number alone, ended as a whole.

Killing only Spark's JVM, or only its Python, leaves the other behind; so signals go to the group, and
what counts is that the group is empty. Works for drivers that an earlier control process has started.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

TERM_S = 1.5
"""How long a group may take to leave after SIGTERM; the whole of `end` stays below 2 s."""
KILL_S = 0.4
POLL_S = 0.02


class ProcessGroup:
    """The group that `leader` leads; `born` tells the leader from a later process of the same number.

    `leader` 0 stands for a group that was never started.
    """

    def __init__(self, leader: int, born: str, process: subprocess.Popen[bytes] | None = None) -> None:
        self.leader = leader
        self.born = born
        self._process = process

    def __repr__(self) -> str:
        return f"<ProcessGroup {self.leader}>"

    @classmethod
    def start(
        cls, argv: Sequence[str], *, log: Path, environment: Mapping[str, str] | None = None
    ) -> ProcessGroup:
        """A new group in a session of its own, its output in `log`. Raises OSError."""
        with log.open("ab") as output:
            process = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env=environment,
            )
        return cls(process.pid, born_of(process.pid), process)

    @property
    def exit_code(self) -> int | None:
        """The leader's, below 0 for a signal; None while it lives, or when it is no child of ours."""
        return self._process.poll() if self._process is not None else None

    def is_alive(self) -> bool:
        """Whether the leader lives; a zombie does not."""
        if self._process is not None:
            return self._process.poll() is None
        return bool(self.born) and born_of(self.leader) == self.born

    def is_empty(self) -> bool:
        """Whether no living process of the group is left."""
        if self.leader <= 1:
            return True  # to the kernel these numbers mean our own group, and everybody
        if self.is_alive():
            return False
        if self._process is None and born_of(self.leader):
            return True  # another process has the number now, and with it the group
        self._reap()
        try:
            os.killpg(self.leader, 0)
        except ProcessLookupError:
            return True
        except PermissionError:
            return True  # the number went to somebody else's processes
        return not _living_members(self.leader)

    async def end(self) -> bool:
        """Ends the group: SIGTERM, after TERM_S SIGKILL; whether it is empty now (in less than 2 s)."""
        if await self._signal(signal.SIGTERM, TERM_S):
            return True
        return await self._signal(signal.SIGKILL, KILL_S)

    async def _signal(self, number: signal.Signals, patience_s: float) -> bool:
        deadline = time.monotonic() + patience_s
        if self.is_empty():
            return True
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.leader, number)
        while not self.is_empty():
            if time.monotonic() > deadline:
                return False
            await asyncio.sleep(POLL_S)
        return True

    def _reap(self) -> None:
        # orphans of the group become our children where we are process 1 of a container
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-self.leader, os.WNOHANG)[0]:
                pass


def born_of(pid: int) -> str:
    """When the living process began, in the kernel's own words; "" when there is none (or only a zombie)."""
    fields = _stat(pid)
    if fields is None:
        return "" if Path("/proc/self").exists() or not _answers(pid) else "unknown"
    return "" if fields[0] in ("Z", "X") else fields[19]


def _living_members(group: int) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir() if Path("/proc/self").exists() else ():
        fields = _stat(int(entry.name)) if entry.name.isdecimal() else None
        if fields is not None and int(fields[2]) == group and fields[0] not in ("Z", "X"):
            found.append(int(entry.name))
    return found


def _stat(pid: int) -> list[str] | None:
    """The fields of /proc/<pid>/stat after the command's name: state, parent, group, …"""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return None
    return text.rpartition(")")[2].split()


def _answers(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
