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

from cli.stack import leash, supervisor
from cli.stack.faults import NotReady
from cli.stack.identity import identify, is_alive
from cli.stack.supervisor import ProcessSpec, SupervisedProcess

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


class Run:
    """A supervised Python program in a folder, with its reports; it is ready once the file `up` exists."""

    def __init__(
        self, folder: Path, program: str, stop_timeout_s: float = 20.0, ready_timeout_s: float = DEADLINE_S
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
            ready_timeout_s=ready_timeout_s,
            stop_timeout_s=stop_timeout_s,
        )
        self.process = SupervisedProcess(spec, lambda name, what: self.reports.append(what))

    async def _is_up(self) -> bool:
        return (self.folder / "up").exists()

    @contextlib.asynccontextmanager
    async def supervised(self) -> AsyncIterator[SupervisedProcess]:
        async with asyncio.TaskGroup() as tasks:
            task = tasks.create_task(self.process.run())
            try:
                yield self.process
            finally:
                task.cancel()


async def test_a_process_that_dies_is_restarted(tmp_path: Path) -> None:
    """After a SIGKILL the program runs again with another pid, and the death is reported."""
    run = Run(tmp_path, FOREVER)

    async with run.supervised() as process:
        await process.wait_ready()
        before = process.pid
        await process.kill()
        await until(lambda: process.starts == 2 and process.pid is not None)

        assert process.pid != before
        assert run.reports == ["died (SIGKILL), starts again in 0.02 s"]


async def test_a_program_that_keeps_dying_is_a_failed_start(tmp_path: Path) -> None:
    """The error has the last line of output and the log's path."""
    run = Run(tmp_path, "print('first', flush=True); raise SystemExit('no such broker')")

    async with run.supervised() as process:
        with pytest.raises(
            NotReady, match=r"it does not start \(exit code 1\): no such broker \(log: .*it\.log"
        ):
            await process.wait_ready()


async def test_a_program_that_is_never_ready_is_a_failed_start(tmp_path: Path) -> None:
    """A running program is not a ready one: after the time-out the start has failed."""
    run = Run(tmp_path, "import time; time.sleep(600)", ready_timeout_s=0.3)

    async with run.supervised() as process:
        with pytest.raises(NotReady, match=r"was not ready after 0\.3 s"):
            await process.wait_ready()


async def test_a_stopped_program_ends_in_order(tmp_path: Path) -> None:
    """It gets SIGTERM first, and it does not restart."""
    run = Run(tmp_path, ORDERLY)

    async with run.supervised() as process:
        await process.wait_ready()
        await process.stop()

        assert (process.pid, process.starts, run.reports) == (None, 1, [])
        assert process.spec.log.read_text() == "left in order\n"


async def test_a_program_that_does_not_stop_is_killed(tmp_path: Path) -> None:
    """After the time-out, and this is reported."""
    run = Run(tmp_path, STUBBORN, stop_timeout_s=0.2)

    async with run.supervised() as process:
        await process.wait_ready()
        await process.stop()

        assert process.pid is None
        assert run.reports == ["did not stop within 0.2 s, is killed"]


async def test_a_paused_program_can_be_stopped(tmp_path: Path) -> None:
    """A program under SIGSTOP is continued, so that it can end in order."""
    run = Run(tmp_path, ORDERLY)

    async with run.supervised() as process:
        await process.wait_ready()
        process.send(signal.SIGSTOP)
        await process.stop()

        assert run.reports == []
        assert "left in order" in process.spec.log.read_text()


async def test_a_program_can_be_killed_for_good(tmp_path: Path) -> None:
    """`restart=False` ends the program and its supervision."""
    run = Run(tmp_path, FOREVER)

    async with run.supervised() as process:
        await process.wait_ready()
        await process.kill(restart=False)

        assert (process.pid, process.starts) == (None, 1)


async def test_a_cancelled_supervision_leaves_nothing_running(tmp_path: Path) -> None:
    """Even if the program ignores SIGTERM."""
    run = Run(tmp_path, STUBBORN)

    async with run.supervised() as process:
        await process.wait_ready()
        identity = process.identity

    assert identity is not None
    await until(lambda: not is_alive(identity))


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has a parent-death signal")
async def test_a_process_on_the_leash_dies_with_its_killed_parent(tmp_path: Path) -> None:
    """Even a SIGKILL of the supervisor leaves nothing running."""
    pid_file = tmp_path / "pid"
    child = f"import os, time; open({str(pid_file)!r}, 'w').write(str(os.getpid())); time.sleep(600)"
    program = (
        f"import sys, time, subprocess; sys.path.insert(0, {str(Path(leash.__file__).parents[2])!r});"
        "from cli.stack.leash import on_leash;"
        f"subprocess.Popen(on_leash([sys.executable, '-I', '-S', '-c', {child!r}])); time.sleep(600)"
    )
    parent = await asyncio.create_subprocess_exec(sys.executable, "-c", program)
    await until(lambda: pid_file.exists() and pid_file.read_text() != "")
    identity = identify(int(pid_file.read_text()))

    parent.kill()
    await parent.wait()

    assert identity is not None
    await until(lambda: not is_alive(identity))
