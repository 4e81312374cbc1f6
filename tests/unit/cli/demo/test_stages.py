"""The counts and bytes of every stage, and the report of those that differ."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from msgspec.structs import replace as with_counts

from cli.demo.stages import Amount, inequalities, stages_of
from cli.importing.tally import Tally
from shared.model.head import Counts

WHOLE = Amount(sessions=4, fragments=10, bytes=1000)
TALLY = Tally(lines=10, parsed=10, sent=10, accepted=10, bytes=1000)
COUNTS = Counts(fragments=10, bytes=1000, markers=24, ticks=3, sessions=4, delivered=10, delivered_bytes=1000)
EXACT: dict[str, Any] = {
    "tally": TALLY,
    "end_offsets": 10 + 24 + 3,
    "counts": COUNTS,
    "read": WHOLE,
    "lake": WHOLE,
    "audit": {"fragments": 10, "bytes": 1000},
}


def test_equal_counts_are_exact() -> None:
    """Markers and ticks are records in the broker, but not fragments."""
    stages = stages_of(**EXACT)

    assert inequalities(stages) == []
    assert {stage.fragments for stage in stages} == {10}


def test_repeats_are_counted_separately() -> None:
    """A fragment that a retry appended again is in the broker and consumed, but in no session."""
    repeated = {
        "end_offsets": 12 + 24 + 3,
        "counts": with_counts(COUNTS, fragments=12, bytes=1180, repeats=2),
        "audit": {"fragments": 12, "bytes": 1180},
    }

    stages = stages_of(**EXACT | repeated)

    assert inequalities(stages) == []
    assert {stage.bytes for stage in stages} == {None, 1000}


@pytest.mark.parametrize(
    ("name", "value", "sentence"),
    [
        ("tally", replace(TALLY, parsed=9), "fragments: 10 lines read, but 9 parsed"),
        ("end_offsets", 36, "fragments: 10 acknowledged, but 9 in the broker, by its offsets"),
        (
            "audit",
            {"fragments": 10, "bytes": 999},
            "bytes: 1,000 acknowledged, but 999 in the broker, as Spark reads it",
        ),
        ("counts", with_counts(COUNTS, delivered=9), "fragments: 10 consumed, but 9 in delivered sessions"),
        (
            "read",
            replace(WHOLE, sessions=5),
            "sessions: 4 in delivered sessions, but 5 in the topic sessions",
        ),
        ("lake", replace(WHOLE, bytes=1001), "bytes: 1,000 in the topic sessions, but 1,001 in the lake"),
    ],
)
def test_a_stage_with_another_count_is_named(name: str, value: Any, sentence: str) -> None:
    """Fragments, bytes and sessions are each compared from stage to stage."""
    assert sentence in inequalities(stages_of(**EXACT | {name: value}))
