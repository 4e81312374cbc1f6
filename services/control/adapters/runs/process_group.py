"""A driver and everything that it starts: one process group, identified by its number, ended as a whole.

Killing only Spark's JVM, or only its Python, leaves the other behind. So signals go to the group, and a run
is over when the group is empty. This also works for drivers that an earlier control process started.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

TERM_S = 1.5
"""How long a group may take to exit after SIGTERM; with KILL_S, `end` stays below 2 s."""
KILL_S = 0.4
POLL_S = 0.02
DEAD = ("Z", "X")
"""States of /proc of a zombie and of a process that is being removed."""


class ProcessGroup:
    """The group of the process `leader`; `born` distinguishes it from a later process with the same number.

    `leader` 0 is a group that was never started.
    """

    def __init__(self, leader: int, born: str, process: subprocess.Popen[bytes] | None = None) -> None:
        self.leader = leader
        self.born = born
        self._process = process

    def __repr__(self) -> str:
        return f"<ProcessGroup {self.leader}>"

    @classmethod
    def start(cls, argv: Sequence[str], *, log: Path) -> ProcessGroup:
        """A new group in its own session, with its output in `log`. Raises OSError."""
        with log.open("ab") as output:
            process = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        return cls(process.pid, born_of(process.pid), process)

    @classmethod
    def find(cls, arguments: Sequence[str]) -> ProcessGroup | None:
        """The group whose leader's last arguments are these; None if there is none, or no /proc."""
        wanted = [argument.encode() for argument in arguments]
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            pid = int(path.parent.name)
            with contextlib.suppress(OSError):  # it has just ended
                words = path.read_bytes().split(b"\0")[:-1]
                if words[-len(wanted) :] == wanted and os.getpgid(pid) == pid:
                    return cls(pid, born_of(pid))
        return None

    @property
    def exit_code(self) -> int | None:
        """The leader's, negative for a signal; None while it is alive, or if it is not our child."""
        return self._process.poll() if self._process is not None else None

    def is_alive(self) -> bool:
        """Whether the leader is alive; a zombie is not."""
        if self._process is not None:
            return self._process.poll() is None
        return bool(self.born) and born_of(self.leader) == self.born

    def is_empty(self) -> bool:
        """Whether the group has no living process."""
        if self.leader <= 1:
            return True  # killpg(0) would signal our own group, and killpg(1) the init process
        if self.is_alive():
            return False
        if self._process is None and born_of(self.leader):
            return True  # another process has the number, so our group is gone
        self._reap()
        try:
            os.killpg(self.leader, 0)
        except (ProcessLookupError, PermissionError):
            return True  # PermissionError: the number belongs to another user's processes now
        return not _has_living_member(self.leader)

    async def end(self) -> bool:
        """Ends the group by SIGTERM, after TERM_S by SIGKILL, in less than 2 s; whether it is empty then."""
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
        # in a container we may be process 1, which inherits the group's orphans
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-self.leader, os.WNOHANG)[0]:
                pass


def born_of(pid: int) -> str:
    """When the living process began, in clock ticks since boot; "" if there is none (or only a zombie).

    The run's record keeps it, and a later control compares it. So it comes from /proc and not from psutil,
    whose `create_time` adds the boot time, which shifts whenever the wall clock is set.
    """
    fields = _stat(pid)
    if fields is None:
        return "" if Path("/proc/self").exists() or not _answers(pid) else "unknown"
    return "" if fields[0] in DEAD else fields[19]


def _has_living_member(group: int) -> bool:
    stats = (_stat(entry.name) for entry in Path("/proc").glob("[0-9]*"))
    return any(fields and int(fields[2]) == group and fields[0] not in DEAD for fields in stats)


def _stat(pid: int | str) -> list[str] | None:
    """The fields of /proc/<pid>/stat after the command's name: state, parent, group, …"""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return None
    return text.rpartition(")")[2].split()


def _answers(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except OSError as error:
        return isinstance(error, PermissionError)
    return True
