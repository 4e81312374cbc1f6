"""A log that was imported before: refused, resumed, continued, or closed; never doubled by mistake."""

from __future__ import annotations

import asyncio
import gzip
import json
import re
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import httpx
import pytest
from click.testing import CliRunner, Result

from cli.importing.books.journal import Journal
from cli.importing.books.ledger import FILE, Ledger
from cli.main import cli
from cli.terminal.exit_codes import ExitCode
from shared.errors import Conflict
from tests.unit.cli.fake_services import Answer, InMemoryProducer, problem, served
from tests.unit.cli.importing.run import NDJSON, both, control_with, imported, importing


def write_log(path: Path, first: int, end: int, start_ms: int = 1000) -> Path:
    """Appends lines with these numbers to a log."""
    with path.open("a") as file:
        for n in range(first, end):
            file.write(json.dumps({"key": f"k{n % 7}", "time": start_ms + n, "n": n}) + "\n")
    return path


def stored(producer: InMemoryProducer) -> Counter[int]:
    """How often each line is stored."""
    fragments = [json.loads(raw) for log in producer.logs.values() for raw in log]
    return Counter(fragment["data"]["n"] for fragment in fragments if "key" in fragment)


def summary_of(result: Result) -> dict[str, Any]:
    summary: dict[str, Any] = json.loads(result.stdout)
    return summary


def failing(producer: InMemoryProducer, allowed: list[int]) -> Answer:
    """A producer and control; the producer answers 500 after `allowed[-1]` requests with fragments."""
    answer = both(producer, control_with(default=1_800_000))

    async def answer_or_fail(request: httpx.Request) -> httpx.Response:
        if request.url.path == "/fragments" and len(producer.requests) >= allowed[-1]:
            return problem(500, "broken")
        return await answer(request)

    return answer_or_fail


@pytest.mark.parametrize("packed", [False, True])
def test_the_same_log_is_not_sent_twice(tmp_path: Path, packed: bool) -> None:
    """Under another name or gzipped it is the same log; `--again` sends it, with the same ids."""
    producer = InMemoryProducer(3)
    log = write_log(tmp_path / "access.log", 0, 50)
    other = tmp_path / ("other.gz" if packed else "other")
    other.write_bytes(gzip.compress(log.read_bytes()) if packed else log.read_bytes())
    with importing(both(producer, control_with(default=1_800_000))) as run:
        first = run(log)
        again = run(other)
        sent = stored(producer)
        forced = run(log, "--again")

    assert (first.exit_code, again.exit_code, forced.exit_code) == (0, ExitCode.REFUSED, 0)
    assert "access.log was imported into" in again.stderr
    assert "--again" in again.stderr
    assert set(sent.values()) == {1}
    ids = Counter(json.loads(raw).get("id") for log in producer.logs.values() for raw in log)
    assert {count for identifier, count in ids.items() if identifier} == {2}


def test_another_baton_gets_the_log_too(tmp_path: Path) -> None:
    """Without the name of its cluster, a Baton is known by the producer's address."""
    log = write_log(tmp_path / "log", 0, 10)

    results = [imported(log, InMemoryProducer(1)) for _ in range(2)]

    assert [result.exit_code for result in results] == [0, 0]


def test_a_baton_is_known_by_its_cluster_and_not_by_its_address(tmp_path: Path) -> None:
    """A new one at the old address gets the log, and the old one at a new address is recognized."""
    log, producer = write_log(tmp_path / "log", 0, 10), InMemoryProducer(1)
    with importing(both(producer, control_with(default=1_800_000))) as run:
        codes = []
        for cluster in ("one/", "one/", "two/", "two/shop", "one/"):
            producer.cluster = cluster
            codes.append(run(log).exit_code)
    elsewhere = InMemoryProducer(1)
    elsewhere.cluster = "one/"

    assert codes == [0, ExitCode.REFUSED, 0, 0, ExitCode.REFUSED]
    assert imported(log, elsewhere).exit_code == ExitCode.REFUSED


def test_equal_lines_of_two_logs_of_one_name_are_both_kept(tmp_path: Path) -> None:
    """Two servers write the same health checks into the same lines; consumers drop what repeats an id."""
    producer = InMemoryProducer(1)
    logs = [tmp_path / server / "access.log" for server in ("web1", "web2")]
    with importing(both(producer, control_with(default=1_800_000))) as run:
        for number, log in enumerate(logs):
            log.parent.mkdir()
            write_log(log, 0, 3)
            write_log(log, 100 * number, 100 * number + 5)
            assert run(log).exit_code == 0
        write_log(logs[0], 500, 501)
        grown = run(logs[0], "--again")

    ids = Counter(json.loads(raw).get("id") for raw in producer.logs[0])
    del ids[None]
    assert grown.exit_code == 0
    # those of the log that was sent again are the same, also after it has grown
    assert sorted(ids.values()) == [1] * 9 + [2] * 8


