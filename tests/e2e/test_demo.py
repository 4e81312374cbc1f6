"""`baton demo` as a user runs it, on its own servers, from a log to the proof; and what stops it early."""

from __future__ import annotations

import asyncio
import contextlib
import re
import signal
import sys
from asyncio.subprocess import Process
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from cli.http.client import connect
from cli.stack.options import StackOptions, ports_of
from cli.stack.processes.probes import check_ports
from cli.terminal.exit_codes import ExitCode
from tests.e2e.stack import baton, left_running
from tests.servers import free_port_offset
from tests.waiting import DEADLINE_S

EXACT = "missing 0, extra 0, different 0"
PROVEN = "missing 0, overdue 0, extra 0, different 0"
ASKED = re.compile(
    r"moving stream (\d+) to consumer-0, live\n"
    r"  stream \1 moved warm with (?P<sessions>[\d,]+) open sessions?, [^;]*; the pause was [\d.]+ ms\n"
    r"(?:  in exchange: handed over \d+ streams?, (?P<given>[\d,]+) open sessions?, )?"
)
MOVED = re.compile(
    r"\n  handed over (?P<streams>\d+) streams?, (?P<sessions>[\d,]+) open sessions?, [^;]*; "
    r"the (?:longest )?pause was [\d.]+ ms(?:; (?P<replayed>\d+) streams? had to replay)?\n"
)


async def test_a_demo_is_exact_and_stays_until_it_is_stopped(tmp_path: Path) -> None:
    """Made-up visits come out exactly, although streams move with open sessions and a consumer is killed.

    With --stay the stack goes on after the report, and `baton down` ends it. The exit code is the verdict's.
    """
    offset = free_port_offset()
    control = f"http://127.0.0.1:{8000 + offset}"

    async with started_demo(tmp_path, offset, "--visitors", "150", "--seed", "7", "--stay") as process:
        out = await read_until("stops everything", process)
        async with connect(control, patience_s=DEADLINE_S) as client:
            group = await client.get("/streams", {"group": "default"})
        down, _, _ = await baton("down", "--home", str(tmp_path / "home"))
        rest, err = await process.communicate()

    assert (down, process.returncode, err) == (0, 0, b"")
    assert (group["totals"]["sessions"] > 0, group["totals"]["open_sessions"]) == (True, 0)
    # on a busy machine a stream that the plan gives in exchange may have to replay; this one may not
    asked = re.search(ASKED, out)
    assert asked, out
    # the fullest stream's sessions may have ended by now
    assert {asked["sessions"], asked["given"]} - {"0", None}, out
    assert "killing consumer-1 with SIGKILL" in out
    assert "consumer-1 died (SIGKILL)" in out
    # its share is 8, or 9 if it was given one in exchange and a machine that is busy let it keep it
    assert re.search(r"replayed [789] streams with \d+ open sessions?; the last was open again after", out), (
        out
    )
    assert moved_after(r"consumer-1 is back, .*", out)
    # the log is held back meanwhile, so its sessions are open
    streams, sessions, replayed = moved_after(r"draining consumer-2", out)
    assert sessions > 0, out
    assert replayed < streams, out
    assert f"audit: {PROVEN}" in out
    assert f"truth: {EXACT}" in out
    assert "Everything is exact" in out
    assert f"console    {control}/" in out
    assert "zookeeper stopped" in rest.decode()
    assert_nothing_runs(tmp_path, offset)


@pytest.mark.soak
async def test_a_demo_of_a_real_log_is_exact_on_a_secured_stack(tmp_path: Path, nasa_log: Path) -> None:
    """The demo guesses format, key and time; the numbers equal those counted on the log itself.

    Every process, Spark's jobs included, shows its certificate or password.
    """
    offset = free_port_offset()

    code, out, err = await demo(tmp_path, offset, str(nasa_log), "--secure")

    assert (code, err) == (0, "")
    assert f"control is ready at https://127.0.0.1:{8000 + offset}" in out
    assert f"audit: {PROVEN} (2,989 sessions judged, recomputed in Spark from 30,969 fragments)" in out
    assert "/images/NASA-logosmall.gif" in out
    assert "`make demo ARGS=--stay`" in out
    assert f"The console is then at https://127.0.0.1:{8000 + offset}/" in out
    assert_nothing_runs(tmp_path, offset)


async def test_a_stopped_demo_leaves_nothing_running(tmp_path: Path) -> None:
    """SIGTERM in the middle stops everything in order, and the exit code says that nothing was proven."""
    offset = free_port_offset()
    async with started_demo(tmp_path, offset, "--visitors", "50") as process:
        await read_until("kafka is ready", process)
        process.send_signal(signal.SIGTERM)
        out, err = await process.communicate()

    assert process.returncode == 1
    assert "zookeeper stopped" in out.decode()
    assert err.decode().startswith("demo: stopped before its end")
    assert_nothing_runs(tmp_path, offset)


async def test_a_failed_download_stops_a_demo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without jars and without a network one sentence names the jars that could not be downloaded."""
    offset = free_port_offset()
    monkeypatch.setenv("BATON_CACHE", str(tmp_path / "cache"))
    proxy = (f"-D{scheme}.proxyHost=127.0.0.1 -D{scheme}.proxyPort=9" for scheme in ("http", "https"))
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", " ".join(proxy))

    code, out, err = await demo(tmp_path, offset)

    assert code == ExitCode.UNREACHABLE
    assert "jars could not be downloaded" in err.splitlines()[-1]
    assert "is ready" not in out
    assert_nothing_runs(tmp_path, offset)


async def test_a_demo_does_not_mix_with_other_data(tmp_path: Path) -> None:
    """The demo rejects a home that is not empty: its numbers would mix."""
    (tmp_path / "something").touch()

    code, out, err = await baton("demo", "--home", str(tmp_path))

    assert (code, out) == (ExitCode.REFUSED, "")
    assert "is not empty" in err


def moved_after(step: str, out: str) -> tuple[int, int, int]:
    """What a step of the demo moved: streams handed over, their open sessions, streams that replayed."""
    found = re.search(step + MOVED.pattern, out)
    assert found, out
    return int(found["streams"]), int(found["sessions"].replace(",", "")), int(found["replayed"] or 0)


async def demo(folder: Path, offset: int, *arguments: str) -> tuple[int, str, str]:
    """A demo in a home inside the folder."""
    return await baton("demo", "--home", str(folder / "home"), "--port-offset", str(offset), *arguments)


@contextlib.asynccontextmanager
async def started_demo(folder: Path, offset: int, *arguments: str) -> AsyncIterator[Process]:
    """A running demo in a home inside the folder; it is killed if it has not ended after the block."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-u", "-m", "cli.main", "demo", *arguments),
        *("--home", str(folder / "home"), "--port-offset", str(offset)),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(4 * DEADLINE_S):
            yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()


async def read_until(words: str, process: Process) -> str:
    """What the process prints, up to the line with these words."""
    assert process.stdout is not None
    out = ""
    while words not in (line := (await process.stdout.readline()).decode()):
        assert line, f"the demo has ended before it printed {words!r}: {out}"
        out += line
    return out + line


def assert_nothing_runs(folder: Path, offset: int) -> None:
    """No process knows the folder, and every port is free again."""
    assert left_running(folder) == []
    check_ports("127.0.0.1", ports_of(StackOptions(port_offset=offset, secure=True)))
