"""The real fold of a queue under lag, loss, kills, seeks and jumping clocks: hundreds of seeds.

`make simulate-queues` runs 100,000 and more.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.queue_simulation.__main__ import print_log
from tests.queue_simulation.faults import FAULTS
from tests.queue_simulation.run import Tally, run, run_all
from tests.simulation.planting import ROOT, PlantedFault, copy_tree, find

SEEDS = 400
WITHIN_S = 380.0
RARE = [pytest.mark.soak, pytest.mark.timeout(WITHIN_S + 20)]


def case(fault: PlantedFault) -> object:
    """The fault as a test's parameter."""
    return pytest.param(fault, id=fault.name, marks=RARE if fault.is_rare else ())


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


@pytest.mark.parametrize("fault", [case(fault) for fault in FAULTS])
def test_the_simulation_finds_a_planted_fault(fault: PlantedFault, tmp_path: Path) -> None:
    """Within a bounded number of seeds a run breaks a promise."""
    copy_tree(tmp_path)
    fault.plant(tmp_path)

    found = find(fault, tmp_path, WITHIN_S)

    assert found is not None, f"not found in {fault.seeds} seeds"


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_the_text_of_a_planted_fault_stands_once(fault: PlantedFault) -> None:
    """A fault whose text is gone must be planted elsewhere."""
    assert (ROOT / fault.file).read_text().count(fault.text) == 1
