"""The real fold of a queue under lag, loss, kills, seeks and jumping clocks: hundreds of seeds.

`make simulate-queues` runs 100,000 and more.
"""

from __future__ import annotations

import pytest

from tests.queue_simulation.__main__ import print_log
from tests.queue_simulation.run import Tally, run, run_all

SEEDS = 400


@pytest.fixture(scope="module")
def tally() -> Tally:
    """The sum of all runs."""
    return run_all(0, SEEDS)


def test_every_seed_keeps_every_promise(tally: Tally) -> None:
    """One state from every start; answers and state as the reference's; nothing lost."""
    for seed, _ in tally.wrong[:1]:
        print_log(run(seed))

    assert tally.runs == SEEDS
    assert tally.wrong == []


@pytest.mark.parametrize(
    ("what", "at_least"),
    [
        ("kill", 300),
        ("seek", 150),
        ("purge", 80),
        ("record lost", 300),
        ("record late", 500),
        ("clock jumps back", 200),
        ("snapshot", 400),
        ("log begins anew", 120),
        ("buried", 300),
        ("repeat", 300),
        ("acked", 1000),
        ("dead", 300),
    ],
)
def test_what_may_happen_happens(tally: Tally, what: str, at_least: int) -> None:
    """A simulation in which nothing happens would find nothing."""
    assert tally.happened[what] >= at_least
