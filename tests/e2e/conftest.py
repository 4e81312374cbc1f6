"""Fixtures of the end-to-end tests: the real log of a web server, and a state folder for each test."""

from __future__ import annotations

from pathlib import Path

import pytest

NASA = Path(__file__).parents[3] / "shared" / "data" / "nasa_19950801.tsv.gz"
"""Beside the checkout; not part of the repository."""


@pytest.fixture
def nasa_log() -> Path:
    """The real log of a web server; a test that requests it is skipped where the log is missing."""
    if not NASA.exists():
        pytest.skip(f"the real web log is not there: {NASA.name} belongs into {NASA.parent}")
    return NASA


@pytest.fixture(autouse=True)
def _own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test has a ledger of imports of its own."""
    monkeypatch.setenv("BATON_STATE", str(tmp_path / "state"))
