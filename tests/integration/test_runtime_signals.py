"""Signals to a real process: the first one stops it in order, the second one at once."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
AT_ONCE_S = 0.1
FREE_TRIES = 5
"""On a busy machine a single measurement means little."""
PROGRAM = """
import asyncio, sys, time
from shared.service.runtime import main
from shared.service.service_settings import ServiceSettings

async def serve(settings, stop):
    print("serves", flush=True)
    await stop.wait()
    print("stops", flush=True)
    {leaving}

sys.exit(main("example", ServiceSettings, serve))
"""
LEAVINGS = {
    "waits": "await asyncio.Event().wait()",
    "computes": "while True: pass",
    "sleeps in the loop": "time.sleep(600)",
}


@contextlib.asynccontextmanager
async def service(leaving: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """A running service; `leaving` is the code that it runs after the first signal."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", PROGRAM.format(leaving=leaving)),
        cwd=ROOT,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        await until_printed(process, b"serves")
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def until_printed(process: asyncio.subprocess.Process, word: bytes) -> None:
    """Returns when the process has printed the word."""
    assert process.stdout is not None
    assert (await asyncio.wait_for(process.stdout.readline(), 60)).strip() == word


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_the_first_signal_stops_the_service_in_order(number: signal.Signals) -> None:
    """It ends by itself with exit code 0."""
    async with service("pass") as process:
        process.send_signal(number)
        await until_printed(process, b"stops")
        _, errors = await asyncio.wait_for(process.communicate(), 60)

    assert process.returncode == 0
    (line,) = (json.loads(line) for line in errors.splitlines())
    assert (line["message"], line["signal"]) == (
        "stopping in order; a second signal exits at once",
        number.name,
    )


@pytest.mark.parametrize("leaving", LEAVINGS)
async def test_the_second_signal_ends_the_service_at_once(leaving: str) -> None:
    """Within 100 ms, whatever it is doing, with a line in the log and a non-zero exit code."""
    times_s: list[float] = []
    while len(times_s) < FREE_TRIES and not any(one < AT_ONCE_S for one in times_s):
        async with service(LEAVINGS[leaving]) as process:
            process.send_signal(signal.SIGTERM)
            await until_printed(process, b"stops")
            began_s = time.monotonic()
            process.send_signal(signal.SIGTERM)
            _, errors = await asyncio.wait_for(process.communicate(), 60)
            times_s.append(time.monotonic() - began_s)

        assert process.returncode == 128 + signal.SIGTERM
        assert b"second signal, exiting at once" in errors

    assert min(times_s) < AT_ONCE_S


async def test_signals_of_both_kinds_count_together() -> None:
    """After a supervisor's SIGTERM, Ctrl-C ends the service at once."""
    async with service(LEAVINGS["waits"]) as process:
        process.send_signal(signal.SIGTERM)
        await until_printed(process, b"stops")
        process.send_signal(signal.SIGINT)
        await asyncio.wait_for(process.communicate(), 60)

    assert process.returncode == 128 + signal.SIGINT
