"""A run ends by what its driver left behind, and only once."""

from __future__ import annotations

import msgspec
import pytest

from services.control.core.runs import (
    GRACE_MS,
    DriverState,
    IllegalTransition,
    Progress,
    Run,
    RunError,
    cancelled,
    decide,
    detail_of,
    summary_of,
)

RUN = Run(
    id="r1",
    job="audit",
    group="default",
    parameters={},
    state="starting",
    started_at=1_000,
    timeout_s=60,
    progress=Progress(tasks=9, completed=3, active=2),
    pid=77,
    born="123",
)
ERROR = RunError(condition="DIVIDE_BY_ZERO", message="division by zero")


@pytest.mark.parametrize(
    ("seen", "state", "kill"),
    [
        pytest.param(DriverState(at_ms=2_000, alive=True), "starting", False, id="Spark is still starting"),
        pytest.param(DriverState(at_ms=2_000, alive=True, is_up=True), "running", False, id="Spark is up"),
        pytest.param(
            DriverState(at_ms=2_000, alive=True, is_up=True, has_result=True, published_at=1_900),
            "starting",
            False,
            id="a result, but the driver is still ending",
        ),
        pytest.param(
            DriverState(at_ms=2_000, alive=False, has_result=True),
            "succeeded",
            True,
            id="a result and its end",
        ),
        pytest.param(
            DriverState(at_ms=2_000, alive=False, has_result=True, exit_code=-9),
            "succeeded",
            True,
            id="killed after it had published",
        ),
        pytest.param(
            DriverState(at_ms=3_001 + GRACE_MS, alive=True, has_result=True, published_at=3_000),
            "succeeded",
            True,
            id="it lingers",
        ),
        pytest.param(DriverState(at_ms=2_000, alive=False, error=ERROR), "failed", True, id="its own error"),
        pytest.param(
            DriverState(at_ms=2_000, alive=False, exit_code=0), "failed", True, id="exit 0, no result"
        ),
        pytest.param(DriverState(at_ms=2_000, alive=False), "failed", True, id="gone while nobody looked"),
        pytest.param(
            DriverState(at_ms=61_000, alive=True, is_up=True), "running", False, id="just within the limit"
        ),
        pytest.param(DriverState(at_ms=61_001, alive=True, is_up=True), "failed", True, id="past the limit"),
        pytest.param(
            DriverState(at_ms=61_001, alive=False, has_result=True), "succeeded", True, id="published in time"
        ),
    ],
)
def test_the_next_step_follows_from_what_is_seen(seen: DriverState, state: str, kill: bool) -> None:
    """Files decide; the processes only say whether to wait; no end leaves a process."""
    step = decide(RUN, seen)

    assert (step.run.state, step.kill) == (state, kill)


@pytest.mark.parametrize(
    ("seen", "condition", "words"),
    [
        (
            DriverState(at_ms=2_000, alive=False, error=ERROR, exit_code=1),
            "DIVIDE_BY_ZERO",
            "division by zero",
        ),
        (
            DriverState(at_ms=2_000, alive=False, exit_code=3, last_words="no memory"),
            "DriverLost",
            "exited with code 3",
        ),
        (DriverState(at_ms=2_000, alive=False, exit_code=-9), "DriverLost", "signal 9"),
        (DriverState(at_ms=2_000, alive=False), "DriverLost", "is gone"),
        (DriverState(at_ms=99_000, alive=True), "RunTimeout", "60 s"),
    ],
)
def test_a_failed_run_says_why(seen: DriverState, condition: str, words: str) -> None:
    """Spark's condition is handed on; a driver that died without a word is DriverLost."""
    error = decide(RUN, seen).run.error

    assert error is not None
    assert error.condition == condition
    assert words in error.message


def test_a_lost_drivers_last_words_are_kept() -> None:
    """What the driver printed last is often the reason."""
    error = decide(RUN, DriverState(at_ms=2_000, alive=False, exit_code=1, last_words="no memory")).run.error

    assert error is not None
    assert "no memory" in error.message


def test_a_run_that_published_before_the_cancel_has_succeeded() -> None:
    """A published result is the truth, whoever came too late."""
    late = cancelled(RUN, DriverState(at_ms=5_000, alive=False, has_result=True), "asked")
    early = cancelled(RUN, DriverState(at_ms=5_000, alive=False, exit_code=-15), "asked")

    assert (late.state, early.state) == ("succeeded", "cancelled")
    assert early.error == RunError(condition="Cancelled", message="asked")


def test_an_ended_run_has_no_active_tasks_and_never_changes() -> None:
    """Ended is ended: a second end is a bug."""
    ended = RUN.ended("failed", 9_000)

    assert (ended.ended_at, ended.progress) == (9_000, Progress(tasks=9, completed=3, active=0))
    with pytest.raises(IllegalTransition):
        ended.ended("failed", 9_001)


def test_a_success_has_no_task_left() -> None:
    """Tasks of stages that Spark skipped after all do not make a finished bar look unfinished."""
    assert RUN.ended("succeeded", 9_000).progress == Progress(tasks=3, completed=3, active=0)


def test_the_api_hides_the_process() -> None:
    """A run is shown with its result and without pid and birth; lists leave the result out too."""
    record = msgspec.to_builtins(RUN)
    shown = {name: record[name] for name in record if name not in ("pid", "born")}

    assert msgspec.to_builtins(detail_of(RUN, {"missing": 0})) == shown | {"result": {"missing": 0}}
    assert msgspec.to_builtins(summary_of(RUN)) == shown
