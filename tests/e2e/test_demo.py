"""`baton demo` as a user runs it, on its own servers, from a log to the proof; and what stops it early."""

from __future__ import annotations

import asyncio
import contextlib
import re
import signal
import sys
from pathlib import Path

import pytest

from cli.stack.options import StackOptions, ports_of
from cli.stack.probes import check_ports
from cli.terminal.exit_codes import ExitCode
from tests.e2e.stack import baton, left_running
from tests.servers import free_port_offset
from tests.waiting import DEADLINE_S

EXACT = "missing 0, extra 0, different 0"


async def test_a_demo_is_exact_and_leaves_nothing_running(tmp_path: Path) -> None:
    """Made-up visits come out exactly, although a consumer is killed on the way."""
    offset = free_port_offset()

    code, out, err = await demo(tmp_path, offset, "--visitors", "150", "--seed", "7")

    assert (code, err) == (0, "")
    assert "moving stream 0 to consumer-" in out
    # the plan may exchange streams, and on a busy machine one may have to replay
    assert re.search(r"live\n  (handed over [12] streams?,|[12] streams? had to replay)", out), out
    assert "killing consumer-1 with SIGKILL" in out
    assert "consumer-1 died (SIGKILL)" in out
    assert "draining consumer-2" in out
    assert f"audit: {EXACT}" in out
    assert f"truth: {EXACT}" in out
    assert "Everything is exact" in out
    assert_nothing_runs(tmp_path, offset)


async def test_a_demo_of_a_real_log_is_exact_on_a_secured_stack(tmp_path: Path, nasa_log: Path) -> None:
    """The demo guesses format, key and time; the numbers equal those counted on the log itself.

    Every process, Spark's jobs included, shows its certificate or password.
    """
    offset = free_port_offset()

    code, out, err = await demo(tmp_path, offset, str(nasa_log), "--secure")

    assert (code, err) == (0, "")
    assert f"control is ready at https://127.0.0.1:{8000 + offset}" in out
    assert f"audit: {EXACT} (2,989 sessions judged, recomputed in Spark from 30,969 fragments)" in out
    assert "/images/NASA-logosmall.gif" in out
    assert_nothing_runs(tmp_path, offset)


async def test_a_stopped_demo_leaves_nothing_running(tmp_path: Path) -> None:
    """SIGTERM in the middle stops everything in order, and the exit code says that nothing was proven."""
    offset = free_port_offset()
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-u", "-m", "cli.main", "demo", "--visitors", "50"),
        *("--home", str(tmp_path / "home"), "--port-offset", str(offset)),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(DEADLINE_S):
            while "kafka is ready" not in (line := (await process.stdout.readline()).decode()):
                assert line, "the demo has ended before Kafka was ready"
            process.send_signal(signal.SIGTERM)
            out, err = await process.communicate()
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()

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


async def demo(folder: Path, offset: int, *arguments: str) -> tuple[int, str, str]:
    """A demo in a home inside the folder."""
    return await baton("demo", "--home", str(folder / "home"), "--port-offset", str(offset), *arguments)


def assert_nothing_runs(folder: Path, offset: int) -> None:
    """No process knows the folder, and every port is free again."""
    assert left_running(folder) == []
    check_ports("127.0.0.1", ports_of(StackOptions(port_offset=offset, secure=True)))