@pytest.mark.parametrize("closes", [False, True])
def test_a_last_line_without_its_end_waits_for_the_next_import(tmp_path: Path, closes: bool) -> None:
    """It is counted, and nothing is left to send until the line has its end, or `--close` says so."""
    producer = InMemoryProducer(1)
    log = write_log(tmp_path / "log", 0, 5)
    log.write_bytes(log.read_bytes() + b'{"key": "k", "time": 1234, "n": 5}')
    with importing(both(producer, control_with(default=1_800_000))) as run:
        first = summary_of(run(log, "-o", "json"))
        printed = run(log, "--again", "--dry-run").stdout
        same = run(log)
        if closes:
            last = run(log, "--close", "-o", "json")
        else:
            log.write_bytes(log.read_bytes() + b"\n")
            last = run(log, "-o", "json")

    assert (first["lines"], first["accepted"], first["lines_waiting"]) == (5, 5, 1)
    assert "The last line has no end" in printed
    assert same.exit_code == ExitCode.REFUSED
    assert [summary_of(last)[name] for name in ("accepted", "lines_waiting")] == [1, 0]
    assert stored(producer) == Counter(range(6))
    assert len(summary_of(last)["markers"]) == 1


@pytest.mark.parametrize("options", [(), ("--lanes", "2", "--batch", "3")])
def test_an_interrupted_import_is_resumed(tmp_path: Path, options: tuple[str, ...]) -> None:
    """What was acknowledged is not sent again, not by other lanes either; the counts are of the whole log."""
    producer = InMemoryProducer(5)
    log = write_log(tmp_path / "log", 0, 200)
    log.write_text("nonsense\n" + log.read_text())
    allowed = [9]
    with importing(failing(producer, allowed)) as run:
        first = run(log, "--batch", "10", "-o", "json")
        interrupted = stored(producer)
        allowed.append(1000)
        moved = log.rename(tmp_path / "log.1")
        second = run(moved, *options, "-o", "json")
        third = run(moved)

    first_summary, second_summary = summary_of(first), summary_of(second)
    assert 0 < first_summary["accepted"] < 200
    assert sum(interrupted.values()) >= first_summary["accepted"]
    assert (second.exit_code, third.exit_code) == (1, ExitCode.REFUSED)
    assert second_summary["failure"] is None
    assert [second_summary[name] for name in ("lines", "unparsed", "accepted")] == [201, 1, 200]
    assert second_summary["accepted_earlier"] == first_summary["accepted"]
    # the failure of one lane may have cut off the answers of the other three
    assert set(stored(producer)) == set(range(200))
    assert sum(stored(producer).values()) <= 200 + 3 * 10
    assert len(second_summary["markers"]) == 5
    assert "was imported into" in third.stderr


def test_an_import_that_was_killed_is_resumed(tmp_path: Path) -> None:
    """Without a chance to write anything, at most what was in flight is sent again, with the same ids."""
    producer, arrived, is_over = InMemoryProducer(5), threading.Event(), threading.Event()
    log = write_log(tmp_path / "log", 0, 200)
    answer = both(producer, control_with(default=1_800_000))

    async def answer_or_hang(request: httpx.Request) -> httpx.Response:
        response = await answer(request)
        # stored, but not answered
        if len(producer.requests) > 5 and not is_over.is_set():
            arrived.set()
            await asyncio.to_thread(is_over.wait)
        return response

    with served(answer_or_hang) as url:
        where = (*NDJSON, "--url", url, "--control", url, "--batch", "10", "-o", "json")
        with subprocess.Popen([sys.executable, "-m", "cli.main", "import", str(log), *where]) as process:
            assert arrived.wait(60)
            process.kill()
        is_over.set()
        result = CliRunner().invoke(cli, ["import", str(log), *where])

    assert result.exit_code == 0
    assert summary_of(result)["accepted"] == 200
    assert summary_of(result)["accepted_earlier"] > 0
    assert set(stored(producer)) == set(range(200))
    assert sum(stored(producer).values()) <= 200 + 4 * 10
    ids = {json.loads(raw).get("id") for log in producer.logs.values() for raw in log}
    assert len(ids - {None}) == 200


