"""`baton import` as a whole, against a producer and a control in memory behind real HTTP."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import httpx
import pytest
from click.testing import CliRunner

from cli.http.receipts import MarkerPosition
from cli.importing.command import import_command
from cli.importing.sending.lanes import PATIENCE_S
from cli.importing.sending.waiting import await_delivery
from cli.terminal.exit_codes import ExitCode
from shared.errors import Unavailable
from tests.unit.cli.fake_services import InMemoryProducer, problem, served
from tests.unit.cli.importing.run import NDJSON, both, control_with, imported, importing

TSV = ("--format", "tsv", "--key", "k", "--time", "t")


def log_file(tmp_path: Path, lines: int = 100) -> Path:
    file = tmp_path / "log"
    file.write_text("".join(json.dumps({"key": f"k{n % 7}", "time": 1000 + n}) + "\n" for n in range(lines)))
    return file


def piped(url: str, *options: str) -> subprocess.Popen[bytes]:
    """A real process that imports its standard input."""
    argv = [sys.executable, "-m", "cli.main", "import", "-", *options, "--url", url]
    return subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def test_a_log_is_imported_and_closed_by_a_marker(tmp_path: Path) -> None:
    """The marker has the highest time and follows every fragment of its stream."""
    producer = InMemoryProducer(3, ["503"])

    result = imported(log_file(tmp_path), producer, "-o", "json")

    summary = json.loads(result.stdout)
    assert result.exit_code == 0
    assert [summary[name] for name in ("lines", "parsed", "sent", "accepted")] == [100] * 4
    assert (summary["rejected"], summary["unparsed"]) == (0, 0)
    assert (summary["retries"], summary["repeats_possible"]) == (1, True)
    assert summary["highest_time"] == 1099
    for place in summary["markers"]:
        assert place["offset"] == len(producer.logs[place["stream"]]) - 1
        assert json.loads(producer.logs[place["stream"]][-1]) == {"time": 1099}
    assert summary["bytes"] == sum(len(raw) for log in producer.logs.values() for raw in log[:-1])


def test_a_line_that_is_not_accepted_makes_the_exit_code_1(tmp_path: Path) -> None:
    """Even if it is merely unreadable; the other lines are still sent and closed."""
    file = log_file(tmp_path)
    file.write_text(file.read_text() + "nonsense\n")
    producer = InMemoryProducer(1)

    result = imported(file, producer)

    assert result.exit_code == 1
    assert "1 × malformed, first in line 101" in result.output
    assert len(producer.logs[0]) == 101


@pytest.mark.parametrize(("lines", "options"), [(0, ()), (100, ("--no-marker",))])
def test_no_marker_follows_an_empty_log_or_with_no_marker(
    tmp_path: Path, lines: int, options: tuple[str, ...]
) -> None:
    """There is nothing to close, or the sessions stay open; neither is an error."""
    producer = InMemoryProducer(1)

    result = imported(log_file(tmp_path, lines), producer, *options)

    assert result.exit_code == 0
    assert len(producer.logs[0]) == lines


def test_wait_returns_when_every_marker_is_committed(tmp_path: Path) -> None:
    """Control must report positions of the group beyond the markers."""
    control = control_with(fraud=1_800_000)
    control.answers["/streams"] = {"streams": [{"stream": n, "position": 1000} for n in (0, 1)]}

    wait = ("--wait", "--group", "fraud", "-o", "json")
    result = imported(log_file(tmp_path), InMemoryProducer(2), *wait, control=control)

    assert result.exit_code == 0
    assert json.loads(result.stdout)["delivered"] is True
    assert [query["group"] for path, query in control.queries if path == "/streams"] == ["fraud"]


@pytest.mark.parametrize(
    ("options", "says", "code"),
    [
        (("--wait", "--group", "nope"), "there is no group 'nope'; control knows default", ExitCode.REFUSED),
        (("--control", "http://127.0.0.1:1"), "correct --control", ExitCode.UNREACHABLE),
        (("--url", "http://127.0.0.1:1"), "does not answer", ExitCode.UNREACHABLE),
    ],
)
def test_a_wrong_address_or_group_is_reported_before_anything_is_sent(
    tmp_path: Path, options: tuple[str, ...], says: str, code: ExitCode
) -> None:
    """Within seconds, not after the minutes for which requests with fragments are retried."""
    producer = InMemoryProducer(2)
    began = time.monotonic()

    result = imported(log_file(tmp_path), producer, *options)

    assert result.exit_code == code
    assert says in result.stderr
    assert producer.requests == []
    assert time.monotonic() - began < PATIENCE_S / 4


@pytest.mark.parametrize("status", [401, 403])
@pytest.mark.parametrize("option", ["--close", "--dry-run", "--no-marker"])
def test_a_key_that_may_not_mark_is_refused_before_anything_is_sent(
    tmp_path: Path, status: int, option: str
) -> None:
    """Not after an hour of sending; without a marker the import needs no such key."""
    producer, control = InMemoryProducer(2), control_with(default=1_800_000)

    async def answer(request: httpx.Request) -> httpx.Response:
        if request.url.path == "/markers":
            return problem(status, "it lacks the scope `mark`")
        return await both(producer, control)(request)

    with importing(answer) as run:
        result = run(log_file(tmp_path), option)

    if option == "--no-marker":
        assert (result.exit_code, sum(producer.requests)) == (0, 100)
        return
    assert result.exit_code == ExitCode.REFUSED
    assert "it lacks the scope `mark`" in result.stderr
    assert "leave the sessions open with --no-marker" in result.stderr
    assert producer.requests == []


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (("--format", "tsv", "--key", "k"), "needs --key and --time"),
        (("--no-marker", "--wait", *NDJSON), "excludes --no-marker"),
        (("--no-marker", "--close", *NDJSON), "--close sends the marker"),
        (("--format", "xml"), "Invalid value"),
        (("--client-from", "tail", *NDJSON), "is for access logs"),
        (("--time-format", "%H", *NDJSON), "excludes --time-unit"),
    ],
)
def test_invalid_options_are_rejected_before_anything_is_sent(
    tmp_path: Path, arguments: tuple[str, ...], error: str
) -> None:
    """As a usage error."""
    result = CliRunner().invoke(import_command, [str(log_file(tmp_path)), *arguments])

    assert result.exit_code == 2
    assert error in result.output


def test_standard_input_can_be_imported_gzipped_or_not() -> None:
    """`-` reads it; the ids depend on `--name`, not on the packing."""
    text = b"k\tt\n" + b"".join(b"k%d\t%d\n" % (n % 3, n) for n in range(50))
    producer = InMemoryProducer(1)

    with served(producer.answer) as url:
        for name, data in (("a", text), ("a.gz", gzip.compress(text))):
            with piped(url, *TSV, "--name", name, "--no-marker") as process:
                _, errors = process.communicate(data)
            assert process.returncode == 0, errors

    ids = [json.loads(raw)["id"] for raw in producer.logs[0]]
    assert len(ids) == 100
    assert ids[:50] == ids[50:]


def test_a_process_that_waits_for_input_ends_after_an_error() -> None:
    """A read of standard input that never returns does not keep the process alive."""
    producer = InMemoryProducer(1)
    with (
        served(producer.answer) as url,
        piped(url, "--format", "tsv", "--key", "nothing", "--time", "t", "--no-marker") as process,
    ):
        assert process.stdin is not None
        process.stdin.write(b"k\tt\na\t1\n")
        process.stdin.flush()
        assert process.wait(timeout=30) == ExitCode.REFUSED
        assert process.stderr is not None
        assert b"no column 'nothing'" in process.stderr.read()
        assert producer.requests == []


async def test_waiting_fails_when_commits_stop() -> None:
    """It continues while positions advance, and then reports how many records are left."""
    positions = [0, 3, 5, 5, 5, 5, 5, 5, 5, 5]
    clock = [0.0]

    async def read() -> dict[str, Any]:
        return {"streams": [{"stream": 0, "position": positions.pop(0)}]}

    async def sleep(seconds: float) -> None:
        clock[0] += 1

    markers = [MarkerPosition(0, 9)]
    with pytest.raises(Unavailable, match="committed nothing for 3 s, 5 records"):
        await await_delivery(read, markers, "g", stall_s=3, sleep=sleep, clock=lambda: clock[0])

    assert len(positions) == 3


def test_the_options_of_reading_reach_the_lines(tmp_path: Path) -> None:
    """The zone of times that name none, the keys that are none, and where an access log has the client."""
    producer, table, access = InMemoryProducer(1), tmp_path / "table", tmp_path / "access"
    table.write_text("k,t\nnobody,2025-01-01 00:00:00\nNULL,2025-01-01 00:00:01\n")
    access.write_text(
        '10.0.0.1 - - [01/Jan/2025:00:00:02] "GET / HTTP/1.1" 200 1 "-" "UA" "192.0.2.7, 10.0.0.9"\n'
    )
    with served(both(producer, control_with(default=1_800_000))) as url:
        for file, *options in (
            (table, "--format", "csv", "--key", "k", "--time", "t", "--null", "nobody"),
            (access, "--format", "access-log", "--client-from", "tail"),
        ):
            where = ("--url", url, "--control", url, "--time-zone", "Asia/Tokyo", "--no-marker")
            CliRunner().invoke(import_command, [str(file), *options, *where])

    found = [(fragment["key"], fragment["time"]) for fragment in map(json.loads, producer.logs[0])]
    assert found == [("NULL", 1_735_657_201_000), ("192.0.2.7", 1_735_657_202_000)]
