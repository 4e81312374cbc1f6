"""The supervisor, with small programs in place of workers: restarts, start faults, stopping, the port."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from services.producer.settings import ProducerSettings
from services.producer.workers import supervisor as subject
from services.producer.workers.supervisor import Supervisor, WorkerFailed, reserved_port
from services.producer.workers.worker import Worker
from shared.errors import BatonError
from shared.server.listener import listen
from tests.servers import free_port
from tests.waiting import DEADLINE_S, until

BEGIN = """
import pathlib, signal, sys, time
number, folder = sys.argv[-2], pathlib.Path(sys.argv[-1])
path = pathlib.Path(sys.argv[1])
def log_line(word):
    with path.open("a") as file:
        file.write(f"{number} {word}\\n")
def on_signal(*_):
    log_line("stops")
    sys.exit(0)
signal.signal(signal.SIGTERM, on_signal)
log_line("starts")
"""
READY = "(folder / 'ready').touch()\n"
SERVE = "while True: time.sleep(60)\n"


@pytest.fixture(autouse=True)
def _short_delays(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(subject, "FIRST_DELAY_S", 0.01)
    monkeypatch.setattr(subject, "MAX_DELAY_S", 0.02)
    monkeypatch.setattr(subject, "STOP_GRACE_S", 0.2)
    return iter([None])


def supervisor(tmp_path: Path, program: str, count: int = 2) -> Supervisor:
    """A supervisor of workers that run the program after BEGIN."""
    settings = ProducerSettings(port=free_port(), workers=count, ack_timeout_s=0.2)
    return Supervisor(settings, [sys.executable, "-c", BEGIN + program, str(tmp_path / "log")])


@contextlib.asynccontextmanager
async def running(found: Supervisor) -> AsyncIterator[None]:
    """Runs the supervisor during the block, then stops it and waits for its end."""
    stop = asyncio.Event()
    task = asyncio.create_task(found.run(stop))
    yield
    stop.set()
    await asyncio.wait_for(task, DEADLINE_S)


async def logged(tmp_path: Path, word: str, times: int) -> list[str]:
    """The lines of the log with the word, once there are that many."""

    def found() -> list[str]:
        log = (tmp_path / "log").read_text() if (tmp_path / "log").exists() else ""
        return [line for line in log.splitlines() if word in line]

    await until(lambda: len(found()) >= times, found)
    return found()


async def test_all_workers_start_and_stop_together(tmp_path: Path) -> None:
    """Each gets its number as an argument, and one signal to stop."""
    async with running(supervisor(tmp_path, READY + SERVE, 3)):
        begun = await logged(tmp_path, "starts", 3)

    assert sorted(begun) == ["0 starts", "1 starts", "2 starts"]
    assert sorted(await logged(tmp_path, "stops", 3)) == ["0 stops", "1 stops", "2 stops"]


@pytest.mark.parametrize("end", ["sys.exit(1)\n", "sys.exit(0)\n", "import os; os.kill(os.getpid(), 9)\n"])
async def test_a_worker_that_exits_is_logged_and_restarted(
    end: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """However it exits, once any worker has been ready; the other workers are not affected."""
    program = READY + "if number == '0':\n    " + end + SERVE

    async with running(supervisor(tmp_path, program)):
        await logged(tmp_path, "0 starts", 3)

    assert len(await logged(tmp_path, "1 starts", 1)) == 1
    exits = [vars(record) for record in caplog.records if record.message == "worker exited, restarting"]
    assert {record["number"] for record in exits} == {0}
    assert len(exits) >= 2


async def test_a_start_fault_ends_all_workers(tmp_path: Path) -> None:
    """No worker has been ready, and one exits by itself: a restart would not help."""
    program = "if number == '1':\n    sys.exit(1)\n" + SERVE

    with pytest.raises(ExceptionGroup) as caught:
        await asyncio.wait_for(supervisor(tmp_path, program).run(asyncio.Event()), 30)

    assert caught.group_contains(WorkerFailed, match="worker 1 could not start")
    assert len(await logged(tmp_path, "1 starts", 1)) == 1


async def test_a_process_that_cannot_be_created_is_retried(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """For example without memory for it; the supervisor goes on."""
    settings = ProducerSettings(port=free_port(), workers=1)

    async with running(Supervisor(settings, [str(tmp_path / "nothing")])), asyncio.timeout(DEADLINE_S):
        while len(caplog.records) < 3:  # noqa: ASYNC110  a log cannot be awaited
            await asyncio.sleep(0.01)

    assert set(caplog.messages) == {"worker exited, restarting"}
    assert "No such file" in str(vars(caplog.records[0])["ended"])


async def test_a_worker_that_does_not_stop_is_killed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """After the grace period, and it is logged."""
    deaf = "signal.signal(signal.SIGTERM, signal.SIG_IGN)\nlog_line('is deaf')\n"

    async with running(supervisor(tmp_path, deaf + SERVE, 1)):
        await logged(tmp_path, "is deaf", 1)

    assert "worker did not stop in time, killed" in caplog.messages


def test_an_occupied_port_is_not_shared() -> None:
    """Not even if its owner would share it, because that is a second producer."""
    with listen("127.0.0.1", 0, is_shared=True) as other:
        other.listen()
        port = other.getsockname()[1]

        with pytest.raises(BatonError, match="cannot listen"), reserved_port("127.0.0.1", port):
            pass


def test_a_worker_reads_its_number_and_folder_from_the_command_line(tmp_path: Path) -> None:
    """Without them the process is not a worker. Each worker has its own id."""
    worker = Worker(number=3, folder=tmp_path)

    assert Worker.from_argv(["producer", *worker.arguments]) == worker
    assert worker.settings(ProducerSettings(producer="p")).id == "p.3"
    assert worker.settings(ProducerSettings(port=8001)).id.endswith("-8001.3")
    assert Worker.from_argv(["producer"]) is None
