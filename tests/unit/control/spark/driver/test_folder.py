"""A waiting driver takes the next run only if its Spark can still work."""

from __future__ import annotations

from pathlib import Path

import pytest

from services.control.spark.driver.folder import DriverFolder

IDLE_S = 60.0


@pytest.mark.parametrize(("is_fit", "taken"), [(True, "run-2"), (False, None)])
def test_a_run_that_came_too_late_is_not_taken(tmp_path: Path, is_fit: bool, taken: str | None) -> None:
    """The driver ends without a word about the run, so control gives it to another one."""
    folder = DriverFolder(tmp_path)
    folder.give(tmp_path / "run-2")

    following = folder.await_next("run-1", IDLE_S, lambda: is_fit)

    assert following == (tmp_path / taken if taken else None)
