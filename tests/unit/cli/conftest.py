"""Keeps what commands remember out of the user's home."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def _own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test has a ledger of imports of its own."""
    monkeypatch.setenv("BATON_STATE", str(tmp_path / "state"))
