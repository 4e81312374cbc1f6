"""Offsets as CSV: what is written can be read, and a line that says nothing clear is refused."""

from __future__ import annotations

import random

import pytest

from cli.kafka.offsets_file import format_offsets, parse_offsets
from shared.errors import InvalidInput
from tests.effort import effort


def test_what_is_written_is_read_back() -> None:
    """For one group without its name, for several with it; names may have any characters."""
    for seed in range(effort(300)):
        rng = random.Random(seed)
        names = rng.sample(['g"1', "a,b", "with space", "é"], rng.choice([1, 3]))
        offsets = {
            name: {
                (rng.choice(["t", "fragments.0001", 'q"']), rng.randrange(9)): rng.randrange(99)
                for _ in range(rng.randrange(1, 6))
            }
            for name in names
        }

        text = format_offsets(offsets)

        assert parse_offsets(text.splitlines(keepends=True), names[0]) == offsets


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("t,0", "is not `topic,partition,offset`"),
        ("g,t,0,1,2", "is not `topic,partition,offset`"),
        ("t,x,1", "whole numbers"),
        ("t,0,-1", "whole numbers"),
        ("t,0,5", "again"),
    ],
)
def test_a_line_that_says_nothing_clear_is_refused(line: str, why: str) -> None:
    """With its number; so nothing of the file is set."""
    with pytest.raises(InvalidInput, match=f"line 3.*{why}"):
        parse_offsets(["t,0,4\n", "\n", line], "g")


def test_a_line_without_a_group_needs_one() -> None:
    """Nobody guesses whose offsets they are."""
    with pytest.raises(InvalidInput, match="names no group"):
        parse_offsets(["t,0,4"])
