"""Every scenario file prints what it says. A folder is a room of the core, with a world of its own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.scenarios.datadriven import Command, ScenarioWorld, parse, parse_command, run_scenario
from tests.scenarios.handover_scenario import HandoverScenario
from tests.scenarios.ownership_scenario import OwnershipScenario
from tests.scenarios.sessions_scenario import SessionsScenario

HERE = Path(__file__).parent
WORLDS: dict[str, Callable[[], ScenarioWorld]] = {
    "handover": HandoverScenario,
    "ownership": OwnershipScenario,
    "sessions": SessionsScenario,
}
SCENARIOS = sorted(HERE.glob("*/*.txt"))


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_a_scenario_prints_what_it_says(path: Path, rewrite: bool) -> None:
    """Step by step, from an empty world; a difference shows the step, its file and line."""
    differences = run_scenario(path, WORLDS[path.parent.name], rewrite=rewrite)

    assert not differences, "\n\n".join(differences)


def test_a_rewrite_changes_expectations_and_nothing_else(tmp_path: Path) -> None:
    """Comments, commands and order stay; a run afterwards finds no difference."""

    class Echo:
        def run(self, command: Command) -> str:
            return " ".join([command.name, *command.words, *map("=".join, command.options.items())])

    path = tmp_path / "echo.txt"
    path.write_text("# about\n\nsay a b=c  # why\nsay d\n----\nold\n\n# last\nsay\n----\n")

    before = run_scenario(path, Echo, rewrite=False)
    run_scenario(path, Echo, rewrite=True)

    assert [difference.split("\n")[0] for difference in before] == ["echo.txt:3", "echo.txt:8"]
    assert path.read_text() == (
        "# about\n\nsay a b=c  # why\nsay d\n----\nsay a b=c\nsay d\n\n# last\nsay\n----\nsay\n"
    )
    assert run_scenario(path, Echo, rewrite=False) == []


def test_a_step_needs_its_separator() -> None:
    """Else a forgotten line would make the rest of a file say nothing."""
    with pytest.raises(ValueError, match="line 3"):
        parse("# fine\n\nsay a\n")
    assert parse_command("  # nothing") is None
