"""The audit's verdict in words: it claims what was proven, names what differs, and says what was left out."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.control.http.console.shown.verdict import findings_of, result_words, verdict_of
from tests.unit.control.http.console.runs_desk import DIFFERS, EXACT, a_run


@pytest.mark.parametrize(
    ("result", "title"),
    [
        (EXACT, "Sound. Exactly once, proven."),
        (EXACT | {"part": "streams 0-5"}, "Sound. Exactly once, proven for a part."),
        (EXACT | {"delivery": "at_least_once"}, "Sound. At least once, proven."),
        (
            EXACT
            | {"verdict": "within the promise of at_most_once", "delivery": "at_most_once", "missing": 1},
            "Sound, as at most once permits: 1 session is missing.",
        ),
        (EXACT | {"verdict": "differs", "missing": 3}, "Not sound: 3 sessions are missing."),
        (EXACT | {"verdict": "differs", "overdue": 299}, "Not sound: 299 sessions are overdue."),
        (DIFFERS, "Not sound: 3 sessions are missing and 1 session is extra."),
        (
            EXACT | {"verdict": "differs", "lake_duplicated": 2},
            "Not sound: 2 sessions are in the lake again.",
        ),
        (EXACT | {"verdict": "nothing judged"}, "Nothing was judged, so nothing is proven."),
    ],
)
def test_the_headline_claims_what_was_proven_and_no_more(result: dict[str, Any], title: str) -> None:
    """Only a whole exact audit proves the group's delivery; a difference is named with its number."""
    assert verdict_of(a_run("audit"), result, 0).title == title


@pytest.mark.parametrize(
    ("more", "sentence", "shown"),
    [
        ({"overdue": 0}, "3 are open and not due.", ["missing", "overdue", "extra", "different"]),
        ({}, "3 are open.", ["missing", "extra", "different"]),
    ],
)
def test_only_an_audit_that_looked_for_it_says_that_nothing_is_due(
    more: dict[str, int], sentence: str, shown: list[str]
) -> None:
    """Audits of earlier versions counted what silence had ended as open, delivered or not."""
    verdict = verdict_of(a_run("audit"), EXACT | more, 0)

    assert verdict.sentence.endswith(f"byte for byte. {sentence}")
    assert [name for _, name in verdict.numbers] == shown


def test_what_was_not_judged_is_said_beside_the_verdict() -> None:
    """Sessions that could not be judged, cut streams, each reason, and what is trusted unseen."""
    left = [{"what": "lake", "why": "there is no table"}]
    limits = {"not_judged": 4, "lake_not_judged": 1, "cut_streams": 2, "left_out": left, "part": "streams 3"}
    limits["trusted"] = [
        {"what": "the log", "why": "it may lack some"},
        {"what": "`epoch`", "why": "any"},
    ]
    verdict = verdict_of(a_run("audit"), EXACT | limits, 0)

    assert verdict.scope == (
        "Only streams 3 was judged. 5 sessions were left unjudged; retention has cut 2 streams."
    )
    assert verdict.limits == [
        "Not judged: lake, because there is no table.",
        "Taken on trust: the log (it may lack some); `epoch` (any).",
    ]


@given(
    st.dictionaries(
        st.sampled_from(["missing", "overdue", "extra", "lake_missing", "judged"]), st.integers(0, 5)
    )
)
def test_every_difference_is_named_and_nothing_else(numbers: dict[str, int]) -> None:
    """A number above 0 appears in the words; what is 0, and what is no difference, does not."""
    words = findings_of(numbers)
    expected = [number for name, number in numbers.items() if name != "judged" and number]

    assert sorted(map(int, re.findall(r"\d+", words))) == sorted(expected)


@pytest.mark.parametrize("result", [None, {}, {"answer": 42}])
def test_an_unknown_result_is_left_empty(result: dict[str, Any] | None) -> None:
    """Runs of earlier versions may have other results."""
    for job in ("lake", "reports", "audit", "maintain", "gone"):
        assert result_words(a_run(job), result) == ""
