"""The parent of workers, with small programs in their place: back-off, start faults, leaving, the port."""

from __future__ import annotations

import asyncio
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from services.producer.process import workers as subject
from services.producer.process.workers import Worker, WorkerFailed, Workers, reserved

from services.producer.settings import ProducerSettings
from shared.errors import BatonError
from shared.service.runtime import listen
from tests.servers import free_port

BEGIN = """
import pathlib, signal, sys, time
number, folder = sys.argv[-2], pathlib.Path(sys.argv[-1])
log = pathlib.Path(sys.argv[1])
def say(word):
    with log.open("a") as file:
        file.write(f"{number} {word}\\n")
def on_signal(*_):
    say("leaves")
    sys.exit(0)
signal.signal(signal.SIGTERM, on_signal)
say("begins")
"""
READY = "(folder / 'ready').touch()\n"
SERVE = "while True: time.sleep(60)\n"


@pytest.fixture(autouse=True)
def _short_delays(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(subject, "FIRST_DELAY_S", 0.01)
    monkeypatch.setattr(subject, "LONGEST_DELAY_S", 0.02)
    monkeypatch.setattr(subject, "STOP_GRACE_S", 0.2)
    return iter([None])


def workers(tmp_path: Path, program: str, count: int = 2) -> Workers:
    """Workers that run the program after its common beginning."""
    settings = ProducerSettings(port=free_port(), workers=count, ack_timeout_s=0.2)
    return Workers(settings, [sys.executable, "-c", BEGIN + program, str(tmp_path / "log")])


async def said(tmp_path: Path, word: str, times: int) -> list[str]:
    """The lines of the log with the word, once there are so many."""
    deadline = time.monotonic() + 60
    while True:
        log = (tmp_path / "log").read_text() if (tmp_path / "log").exists() else ""
        found = [line for line in log.splitlines() if word in line]
        if len(found) >= times:
            return found
        assert time.monotonic() < deadline, log
        await asyncio.sleep(0.01)


async def test_all_workers_are_started_and_leave_together(tmp_path: Path) -> None:
    """Each is told its number, and each gets one signal when it is time to leave."""
    stop = asyncio.Event()
    running = asyncio.create_task(workers(tmp_path, READY + SERVE, 3).run(stop))
    begun = await said(tmp_path, "begins", 3)

    stop.set()
    await asyncio.wait_for(running, 30)

    assert sorted(begun) == ["0 begins", "1 begins", "2 begins"]
    assert sorted(await said(tmp_path, "leaves", 3)) == ["0 leaves", "1 leaves", "2 leaves"]


@pytest.mark.parametrize("end", ["sys.exit(1)\n", "sys.exit(0)\n", "import os; os.kill(os.getpid(), 9)\n"])
async def test_a_worker_that_ends_is_told_and_started_again(
    end: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """However it ended, as long as one has ever been ready; the others are left alone."""
    stop = asyncio.Event()
    program = READY + "if number == '0':\n    " + end + SERVE
    running = asyncio.create_task(workers(tmp_path, program).run(stop))

    await said(tmp_path, "0 begins", 3)
    stop.set()
    await asyncio.wait_for(running, 30)

    assert len(await said(tmp_path, "1 begins", 1)) == 1
    told = [vars(record) for record in caplog.records if record.message == "worker ended, starts again"]
    assert {record["number"] for record in told} == {0}
    assert len(told) >= 2


async def test_a_fault_of_the_start_ends_all(tmp_path: Path) -> None:
    """No worker has ever been ready and one gives up by itself: trying again would not help."""
    program = "if number == '1':\n    sys.exit(1)\n" + SERVE

    with pytest.raises(ExceptionGroup) as caught:
        await asyncio.wait_for(workers(tmp_path, program).run(asyncio.Event()), 30)

    assert caught.group_contains(WorkerFailed, match="worker 1 could not begin")
    assert len(await said(tmp_path, "1 begins", 1)) == 1


async def test_a_program_that_cannot_be_started_is_tried_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """For want of memory or processes, say; the parent does not end for it."""
    stop = asyncio.Event()
    settings = ProducerSettings(port=free_port(), workers=1)
    running = asyncio.create_task(Workers(settings, [str(tmp_path / "nothing")]).run(stop))

    async with asyncio.timeout(30):
        while len(caplog.records) < 3:  # noqa: ASYNC110  a log cannot be awaited
            await asyncio.sleep(0.01)
    stop.set()
    await asyncio.wait_for(running, 30)

    assert set(caplog.messages) == {"worker ended, starts again"}
    assert "No such file" in str(vars(caplog.records[0])["ended"])


async def test_a_worker_that_does_not_leave_is_killed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """After the grace, and that is told."""
    stop = asyncio.Event()
    deaf = "signal.signal(signal.SIGTERM, signal.SIG_IGN)\nsay('is deaf')\n"
    running = asyncio.create_task(workers(tmp_path, deaf + SERVE, 1).run(stop))
    await said(tmp_path, "is deaf", 1)

    stop.set()
    await asyncio.wait_for(running, 30)

    assert "worker did not leave in time, killed" in caplog.messages


def test_a_port_that_somebody_listens_at_is_not_shared() -> None:
    """Not even with somebody who would share it: that would be a second producer."""
    with listen("127.0.0.1", 0, is_shared=True) as other:
        other.listen()
        port = other.getsockname()[1]

        with pytest.raises(BatonError, match="cannot listen"), reserved("127.0.0.1", port):
            pass


def test_workers_can_listen_at_a_reserved_port() -> None:
    """Several of them; the parent's own socket takes no connection."""
    port = free_port()
    with (
        reserved("127.0.0.1", port),
        listen("127.0.0.1", port, is_shared=True) as one,
        listen("127.0.0.1", port, is_shared=True) as two,
    ):
        one.listen()
        two.listen()
        clients = [socket.create_connection(("127.0.0.1", port), timeout=10) for _ in range(16)]
        taken = 0
        for listener in (one, two):
            listener.setblocking(False)
            while True:
                try:
                    listener.accept()[0].close()
                except BlockingIOError:
                    break
                taken += 1
        for client in clients:
            client.close()

    assert taken == 16


def test_a_worker_is_told_by_its_command_line(tmp_path: Path) -> None:
    """Its number and the common folder; without them the process is no worker."""
    argv = ["producer", "--worker", "3", str(tmp_path)]
    settings = ProducerSettings(producer="p")

    worker = Worker.from_argv(argv)

    assert worker == Worker(number=3, folder=tmp_path)
    assert worker is not None
    assert worker.settings(settings).id == "p.3"
    assert worker.settings(ProducerSettings(port=8001)).id.endswith("-8001.3")
    assert Worker.from_argv(["producer"]) is None
