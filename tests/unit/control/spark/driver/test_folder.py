"""A waiting driver gets at most one run, however soon the next one follows."""

from __future__ import annotations

from pathlib import Path

from services.control.spark.driver.folder import DriverFolder

IDLE_S = 60.0


def test_a_driver_that_is_about_to_begin_a_run_gets_no_second_one(tmp_path: Path) -> None:
    """It still looks idle. For not beginning the second run, control would kill it amid the first."""
    folder = DriverFolder(tmp_path)
    given: list[bool] = []

    def lives() -> bool:
        given.append(folder.give(tmp_path / "run-2"))
        return True

    following = folder.await_next("run-1", IDLE_S, lives)

    assert (given, following) == ([True], tmp_path / "run-2")
    assert not folder.give(tmp_path / "run-3")
