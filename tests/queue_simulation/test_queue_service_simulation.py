"""The real workers of the queue service on virtual time, over a network that loses and delays."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.queue_simulation.service import run
from tests.simulation.replays import digests
from tests.simulation.simulation import garbage_collected_between_runs

SEEDS = 60


@pytest.fixture(scope="module")
def happened() -> Counter[str]:
    """What has happened in all runs, each of which is good."""
    found: Counter[str] = Counter()
    with garbage_collected_between_runs():
        for seed in range(SEEDS):
            course = run(seed)
            assert course.wrong == [], f"seed {seed}"
            found += course.store.happened
    return found


@pytest.mark.parametrize(
    "what",
    [
        "kill",
        "stop",
        "no answer",
        "record lost",
        "record late",
        "record slow",
        "answer to record lost",
        "items lost",
        "items late",
        "answer to items lost",
        "log unreadable",
        "items unreadable",
        "made anew",
        "record of a deleted queue",
    ],
)
def test_nothing_is_lost_or_doubled_whatever_happens(happened: Counter[str], what: str) -> None:
    """Each item is acked or dead, in one hand at a time, never after its ack; all workers know the same."""
    assert happened[what] >= 3


def test_a_seed_replays_exactly() -> None:
    """A seed gives the same run to the last record and answer, whatever the hash seed of the process."""
    found = digests("tests.queue_simulation.service", "1")

    assert len(set(found)) == 7  # a digest of each, and what happened in all
    assert digests("tests.queue_simulation.service", "2") == found
