"""The tables of docs/reliability.md list exactly the faults that chaos runs and the simulation inject."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from tests.e2e.chaos_faults import FAULTS
from tests.simulation.schedule import KINDS, RARE_KINDS, Schedule

PAGE = Path(__file__).parents[2] / "docs" / "reliability.md"


def first_line(function: Callable[..., object]) -> str:
    """What a fault's docstring says it does."""
    inner = function.func if isinstance(function, partial) else function
    return (inner.__doc__ or "").splitlines()[0]


CHAOS = [f"| {name} | {first_line(fault)} |" for name, fault in FAULTS.items()]
SIMULATION = [f"| `{kind}` | {first_line(getattr(Schedule, kind))} |" for kind in KINDS + RARE_KINDS]


@pytest.mark.parametrize(
    ("heading", "rows"), [("### Chaos on real servers", CHAOS), ("### Simulation", SIMULATION)]
)
def test_the_tables_list_every_fault_and_no_other(heading: str, rows: list[str]) -> None:
    """Each row is the fault's name and the first line of its docstring, in the order of the code."""
    section = re.split(r"(?m)^##+ ", PAGE.read_text().partition(f"{heading}\n")[2])[0]
    found = [line for line in section.splitlines() if line.startswith("| ")]

    assert found[2:] == rows, "\n".join(["the rows should be:", *rows])
