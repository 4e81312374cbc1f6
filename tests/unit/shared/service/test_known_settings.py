"""The table of known settings, and the search for the name that a misspelt one may mean."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from pathlib import Path

import pytest

from cli.commands.settings import ELSEWHERE
from cli.stack.options import SERVICES
from shared.service.known_settings import KNOWN, misspelt
from shared.service.settings import variable_for

ROOT = Path(__file__).parents[4]


def test_the_table_holds_exactly_the_declared_settings() -> None:
    """Services do not import each other, so the names of all of them stand in one table."""
    declared = {variable_for(field.name) for cls in SERVICES.values() for field in dataclasses.fields(cls)}
    declared |= {name for name in ELSEWHERE if name.startswith("BATON_")}

    assert declared == KNOWN


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("BATON_STREAM", "BATON_STREAMS"),
        ("BATON_ZOOKEPER", "BATON_ZOOKEEPER"),
        ("BATON_gap_ms", "BATON_GAP_MS"),
        ("BATON_XYZZY", None),
        ("BATON_", None),
    ],
)
def test_the_nearest_name_is_named(name: str, nearest: str | None) -> None:
    """None is near enough to every name; and a known name is never reported."""
    hint = f"; did you mean {nearest}?" if nearest else ""

    assert misspelt({name: "1", "BATON_KAFKA": "k:1", "PATH": "/bin"}) == [f"{name} is not a setting{hint}"]


def test_variables_of_the_tests_are_not_reported() -> None:
    """Tests hand some to the services that they start."""
    assert misspelt({"BATON_TEST_SEED": "7"}) == []


def test_the_command_line_reports_misspelt_settings() -> None:
    """On standard error, so that JSON on standard output stays JSON."""
    answer = subprocess.run(
        [sys.executable, "-m", "cli.main", "rejected", "--since", "yesterday"],
        cwd=ROOT,
        env={"PATH": "/bin:/usr/bin", "BATON_KAFKAS": "k:1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )

    assert answer.stderr.splitlines()[0] == "baton: BATON_KAFKAS is not a setting; did you mean BATON_KAFKA?"
