"""A driver says that it has begun a run once nothing but the run's lock can hold it up."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import msgspec
import pytest

from services.control.spark.driver import __main__ as driver
from services.control.spark.driver.folder import DriverFolder
from services.control.spark.run.request import RunRequest
from shared.model.group import GroupSettings

if TYPE_CHECKING:
    from services.control.spark.driver.warm_spark import DriverSpark

REQUEST = RunRequest(
    id="r1", job="lake", kafka="k:1", lake="/lake", jars="/jars", group_settings=GroupSettings(), streams=1
)


@pytest.mark.parametrize(
    ("master", "order"),
    [
        ("local[1]", ["begun", "lock", "session"]),
        ("spark://127.0.0.1:7077", ["session", "executor", "begun", "lock"]),
    ],
)
def test_a_run_has_begun_before_it_waits_for_its_lock(
    monkeypatch: pytest.MonkeyPatch, master: str, order: list[str]
) -> None:
    """On a cluster not before it has an executor: a driver that gets none is replaced."""
    seen: list[str] = []

    @contextlib.contextmanager
    def noted(what: str) -> Iterator[None]:
        seen.append(what)
        yield

    spark = SimpleNamespace(
        session=lambda _: noted("session"), await_executor=lambda _: seen.append("executor")
    )
    monkeypatch.setattr(driver, "held_lock", lambda _: noted("lock"))

    request = msgspec.structs.replace(REQUEST, master=master)
    with driver._ready(request, cast("DriverSpark", spark), lambda: seen.append("begun")):
        pass

    assert seen == order


def test_control_sees_in_the_folder_how_far_the_driver_is(tmp_path: Path) -> None:
    """And finds there which runs it was given, whether or not the driver has noticed."""
    folder = DriverFolder(tmp_path)
    folder.work_on("r1")
    before = folder.phase()
    folder.work_on("r1", has_begun=True)
    after = folder.phase()
    folder.await_next("r1", 60.0, lambda: not folder.give(tmp_path / "r2"))

    assert before is not None
    assert after is not None
    assert (before.has_begun, after.has_begun) == (False, True)
    assert [folder.was_given(tmp_path / run) for run in ("r1", "r2")] == [False, True]
