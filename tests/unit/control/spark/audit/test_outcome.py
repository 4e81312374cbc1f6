"""The verdict in words: what each delivery permits, and that nothing judged is no success."""

from __future__ import annotations

import pytest

from cli.commands import runs
from services.control.core.runs import last_runs
from services.control.http.console.shown import verdict
from services.control.spark.audit.outcome import NEVER, verdict_of


@pytest.mark.parametrize("loss", ["missing", "overdue"])
@pytest.mark.parametrize(
    ("delivery", "lost", "duplicates", "words"),
    [
        ("exactly_once", 0, 0, "exact"),
        ("exactly_once", 1, 0, "differs"),
        ("at_least_once", 0, 0, "exact"),
        ("at_least_once", 0, 1, "within the promise of at_least_once"),
        ("at_least_once", 1, 1, "differs"),
        ("at_most_once", 0, 0, "exact"),
        ("at_most_once", 1, 0, "within the promise of at_most_once"),
        ("at_most_once", 1, 1, "differs"),
    ],
)
def test_a_delivery_permits_what_it_promises(
    loss: str, delivery: str, lost: int, duplicates: int, words: str
) -> None:
    """Losses in `at_most_once`, repeats in `at_least_once`, neither in `exactly_once`."""
    assert verdict_of({"judged": 5, loss: lost, "duplicates": duplicates}, delivery) == words


@pytest.mark.parametrize("name", NEVER)
@pytest.mark.parametrize("delivery", ["exactly_once", "at_least_once", "at_most_once"])
def test_no_delivery_permits_the_rest(delivery: str, name: str) -> None:
    """Nor does it matter whether anything else was judged."""
    assert verdict_of({name: 1}, delivery) == "differs"


def test_whoever_shows_a_verdict_knows_every_difference() -> None:
    """Problems, metrics, console and command line: what makes an audit fail must have a name there."""
    differences = {"missing", "overdue", "duplicates", *NEVER}

    assert set(last_runs.DIFFERENCES) == differences
    assert verdict._FINDINGS.keys() == differences
    assert {*runs.DIFFERENCES, *runs.MORE_DIFFERENCES} == differences


def test_nothing_judged_is_a_verdict_of_its_own() -> None:
    """An empty log proves nothing."""
    assert (
        verdict_of({"judged": 0, "open": 7, "not_judged": 3, "lake_judged": 2}, "exactly_once")
        == "nothing judged"
    )
