"""How the bench reads pauses out of what observed members wrote down; a wrong reading flatters everybody."""

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


def test_a_replay_ends_no_pause() -> None:
    """The recipient's first record counts that nobody had folded before."""
    lines = [parse_line(text) for text in ("1 a 0 fold 9", "2 a 0 stop 0", "3 b 0 fold 4", "7 b 0 fold 10")]

    pauses = pauses_ms(lines, 0)

    assert pauses == [5.0]


def test_what_is_folded_after_the_stop_begins_the_pause_later() -> None:
    """A donor that reads the rest after it was told to stop has its last record then."""
    lines = [parse_line(text) for text in ("1 a 0 stop 0", "2 a 0 fold 9", "6 b 0 fold 10")]

    pauses = pauses_ms(lines, 0)

    assert pauses == [4.0]


def test_a_stop_of_an_earlier_ownership_is_none_of_this_one() -> None:
    """A member that has the stream for the second time is told to stop once more."""
    texts = ("1 a 0 fold 1", "2 a 0 stop 0", "3 b 0 fold 2", "4 b 0 stop 0", "5 a 0 fold 3", "8 b 0 fold 4")

    pauses = pauses_ms([parse_line(text) for text in texts], 0)

    assert pauses == [1.0, 1.0, 3.0]


def test_a_stream_that_stands_until_the_end_shows() -> None:
    """A standstill that has not ended counts as far as it is known."""
    lines = [parse_line(text) for text in ("1 a 0 fold 1", "2 a 0 fold 2")]

    assert standstill_ms(lines, 0, 10) == 8.0


def test_traces_of_all_members_are_one_and_half_a_line_is_none(tmp_path: Path) -> None:
    """A member may be writing while the bench reads."""
    (tmp_path / "a.trace").write_text("1 a 0 fold 1\n3 a 0 fold 3\n")
    (tmp_path / "b.trace").write_text("2 b 1 fold 2\n4 b 1 fo")

    lines = read_trace(tmp_path)

    assert [line.at_ms for line in lines] == [1.0, 2.0, 3.0]
