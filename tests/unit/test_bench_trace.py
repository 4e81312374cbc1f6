"""The bench derives pauses from the members' trace files; a misread trace makes every result look better."""

from __future__ import annotations

import doctest
from pathlib import Path

import bench.trace
from bench.trace import parse_line, pauses_ms, read_trace, standstill_ms


def test_the_examples_hold() -> None:
    """An example that does not run misleads."""
    result = doctest.testmod(bench.trace)

    assert result.attempted
    assert not result.failed


def test_a_replay_does_not_end_a_pause() -> None:
    """The pause ends with the recipient's first record that no member has folded before."""
    lines = [parse_line(text) for text in ("1 a 0 fold 9", "2 a 0 stop 0", "3 b 0 fold 4", "7 b 0 fold 10")]

    pauses = pauses_ms(lines, 0)

    assert pauses == [5.0]


def test_a_record_folded_after_the_stop_delays_the_start_of_the_pause() -> None:
    """When the donor folds the rest of its batch after the stop, the pause starts at the last record."""
    lines = [parse_line(text) for text in ("1 a 0 stop 0", "2 a 0 fold 9", "6 b 0 fold 10")]

    pauses = pauses_ms(lines, 0)

    assert pauses == [4.0]


def test_a_stop_counts_only_for_its_own_ownership() -> None:
    """A member that owns the stream a second time stops a second time."""
    texts = ("1 a 0 fold 1", "2 a 0 stop 0", "3 b 0 fold 2", "4 b 0 stop 0", "5 a 0 fold 3", "8 b 0 fold 4")

    pauses = pauses_ms([parse_line(text) for text in texts], 0)

    assert pauses == [1.0, 1.0, 3.0]


def test_a_standstill_that_lasts_to_the_end_is_counted() -> None:
    """A standstill that has not ended counts up to the end of the measurement."""
    lines = [parse_line(text) for text in ("1 a 0 fold 1", "2 a 0 fold 2")]

    assert standstill_ms(lines, 0, 10) == 8.0


def test_traces_are_merged_and_a_partial_line_is_skipped(tmp_path: Path) -> None:
    """A member may still be writing while the bench reads."""
    (tmp_path / "a.trace").write_text("1 a 0 fold 1\n3 a 0 fold 3\n")
    (tmp_path / "b.trace").write_text("2 b 1 fold 2\n4 b 1 fo")

    lines = read_trace(tmp_path)

    assert [line.at_ms for line in lines] == [1.0, 2.0, 3.0]
