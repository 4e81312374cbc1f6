"""`baton import` as a whole, against a producer and a control in memory behind real HTTP."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from cli.http.receipts import MarkerPosition
from cli.importing.command import import_command
from cli.importing.delivery import await_delivery
from shared.errors import Unavailable
from tests.unit.cli.fake_services import InMemoryControl, InMemoryProducer, served

NASA = Path(__file__).parents[4] / "shared" / "data" / "nasa_19950801.tsv.gz"


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(import_command, arguments)


def log_file(tmp_path: Path, lines: int = 100) -> Path:
    file = tmp_path / "log"
    file.write_text("".join(json.dumps({"key": f"k{n % 7}", "time": 1000 + n}) + "\n" for n in range(lines)))
    return file


def ndjson(file: Path, url: str, *more: str) -> Result:
    return invoke(
        str(file),
        "--format",
        "ndjson",
        "--key",
        "key",
        "--time",
        "time",
        "--time-unit",
        "ms",
        "--url",
        url,
        *more,
    )


def test_a_log_is_imported_and_closed_by_a_marker(tmp_path: Path) -> None:
    """The marker carries the highest time and comes after every fragment of its stream."""
    producer = InMemoryProducer(3, ["503"])

    with served(producer.answer) as url:
        result = ndjson(log_file(tmp_path), url, "-o", "json")

    summary = json.loads(result.stdout)
    assert result.exit_code == 0
    counts = {name: summary[name] for name in ("lines", "parsed", "sent", "accepted", "rejected", "unparsed")}
    assert counts == dict.fromkeys(("lines", "parsed", "sent", "accepted"), 100) | {
        "rejected": 0,
        "unparsed": 0,
    }
    assert summary["retries"] == 1
    assert summary["repeats_possible"] is True
    assert summary["highest_time"] == 1099
    for place in summary["markers"]:
        assert place["offset"] == len(producer.logs[place["stream"]]) - 1
        assert json.loads(producer.logs[place["stream"]][-1]) == {"time": 1099}
    assert summary["bytes"] == sum(len(raw) for log in producer.logs.values() for raw in log[:-1])


def test_what_was_not_accepted_makes_the_exit_code_1(tmp_path: Path) -> None:
    """Also a line that cannot be read; the others are delivered and closed all the same."""
    file = log_file(tmp_path)
    file.write_text(file.read_text() + "nonsense\n")
    producer = InMemoryProducer(1)

    with served(producer.answer) as url:
        result = ndjson(file, url)

    assert result.exit_code == 1
    assert "1 × malformed, first in line 101" in result.output
    assert len(producer.logs[0]) == 101


def test_an_empty_log_has_no_marker(tmp_path: Path) -> None:
    """Nothing to close, nothing wrong."""
    file = tmp_path / "log"
    file.touch()
    producer = InMemoryProducer(1)

    with served(producer.answer) as url:
        result = ndjson(file, url)

    assert result.exit_code == 0
    assert not producer.logs


def test_without_a_marker_the_sessions_stay_open(tmp_path: Path) -> None:
    """`--no-marker` sends fragments only, and cannot wait."""
    producer = InMemoryProducer(1)

    with served(producer.answer) as url:
        result = ndjson(log_file(tmp_path), url, "--no-marker")
        refused = ndjson(log_file(tmp_path), url, "--no-marker", "--wait")

    assert result.exit_code == 0
    assert len(producer.logs[0]) == 100
    assert refused.exit_code == 2


def test_wait_returns_when_every_marker_is_committed(tmp_path: Path) -> None:
    """Positions beyond the markers are what control must show."""
    producer = InMemoryProducer(2)
    control = InMemoryControl({"/streams": {"streams": [{"stream": n, "position": 1000} for n in (0, 1)]}})

    with served(producer.answer) as url, served(control.answer) as control_url:
        result = ndjson(
            log_file(tmp_path), url, "--wait", "--control", control_url, "--group", "fraud", "-o", "json"
        )

    assert result.exit_code == 0
    assert json.loads(result.stdout)["delivered"] is True
    assert {query["group"] for _, query in control.queries} == {"fraud"}


def test_a_control_that_knows_no_such_group_fails_the_wait(tmp_path: Path) -> None:
    """The fragments are accepted all the same, and the summary says so."""
    producer = InMemoryProducer(2)

    with served(producer.answer) as url, served(InMemoryControl().answer) as control_url:
        result = ndjson(log_file(tmp_path), url, "--wait", "--control", control_url, "-o", "json")

    summary = json.loads(result.stdout)
    assert result.exit_code == 1
    assert (summary["accepted"], summary["delivered"]) == (100, False)
    assert "there is no /streams" in summary["failure"]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--format", "tsv", "--key", "k"), "needs --key and --time"),
        (("--format", "access-log", "--key", "session"), "no field 'session'"),
        (("--format", "xml"), "Invalid value"),
    ],
)
def test_options_that_do_not_fit_are_told_before_anything_is_sent(
    tmp_path: Path, arguments: tuple[str, ...], told: str
) -> None:
    """One sentence, a non-zero exit code."""
    result = invoke(str(log_file(tmp_path)), *arguments, "--url", "http://127.0.0.1:9")

    assert result.exit_code != 0
    assert told in result.output


def test_standard_input_is_a_log_too_packed_or_not() -> None:
    """`-` reads it, in a real process; the ids are those of its `--name`."""
    text = b"".join(b"k%d\t%d\n" % (n % 3, n) for n in range(50))
    command = [
        sys.executable,
        "-m",
        "cli.main",
        "import",
        "-",
        "--format",
        "tsv",
        "--key",
        "k",
        "--time",
        "t",
    ]
    producer = InMemoryProducer(1)

    with served(producer.answer) as url:
        for name, data in (("a", b"k\tt\n" + text), ("a.gz", gzip.compress(b"k\tt\n" + text))):
            done = subprocess.run(
                [*command, "--url", url, "--name", name, "--no-marker"],
                input=data,
                capture_output=True,
                check=False,
            )
            assert done.returncode == 0, done.stderr

    ids = [json.loads(raw)["id"] for raw in producer.logs[0]]
    assert len(ids) == 100
    assert ids[:50] == ids[50:]


def test_a_process_that_waits_for_input_ends_when_the_producer_is_wrong() -> None:
    """A read of standard input that never returns does not keep the process alive."""
    command = [
        sys.executable,
        "-m",
        "cli.main",
        "import",
        "-",
        "--format",
        "tsv",
        "--key",
        "nothing",
        "--time",
        "t",
    ]

    with served(InMemoryProducer(1).answer) as url:
        process = subprocess.Popen(
            [*command, "--url", url], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        with process:
            assert process.stdin is not None
            process.stdin.write(b"k\tt\na\t1\n")
            process.stdin.flush()
            assert process.wait(timeout=30) == 1
            assert process.stderr is not None
            assert b"no column 'nothing'" in process.stderr.read()


def test_the_real_log_is_imported_whole() -> None:
    """30,969 lines of 2,365 hosts, each stream in the log's order."""
    if not NASA.exists():
        pytest.skip(f"the log is not there: {NASA.name}")
    producer = InMemoryProducer(24)

    with served(producer.answer) as url:
        result = invoke(
            str(NASA), "--format", "tsv", "--key", "host", "--time", "time", "--url", url, "-o", "json"
        )

    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["accepted"] == 30_969
    logs = [[json.loads(raw) for raw in log[:-1]] for log in producer.logs.values()]
    assert len({fragment["key"] for log in logs for fragment in log}) == 2365
    for log in logs:
        times = [fragment["time"] for fragment in log]
        assert times == sorted(times)


async def test_waiting_ends_when_nothing_is_committed_any_more() -> None:
    """It goes on as long as something moves, and then tells how much is left."""
    positions = [0, 3, 5, 5, 5, 5, 5, 5, 5, 5]
    clock = [0.0]

    class Slow:
        async def pages(self, path: str, name: str, after: str, params: Any = None) -> dict[str, Any]:
            return {"streams": [{"stream": 0, "position": positions.pop(0)}]}

    async def sleep(seconds: float) -> None:
        clock[0] += 1

    with pytest.raises(Unavailable, match="committed nothing for 3 s, 5 records"):
        await await_delivery(
            Slow(), "g", [MarkerPosition(0, 9)], stall_s=3, sleep=sleep, clock=lambda: clock[0]
        )

    assert len(positions) == 3
