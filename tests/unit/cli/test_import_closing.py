"""The marker that ends an import: when it is sent, and which times an import refuses."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from tests.unit.cli.fake_services import InMemoryProducer
from tests.unit.cli.importing import control_with, imported

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