def test_an_interrupted_import_is_not_resumed_with_other_fields(tmp_path: Path) -> None:
    """Its places are those of the streams, which depend on the key."""
    producer = InMemoryProducer(5)
    log = write_log(tmp_path / "log", 0, 200)
    with importing(failing(producer, [3])) as run:
        run(log, "--batch", "10")
        other = run(log, "--key", "n")

    assert other.exit_code == ExitCode.REFUSED
    assert "with the key 'key', not 'n'" in other.stderr


def test_an_import_of_which_nothing_was_accepted_can_be_corrected(tmp_path: Path) -> None:
    """A wrong option must not need `--again`."""
    producer = InMemoryProducer(2)
    log = write_log(tmp_path / "log", 0, 50)
    with importing(both(producer, control_with(default=1_800_000))) as run:
        wrong = run(log, "--time-unit", "rfc3339", "-o", "json")
        right = run(log)

    assert (wrong.exit_code, summary_of(wrong)["unparsed"]) == (1, 50)
    assert right.exit_code == 0
    assert stored(producer) == Counter(range(50))
    assert list((tmp_path / "state" / "imports").glob("*.jsonl")) == []


@pytest.mark.parametrize("ended", [True, False], ids=["whole lines", "within a line"])
def test_of_a_log_that_has_grown_only_the_new_lines_are_sent(tmp_path: Path, ended: bool) -> None:
    """A last line that was not complete at the first import is sent when it is."""
    producer = InMemoryProducer(3)
    log = write_log(tmp_path / "log", 0, 50)
    rest = b"" if ended else log.read_bytes()[-9:]
    log.write_bytes(log.read_bytes().removesuffix(rest))
    with importing(both(producer, control_with(default=1_800_000))) as run:
        run(log)
        log.write_bytes(log.read_bytes() + rest)
        write_log(log, 50, 80)
        grown = run(log, "-o", "json")
        unchanged = run(log)

    assert stored(producer) == Counter(range(80))
    new = 30 if ended else 31
    assert (summary_of(grown)["lines"], summary_of(grown)["accepted"]) == (new, new)
    assert summary_of(grown)["notice"].startswith(f"Continued after line {80 - new}")
    assert unchanged.exit_code == ExitCode.REFUSED


def test_sessions_that_were_left_open_are_closed_without_sending_the_log_again(tmp_path: Path) -> None:
    """`--close` of an imported log sends the marker that is missing, once."""
    producer = InMemoryProducer(2)
    log = write_log(tmp_path / "log", 0, 50, start_ms=int(time.time() * 1000) - 1000)
    with importing(both(producer, control_with(default=1_800_000))) as run:
        left_open = run(log)
        refused = run(log)
        closed = run(log, "--close", "-o", "json")
        again = run(log, "--close")

    codes = [result.exit_code for result in (left_open, refused, closed, again)]
    assert codes == [0, ExitCode.REFUSED, 0, ExitCode.REFUSED]
    assert "--close" in refused.stderr
    assert len(summary_of(closed)["markers"]) == 2
    assert stored(producer) == Counter(range(50))


def test_the_sessions_of_an_imported_log_can_be_waited_for(tmp_path: Path) -> None:
    """In any group and any number of times; nothing is sent for it, and the ledger knows the markers."""
    producer, control = InMemoryProducer(2), control_with(default=1_800_000, fraud=1_800_000)
    log = write_log(tmp_path / "log", 0, 50)
    with importing(both(producer, control)) as run:
        run(log)
        refused = run(log)
        control.answers["/streams"] = {"streams": [{"stream": n, "position": 1000} for n in (0, 1)]}
        waited = run(log, "--wait", "--group", "fraud", "-o", "json")
        printed = run(log, "--wait")
        dry = run(log, "--wait", "--dry-run")
        control.answers["/streams"] = {"streams": [{"stream": n, "position": 1} for n in (0, 1)]}
        stalled = run(log, "--wait", "--stall", "1")

    codes = [result.exit_code for result in (refused, waited, printed, dry, stalled)]
    assert codes == [ExitCode.REFUSED, 0, 0, 0, ExitCode.UNREACHABLE]
    assert "`--wait` waits for its sessions" in refused.stderr
    summary = summary_of(waited)
    assert (summary["delivered"], summary["sent"], summary["markers"]) == (True, 0, [])
    assert summary["notice"].startswith("log was imported before")
    assert "Every session was delivered after" in printed.stdout
    assert "Every session" not in dry.stdout
    assert "group 'default' has committed nothing for 1 s" in stalled.stderr
    assert sum(map(len, producer.logs.values())) == 50 + 2


