"""The counts and bytes of every stage, and the report of those that differ."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from cli.demo.stages import Amount, Numbers, inequalities, stages_of
from cli.importing.tally import Tally
from shared.model.head import Counts

WHOLE = Amount(sessions=4, fragments=10, bytes=1000)
EXACT = Numbers(
    tally=Tally(lines=10, parsed=10, sent=10, accepted=10, bytes=1000),
    end_offsets=10 + 24 + 3,
    counts=Counts(
        fragments=10, bytes=1000, markers=24, ticks=3, sessions=4, delivered=10, delivered_bytes=1000
    ),
    read=WHOLE,
    lake=WHOLE,
    audit={"fragments": 10, "bytes": 1000},
)


def test_equal_counts_are_exact() -> None:
    """Markers and ticks are records in the broker, but not fragments."""
    stages = stages_of(EXACT)

    assert inequalities(stages) == []
    assert {stage.fragments for stage in stages} == {10}


def test_repeats_are_counted_separately() -> None:
    """A fragment that a retry appended again is in the broker and consumed, but in no session."""
    repeated = replace(
        EXACT,
        end_offsets=EXACT.end_offsets + 2,
        counts=msgspec.structs.replace(EXACT.counts, fragments=12, bytes=1180, repeats=2),
        audit={"fragments": 12, "bytes": 1180},
    )

    stages = stages_of(repeated)

    assert inequalities(stages) == []
    assert {stage.bytes for stage in stages} == {None, 1000}


@pytest.mark.parametrize(
    ("numbers", "sentence"),
    [
        (
            replace(EXACT, tally=replace(EXACT.tally, parsed=9, sent=9, accepted=9)),
            "fragments: 10 lines read, but 9 parsed",
        ),
        (
            replace(EXACT, end_offsets=EXACT.end_offsets - 1),
            "fragments: 10 acknowledged, but 9 in the broker, by its offsets",
        ),
        (
            replace(EXACT, audit={"fragments": 10, "bytes": 999}),
            "bytes: 1,000 acknowledged, but 999 in the broker, as Spark reads it",
        ),
        (
            replace(EXACT, counts=msgspec.structs.replace(EXACT.counts, delivered=9)),
            "fragments: 10 consumed, but 9 in delivered sessions",
        ),
        (
            replace(EXACT, read=replace(WHOLE, sessions=5)),
            "sessions: 4 in delivered sessions, but 5 in the topic sessions",
        ),
        (
            replace(EXACT, lake=replace(WHOLE, bytes=1001)),
            "bytes: 1,000 in the topic sessions, but 1,001 in the lake",
        ),
    ],
)
def test_a_stage_with_another_count_is_named(numbers: Numbers, sentence: str) -> None:
    """Fragments, bytes and sessions are each compared from stage to stage."""
    assert sentence in inequalities(stages_of(numbers))
