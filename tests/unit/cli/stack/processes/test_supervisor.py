"""Supervision of real, tiny processes: restarts, reports, orderly stops, and no process left behind."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from cli.stack.faults import NotReady
from cli.stack.processes import leash, supervisor
from cli.stack.processes.identity import identify, is_alive
from cli.stack.processes.supervisor import ProcessSpec, SupervisedProcess

DEADLINE_S = 20.0
FOREVER = "import time; open('up', 'w').close(); time.sleep(600)"
STUBBORN = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); " + FOREVER
ORDERLY = (
    "import signal, sys; signal.signal(signal.SIGTERM, lambda *_: (print('left in order'), sys.exit(0))); "
    + FOREVER
)


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "FIRST_DELAY_S", 0.02)
    monkeypatch.setattr(supervisor, "READY_POLL_S", 0.01)


async def until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not holds():
        assert time.monotonic() < deadline, "not in time"
        await asyncio.sleep(0.01)


class Program:
    """A supervised Python program in a folder, with its reports; it is ready once the file `up` exists."""

    def __init__(
        self, folder: Path, program: str, *, ready_s: float = DEADLINE_S, stop_s: float = DEADLINE_S
    ) -> None:
        self.folder = folder
        self.reports: list[str] = []
        spec = ProcessSpec(
            name="it",
            argv=[sys.executable, "-I", "-S", "-c", program],
            log=folder / "logs" / "it.log",
            is_ready=self._is_up,
            folder=folder,
            environment=os.environ,
            ready_timeout_s=ready_s,
            stop_timeout_s=stop_s,
        )
        self.process = SupervisedProcess(spec, lambda name, what: self.reports.append(what))

    async def _is_up(self) -> bool:
        return (self.folder / "up").exists()

    @contextlib.asynccontextmanager
    async def supervised(self) -> AsyncIterator[SupervisedProcess]:
        """Supervises the program during the block."""
        async with asyncio.TaskGroup() as tasks:
            task = tasks.create_task(self.process.run())
            try:
                yield self.process
            finally:
                task.cancel()

    @contextlib.asynccontextmanager
    async def ready(self) -> AsyncIterator[SupervisedProcess]:
        """Supervises the program; the block begins when it is ready."""
        async with self.supervised() as process:
            await process.wait_ready()
            yield process


async def test_a_process_that_dies_is_restarted(tmp_path: Path) -> None:
    """After a SIGKILL the program runs again with another pid, and the death is reported."""
    program = Program(tmp_path, FOREVER)

    async with program.ready() as process:
        before = process.pid
        await process.kill()
        await until(lambda: process.starts == 2 and process.pid is not None)

        assert process.pid != before
        assert program.reports == ["died (SIGKILL), starts again in 0.02 s"]


@pytest.mark.parametrize(
    ("program", "ready_s", "sentence"),
    [
        (
            "print('first', flush=True); raise SystemExit('no such broker')",
            DEADLINE_S,
            r"it does not start \(exit code 1\): no such broker \(log: .*it\.log",
        ),
        ("import time; time.sleep(600)", 0.3, r"was not ready after 0\.3 s"),
    ],
)
async def test_a_program_that_keeps_dying_or_is_never_ready_is_a_failed_start(
    tmp_path: Path, program: str, ready_s: float, sentence: str
) -> None:
    """The error has the last line of output and the log's path."""
    async with Program(tmp_path, program, ready_s=ready_s).supervised() as process:
        with pytest.raises(NotReady, match=sentence):
            await process.wait_ready()


@pytest.mark.parametrize("is_paused", [False, True])
async def test_a_stopped_program_ends_in_order(tmp_path: Path, is_paused: bool) -> None:
    """It gets SIGTERM first, and it does not restart; under SIGSTOP it is continued, so that it can end."""
    program = Program(tmp_path, ORDERLY)

    async with program.ready() as process:
        if is_paused:
            process.send(signal.SIGSTOP)
        await process.stop()

        assert (process.pid, process.starts, program.reports) == (None, 1, [])
        assert process.spec.log.read_text() == "left in order\n"


async def test_a_program_that_does_not_stop_is_killed(tmp_path: Path) -> None:
    """After the time-out, and this is reported."""
    program = Program(tmp_path, STUBBORN, stop_s=0.2)

    async with program.ready() as process:
        await process.stop()

        assert process.pid is None
        assert program.reports == ["did not stop within 0.2 s, is killed"]


async def test_a_program_can_be_killed_for_good(tmp_path: Path) -> None:
    """`restart=False` ends the program and its supervision."""
    async with Program(tmp_path, FOREVER).ready() as process:
        await process.kill(restart=False)

        assert (process.pid, process.starts) == (None, 1)


async def test_a_cancelled_supervision_leaves_nothing_running(tmp_path: Path) -> None:
    """Even if the program ignores SIGTERM."""
    async with Program(tmp_path, STUBBORN).ready() as process:
        identity = process.identity

    assert identity is not None
    await until(lambda: not is_alive(identity))


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has a parent-death signal")
async def test_a_process_on_the_leash_dies_with_its_killed_parent(tmp_path: Path) -> None:
    """Even a SIGKILL of the supervisor leaves nothing running."""
    pid_file = tmp_path / "pid"
    child = f"import os, time; open({str(pid_file)!r}, 'w').write(str(os.getpid())); time.sleep(600)"
    program = (
        f"import sys, time, subprocess; sys.path.insert(0, {str(Path(leash.__file__).parents[3])!r});"
        "from cli.stack.processes.leash import on_leash;"
        f"subprocess.Popen(on_leash([sys.executable, '-I', '-S', '-c', {child!r}])); time.sleep(600)"
    )
    parent = await asyncio.create_subprocess_exec(sys.executable, "-c", program)
    await until(lambda: pid_file.exists() and pid_file.read_text() != "")
    identity = identify(int(pid_file.read_text()))

    parent.kill()
    await parent.wait()

    assert identity is not None
    await until(lambda: not is_alive(identity))
