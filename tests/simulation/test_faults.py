"""The simulation finds every small fault that is planted in a copy of the code.

`make simulate-faults` also runs those that take longer than a few seconds.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.simulation.faults import FAULTS
from tests.simulation.planting import PlantedFault, copy_tree, find

WITHIN_S = 380.0
RARE = [pytest.mark.soak, pytest.mark.timeout(WITHIN_S + 20)]


def case(fault: PlantedFault) -> object:
    """The fault as a test's parameter."""
    return pytest.param(fault, id=fault.name, marks=RARE if fault.is_rare else ())


@pytest.mark.parametrize("fault", [case(fault) for fault in FAULTS])
def test_the_simulation_finds_a_planted_fault(fault: PlantedFault, tmp_path: Path) -> None:
    """Within a bounded number of seeds a run breaks a promise, and its seed is reported."""
    copy_tree(tmp_path)
    fault.plant(tmp_path)

    found = find(fault, tmp_path, WITHIN_S)

    assert found is not None, f"not found in {fault.seeds} seeds"


@pytest.mark.parametrize("fault", [pytest.param(fault, id=fault.name) for fault in FAULTS])
def test_the_text_of_a_planted_fault_stands_once(fault: PlantedFault, tmp_path: Path) -> None:
    """A fault whose text is gone must be planted elsewhere."""
    source = Path(__file__).parents[2] / fault.file

    assert source.read_text().count(fault.text) == 1
