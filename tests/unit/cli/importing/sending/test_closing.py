"""The marker that ends an import: when it is sent, and which times an import refuses."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from tests.unit.cli.fake_services import InMemoryProducer
from tests.unit.cli.importing.run import control_with, imported

HOUR_MS = 3_600_000


def log_file(tmp_path: Path, *ages_ms: int) -> Path:
    """A log whose lines are that old; a negative age is in the future."""
    file = tmp_path / "log"
    now_ms = int(time.time() * 1000)
    lines = [{"key": f"k{n}", "time": now_ms - age_ms} for n, age_ms in enumerate(ages_ms)]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return file


def markers_in(producer: InMemoryProducer) -> list[Any]:
    """The markers of the first stream."""
    return [fields["time"] for raw in producer.logs[0] if "key" not in (fields := json.loads(raw))]


@pytest.mark.parametrize(
    ("age_ms", "options", "sends", "says"),
    [
        (3 * HOUR_MS, (), True, ""),
        # the longest silence of the groups is 2 h + 5 min
        (2 * HOUR_MS, (), False, "--close"),
        (2 * HOUR_MS, ("--close",), True, ""),
        (3 * HOUR_MS, ("--no-marker",), False, ""),
    ],
)
def test_a_marker_closes_only_what_silence_would_close(
    tmp_path: Path, age_ms: int, options: tuple[str, ...], sends: bool, says: str
) -> None:
    """A marker at a younger time would end sessions that still run; it needs `--close`."""
    producer = InMemoryProducer(1)
    control = control_with(default=1_800_000, slow=2 * HOUR_MS)

    result = imported(log_file(tmp_path, age_ms + 1000, age_ms), producer, *options, control=control)

    assert result.exit_code == 0, result.output
    assert len(markers_in(producer)) == sends
    assert says in result.output


def test_a_line_from_the_future_is_refused_and_moves_no_marker(tmp_path: Path) -> None:
    """One line dated years ahead must not close every session, not even with `--close`."""
    producer = InMemoryProducer(1)
    file = log_file(tmp_path, HOUR_MS, -60_000, -70 * 8766 * HOUR_MS)

    result = imported(file, producer, "--close", "-o", "json")

    summary = json.loads(result.stdout)
    assert result.exit_code == 1
    assert (summary["accepted"], summary["rejected"]) == (2, 1)
    assert [(row["reason"], row["line"]) for row in summary["reasons"]] == [("future", 3)]
    assert markers_in(producer) == [summary["highest_time"]]
    assert summary["highest_time"] < (time.time() + 300) * 1000


def test_waiting_without_a_marker_fails_and_says_what_is_missing(tmp_path: Path) -> None:
    """The sessions stay open, so `--wait` has nothing that it could wait for."""
    producer = InMemoryProducer(1)

    result = imported(log_file(tmp_path, 1000), producer, "--wait", "-o", "json")

    summary = json.loads(result.stdout)
    assert result.exit_code == 1
    assert (summary["accepted"], summary["markers"], summary["delivered"]) == (1, [], None)
    assert "--close" in summary["failure"]


@pytest.mark.parametrize("refuses", [False, True])
def test_a_line_far_ahead_is_named_moves_no_marker_and_can_be_refused(tmp_path: Path, refuses: bool) -> None:
    """A wrong clock must not close the sessions of everybody; a time before 2000 is named, too."""
    producer = InMemoryProducer(1)
    file = log_file(tmp_path, *[60 * HOUR_MS] * 20, 3 * HOUR_MS, *[60 * HOUR_MS] * 20)
    file.write_text(file.read_text() + '{"key": "k", "time": 1762790400}\n')
    options = ("--refuse", "ahead", "--refuse", "early") if refuses else ()

    result = imported(file, producer, *options, "-o", "json")

    summary = json.loads(result.stdout)
    named = [(row["reason" if refuses else "doubt"], row["line"], row["count"]) for row in _named(summary)]
    assert sorted(named) == [("ahead", 21, 1), ("early", 42, 1)]
    assert summary["reasons" if not refuses else "doubts"] == []
    assert (summary["accepted"], result.exit_code) == ((40, 1) if refuses else (42, 0))
    assert markers_in(producer) == [summary["highest_time"]]
    assert summary["highest_time"] < (time.time() - 59 * 3600) * 1000


def _named(summary: dict[str, Any]) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = summary["reasons"] + summary["doubts"]
    return rows
