"""What a driver left behind decides how its run ends; a run ends only once."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from services.control.core.runs.run import (
    GRACE_MS,
    TAKE_OVER_MS,
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


def alive(at_ms: int = 2_000, **fields: Any) -> DriverState:
    return DriverState(at_ms=at_ms, alive=True, **fields)


def dead(at_ms: int = 2_000, **fields: Any) -> DriverState:
    return DriverState(at_ms=at_ms, alive=False, **fields)


@pytest.mark.parametrize(
    ("seen", "state", "kill"),
    [
        pytest.param(alive(), "starting", False, id="Spark is starting"),
        pytest.param(alive(is_up=True), "running", False, id="Spark is up"),
        pytest.param(
            alive(is_up=True, has_result=True, published_at=1_900), "starting", False, id="it is exiting"
        ),
        pytest.param(dead(has_result=True), "succeeded", True, id="it exited after its result"),
        pytest.param(dead(has_result=True, exit_code=-9), "succeeded", True, id="killed after its result"),
        pytest.param(
            alive(3_001 + GRACE_MS, has_result=True, published_at=3_000), "succeeded", True, id="it lingers"
        ),
        pytest.param(dead(error=ERROR), "failed", True, id="its own error"),
        pytest.param(dead(exit_code=0), "failed", True, id="exit code 0 without a result"),
        pytest.param(dead(), "failed", True, id="gone while control was away"),
        pytest.param(alive(61_000, is_up=True), "running", False, id="at the limit"),
        pytest.param(alive(61_001, is_up=True), "failed", True, id="past the limit"),
        pytest.param(dead(61_001, has_result=True), "succeeded", True, id="published in time"),
    ],
)
def test_the_next_step_follows_from_what_is_seen(seen: DriverState, state: str, kill: bool) -> None:
    """Files decide; the process only says whether to wait. No end leaves a process."""
    step = decide(RUN, seen)

    assert (step.run.state, step.kill) == (state, kill)
    assert step.run.ended_at == (seen.at_ms if step.run.has_ended else None)


@pytest.mark.parametrize(
    ("seen", "condition", "words"),
    [
        (dead(error=ERROR, exit_code=1), "DIVIDE_BY_ZERO", "division by zero"),
        (dead(exit_code=0), "DriverLost", "the driver exited with code 0 without a result"),
        (
            dead(exit_code=1, last_words="no memory"),
            "DriverLost",
            "the driver exited with code 1 without a result; its last output: no memory",
        ),
        (dead(exit_code=-9), "DriverLost", "the driver was killed by signal 9 without a result"),
        (dead(), "DriverLost", "the driver is gone without a result"),
        (alive(99_000), "RunTimeout", "the run exceeded its limit of 60 s"),
    ],
)
def test_a_failed_run_says_why(seen: DriverState, condition: str, words: str) -> None:
    """Spark's condition is kept. A driver that died without a result is DriverLost, with its last output."""
    assert decide(RUN, seen).run.error == RunError(condition=condition, message=words)


LATE_MS = RUN.started_at + TAKE_OVER_MS + 1


@pytest.mark.parametrize(
    ("seen", "is_replaced"),
    [
        pytest.param(alive(), False, id="it may not have noticed yet"),
        pytest.param(alive(LATE_MS), True, id="it hangs"),
        pytest.param(alive(LATE_MS, has_begun=True), False, id="it waits for the lock of its run"),
        pytest.param(alive(LATE_MS, has_begun=True, is_up=True), False, id="it works"),
        pytest.param(dead(), True, id="it died before it noticed"),
        pytest.param(dead(has_begun=True), True, id="it died while it waited for the lock"),
    ],
)
def test_a_waiting_driver_that_does_not_begin_its_run_is_replaced(
    seen: DriverState, *, is_replaced: bool
) -> None:
    """It has some seconds, in which it may wait for an executor. How long it waits for its lock is free."""
    handed_over = msgspec.structs.replace(RUN, is_handed_over=True)

    step = decide(handed_over, seen)

    assert (step.restart, step.kill) == (is_replaced, is_replaced)
    assert not step.run.has_ended


def test_a_run_that_waits_for_its_lock_has_a_limit() -> None:
    """That of every run."""
    handed_over = msgspec.structs.replace(RUN, is_handed_over=True)

    step = decide(handed_over, alive(61_001, has_begun=True))

    assert (step.run.state, step.restart) == ("failed", False)


def test_a_result_published_before_the_cancel_counts() -> None:
    """Then the run has succeeded, and the cancel came too late."""
    late = cancelled(RUN, DriverState(at_ms=5_000, alive=False, has_result=True), "asked")
    early = cancelled(RUN, DriverState(at_ms=5_000, alive=False, exit_code=-15), "asked")

    assert (late.state, early.state) == ("succeeded", "cancelled")
    assert early.error == RunError(condition="Cancelled", message="asked")


def test_an_ended_run_has_no_active_tasks_and_never_changes() -> None:
    """To end a run twice is a bug."""
    ended = RUN.ended("failed", 9_000)

    assert (ended.ended_at, ended.progress) == (9_000, Progress(tasks=9, completed=3, active=0))
    with pytest.raises(IllegalTransition):
        ended.ended("failed", 9_001)


def test_a_success_has_no_remaining_task() -> None:
    """Tasks that Spark skipped must not leave the progress bar incomplete."""
    assert RUN.ended("succeeded", 9_000).progress == Progress(tasks=3, completed=3, active=0)


PRIVATE = {"pid", "born", "driver", "is_handed_over", "key", "request"}


def test_the_api_hides_the_process() -> None:
    """A run is shown with its result and without pid and birth; lists leave the result out too."""
    record = msgspec.to_builtins(RUN)
    shown = {name: record[name] for name in record if name not in PRIVATE}

    assert msgspec.to_builtins(detail_of(RUN, {"missing": 0})) == shown | {"result": {"missing": 0}}
    assert msgspec.to_builtins(summary_of(RUN)) == shown
