"""The simulations find every small fault that is planted in the code.

A test looks for a fault that, or whose file or simulation, has changed since it was last found: `found.txt`
holds digests of these. `make simulate-faults` looks for every fault, also for those that take minutes, and
renews the digests.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.queue_simulation.faults import FAULTS as FAULTS_OF_QUEUES
from tests.simulation.faults import FAULTS as FAULTS_OF_MEMBERS
from tests.simulation.planting import PlantedFault

FAULTS = (*FAULTS_OF_MEMBERS, *FAULTS_OF_QUEUES)
FOUND = Path(__file__).with_name("found.txt")
WITHIN_S = 380.0
RARE = [pytest.mark.soak, pytest.mark.timeout(WITHIN_S + 20)]


def case(fault: PlantedFault) -> object:
    """The fault as a test's parameter."""
    return pytest.param(fault, id=fault.name, marks=RARE if fault.is_rare else ())


def found_before() -> dict[str, str]:
    """By name of the fault: the digest with which it was found."""
    lines = FOUND.read_text().splitlines()
    return {name: digest for digest, _, name in (line.partition("  ") for line in lines)}


def keep(fault: PlantedFault) -> None:
    """Notes that the fault was found as it is now."""
    digests = found_before() | {fault.name: fault.digest()}
    known = [f"{digests[fault.name]}  {fault.name}\n" for fault in FAULTS if fault.name in digests]
    FOUND.write_text("".join(known))


@pytest.mark.parametrize("fault", [case(fault) for fault in FAULTS])
def test_the_simulation_finds_a_planted_fault(fault: PlantedFault, pytestconfig: pytest.Config) -> None:
    """Within a bounded number of seeds a run breaks a promise, and its seed is reported."""
    is_whole = pytestconfig.getoption("--soak")
    if not is_whole and found_before().get(fault.name) == fault.digest():
        pytest.skip("neither the fault nor its file nor the simulation has changed since it was found")

    found = fault.find(WITHIN_S)

    assert found is not None, f"not found in {fault.seeds} seeds"
    if is_whole:
        keep(fault)


def test_the_text_of_each_planted_fault_stands_once() -> None:
    """A fault whose text is gone must be planted elsewhere."""
    assert [fault.name for fault in FAULTS if not fault.is_plantable] == []