def test_a_ledger_of_an_earlier_version_does_not_know_the_markers(tmp_path: Path) -> None:
    """Then `--wait` cannot wait for an imported log, and says how to look."""
    log = write_log(tmp_path / "log", 0, 50)
    with importing(both(InMemoryProducer(2), control_with(default=1_800_000))) as run:
        run(log)
        ledger = tmp_path / "state" / FILE
        ledger.write_text(re.sub(r',"markers":\{[^}]*\}', "", ledger.read_text()))
        result = run(log, "--wait")

    assert result.exit_code == ExitCode.REFUSED
    assert "`baton streams` shows what is left to read" in result.stderr


def test_a_dry_run_sends_and_enters_nothing(tmp_path: Path) -> None:
    """It counts what would be sent, and the import that follows sends it."""
    producer = InMemoryProducer(2)
    log = write_log(tmp_path / "log", 0, 50)
    log.write_text(log.read_text() + "nonsense\n")
    with importing(failing(producer, [99])) as run:
        dry = run(log, "--dry-run", "-o", "json")
        requests = list(producer.requests)
        real = run(log, "-o", "json")
        refused = run(log, "--dry-run")

    assert requests == []
    assert [summary_of(dry)[name] for name in ("would_send", "accepted", "unparsed")] == [50, 0, 1]
    assert summary_of(dry)["markers"] == []
    assert summary_of(real)["accepted"] == 50
    assert refused.exit_code == ExitCode.REFUSED


@pytest.mark.parametrize("is_given", [True, False])
def test_the_lines_that_are_not_accepted_can_be_repaired_and_imported(tmp_path: Path, is_given: bool) -> None:
    """They are in a file, below the log's header, as they were in the log."""
    producer = InMemoryProducer(2)
    log = tmp_path / "log"
    log.write_text('key,time,n\na,1,0\nb,noon,1\nc,3,"2\n2"\n' + "x" * 300 + ",4,3\n")
    given = ("--rejected", str(tmp_path / "bad")) if is_given else ()
    csv = ("--format", "csv", "-o", "json")
    with importing(both(producer, control_with(default=1_800_000))) as run:
        first = summary_of(run(log, *csv, *given))
        file = Path(first["rejected_file"])
        found = file.read_text()
        file.write_text(found.replace("noon", "2").replace("x" * 300, "x"))
        second = run(file, *csv)

    assert (first["unparsed"], first["rejected"]) == (1, 1)
    assert found == "key,time,n\nb,noon,1\n" + "x" * 300 + ",4,3\n"
    assert file == tmp_path / "bad" or not is_given
    assert (second.exit_code, summary_of(second)["accepted"]) == (0, 2)


def test_the_log_itself_is_not_replaced_by_its_rejected_lines(tmp_path: Path) -> None:
    """A file that was repaired must not be imported into itself."""
    log = write_log(tmp_path / "log", 0, 5)

    result = imported(log, InMemoryProducer(1), "--rejected", str(log))

    assert result.exit_code == ExitCode.REFUSED
    assert "is the log itself" in result.stderr
    assert len(log.read_text().splitlines()) == 5


def test_two_processes_do_not_write_one_journal(tmp_path: Path) -> None:
    """The second one is refused as long as the first one runs, and one that is gone is not made anew."""
    path = tmp_path / "journal"
    first = Journal(path, is_new=True)

    with pytest.raises(Conflict, match="right now"):
        Journal(path, is_new=False)
    first.close()
    Journal(path, is_new=False).close()
    path.unlink()
    with pytest.raises(Conflict, match="gone"):
        Journal(path, is_new=False)


def test_a_damaged_line_does_not_hide_the_rest_of_the_ledger(tmp_path: Path) -> None:
    """A full disk may cut a line, and the next one begins below it."""
    log, producer = write_log(tmp_path / "log", 0, 5), InMemoryProducer(1)
    with importing(both(producer, control_with(default=1_800_000))) as run:
        run(log)
        ledger = tmp_path / "state" / FILE
        ledger.write_bytes(b'{"event":"sent","id":"unknown"}\n' + ledger.read_bytes() + b'{"event":"begu')
        refused = run(log)
        forced = run(log, "--again")

    assert (refused.exit_code, forced.exit_code) == (ExitCode.REFUSED, 0)
    target = json.loads(ledger.read_bytes().splitlines()[1])["target"]
    assert len(Ledger(tmp_path / "state").past(target)) == 2
