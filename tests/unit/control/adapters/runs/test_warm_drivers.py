"""A driver whose run has succeeded waits for another one, which spares the start of Spark."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from services.control.adapters.runs.drivers import SparkDrivers
from services.control.adapters.runs.process_group import born_of
from services.control.adapters.runs.store import RunStore
from services.control.core.runs.run import ENDED, TAKE_OVER_MS, Run
from services.control.spark.driver.folder import DriverFolder
from tests.unit.control.adapters.runs.test_runner import Bench, poll

IDLE_S = 30.0


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    bench = Bench(tmp_path / "runs", idle_s=IDLE_S)
    yield bench
    for runner in bench.runners:
        await runner.stop()

    async def is_over() -> bool:
        pids = {run.pid for run in bench.runner.runs()}
        is_empty = not any(map(born_of, pids))
        for runner in bench.runners:
            await runner.step()
        return is_empty

    await poll(is_over)


async def done(bench: Bench, how: str = "$.succeed", group: str = "default") -> Run:
    """A run that has ended."""
    return await bench.until(await bench.start(how, group=group), *ENDED)


def drivers(bench: Bench) -> list[str]:
    """The folders of drivers that are left."""
    return sorted(os.listdir(bench.folder / "drivers"))


async def gone(bench: Bench, *runs: Run) -> None:
    """Returns when nothing is left of the drivers of these runs."""

    async def is_gone() -> bool:
        await bench.runner.step()
        return not any(born_of(run.pid) or run.driver in drivers(bench) for run in runs)

    await poll(is_gone)


async def test_the_next_run_gets_the_driver_that_waits(bench: Bench) -> None:
    """Whatever its job or group; each run has its result, its log and its own progress."""
    first, second, third = [await done(bench, group=group) for group in ("a", "b", "a")]

    assert {run.pid for run in (second, third)} == {first.pid}
    assert [run.state for run in (first, second, third)] == ["succeeded"] * 3
    assert bench.runner.result_of(third.id) == {"answer": 42}
    assert drivers(bench) == [first.driver]


async def test_a_driver_waits_for_its_time_and_leaves_nothing(tmp_path: Path) -> None:
    """Its folder goes with it, and what Spark has written there."""
    bench = Bench(tmp_path / "runs", idle_s=0.2)
    run = await done(bench)

    await gone(bench, run)
    again = await done(bench)

    assert again.pid != run.pid
    await gone(bench, again)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
async def test_a_driver_that_does_not_take_the_run_is_replaced(bench: Bench, number: signal.Signals) -> None:
    """It died while it waited, before or after it was given the run, or it hangs; the user hears nothing."""
    first = await done(bench)
    if number is signal.SIGSTOP:
        os.killpg(first.pid, number)

    second = await bench.start("$.succeed")
    if number is signal.SIGKILL:
        os.killpg(first.pid, number)
    bench.ahead_ms += TAKE_OVER_MS - 2_000 if number is signal.SIGSTOP else 0  # so that the test takes 2 s
    ended = await bench.until(second, *ENDED)
    third = await done(bench)

    assert (ended.state, ended.error) == ("succeeded", None)
    assert ended.pid in (third.pid, first.pid)  # it may have been faster than the signal
    if number is signal.SIGSTOP:
        assert ended.pid != first.pid
        assert ended.ended_at is not None
        assert ended.ended_at - ended.started_at > TAKE_OVER_MS
        await gone(bench, first)


async def test_a_driver_that_waits_for_the_lock_of_its_run_is_left_alone(bench: Bench) -> None:
    """However long: on an object store another run may hold it for minutes. If it dies, it is replaced."""
    first = await done(bench)
    second = await bench.start("$.queue")
    await poll(has_begun(bench, second))
    bench.ahead_ms += TAKE_OVER_MS + 1
    await bench.runner.step()
    (bench.folder / second.id / "lock").touch()
    ended = await bench.until(second, *ENDED)

    third = await bench.start("$.queue")
    await poll(has_begun(bench, third))
    os.killpg(first.pid, signal.SIGKILL)
    (bench.folder / third.id / "lock").touch()
    replaced = await bench.until(third, *ENDED)

    assert (ended.state, ended.pid) == ("succeeded", first.pid)
    assert (replaced.state, replaced.pid == first.pid) == ("succeeded", False)


def has_begun(bench: Bench, run: Run) -> Callable[[], Awaitable[bool]]:
    """Asks whether the run's driver has said so; it does not step the runner."""

    async def asked() -> bool:
        return bench.runner._drivers.has_begun(run.driver, run.id)

    return asked


class Killed(BaseException):
    """Control dies here."""


def without_pid(store: RunStore, run: Run, save: Callable[[RunStore, Run], None] = RunStore.save) -> None:
    """Control dies before it has written the pid of a driver."""
    if run.pid:
        raise Killed
    save(store, run)


@pytest.mark.parametrize("how", ["$.succeed", "$.hang"])
@pytest.mark.parametrize("is_warm", [False, True])
async def test_a_control_killed_right_after_the_start_of_a_driver_leaves_a_run_that_goes_on(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, how: str, *, is_warm: bool
) -> None:
    """Before it has written the driver's pid. The next control finds the driver, and starts no second one."""
    first = await done(bench) if is_warm else None

    monkeypatch.setattr(RunStore, "save", without_pid)
    with pytest.raises(Killed):
        await bench.start(how)
    monkeypatch.undo()
    (run,) = [run for run in bench.again().runs() if not run.has_ended]
    expected = "running" if how == "$.hang" else "succeeded"
    seen = await bench.until(run, expected, *ENDED)

    assert seen.state == expected
    if first is not None:
        assert seen.pid == first.pid
    assert len(started(bench)) == 1
    if how == "$.hang":
        assert (await bench.runner.cancel(run.id)).state == "cancelled"
        assert bench.leftovers(seen) == []


@pytest.mark.parametrize("is_warm", [False, True])
async def test_a_control_killed_right_before_the_start_of_a_driver_leaves_a_run_that_gets_one(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, *, is_warm: bool
) -> None:
    """A driver that waits, and was not given the run, is left alone."""
    first = await done(bench) if is_warm else None

    def die(*_: object, **__: object) -> None:
        raise Killed

    if is_warm:
        monkeypatch.setattr(DriverFolder, "give", die)
    else:
        monkeypatch.setattr(SparkDrivers, "start", die)
    with pytest.raises(Killed):
        await bench.start("$.hang")
    monkeypatch.undo()
    (run,) = [run for run in bench.again().runs() if not run.has_ended]
    seen = await bench.until(run, "running", *ENDED)

    assert seen.state == "running"
    if first is not None:
        assert seen.pid != first.pid
        assert born_of(first.pid)


async def test_a_control_killed_while_it_replaces_a_driver_starts_no_third_one(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next one finds the second driver, whose pid nobody has written."""
    first = await done(bench)
    os.killpg(first.pid, signal.SIGSTOP)
    run = await bench.start("$.succeed")
    bench.ahead_ms += TAKE_OVER_MS + 1

    with monkeypatch.context() as patched:
        patched.setattr(RunStore, "save", without_pid)
        with pytest.raises(Killed):
            await bench.runner.step()
    bench.again()
    ended = await bench.until(run, *ENDED)

    assert (ended.state, ended.driver) == ("succeeded", run.id)
    assert len(started(bench)) == 2


def started(bench: Bench) -> list[str]:
    """The drivers that were started so far, one a line of a log."""
    lines = [line for log in bench.folder.glob("*/driver.log") for line in log.read_text().splitlines()]
    return [line for line in lines if line.startswith("a stand-in starts")]


async def test_a_run_after_the_death_of_a_driver_gets_a_new_one(bench: Bench) -> None:
    """What the dead one has left goes."""
    first = await done(bench)
    os.killpg(first.pid, signal.SIGKILL)

    second = await done(bench)

    assert (second.state, second.pid == first.pid) == ("succeeded", False)
    await gone(bench, first)


@pytest.mark.parametrize("how", ["$.fail", "$.die"])
async def test_a_driver_ends_with_a_run_that_fails(bench: Bench, how: str) -> None:
    """Nobody knows in what state its Spark is."""
    run = await done(bench, how)

    assert run.state == "failed"
    await gone(bench, run)


async def test_two_runs_at_a_time_have_a_driver_each(bench: Bench) -> None:
    """When both have ended, one of the drivers is enough."""
    first = await done(bench, group="a")
    runs = [await bench.start("$.hang", group="a"), await bench.start("$.succeed", group="b")]
    await bench.until(runs[0], "running")
    other = await bench.until(runs[1], *ENDED)
    third = await done(bench, group="c")

    assert runs[0].pid == first.pid != other.pid
    assert third.pid == other.pid

    fourth = await bench.start("$.hang", group="d")
    fifth = await done(bench, group="e")
    await bench.runner.cancel(fourth.id)
    await bench.runner.cancel(runs[0].id)
    sixth = await done(bench, group="f")
    assert sixth.pid == fifth.pid


async def test_of_the_drivers_that_wait_one_stays(bench: Bench) -> None:
    """Each has a JVM in memory."""
    runs = [await bench.start("$.succeed", group=group) for group in "abc"]
    for run in runs:
        await bench.until(run, *ENDED)

    async def is_one() -> bool:
        await bench.runner.step()
        return len(drivers(bench)) == 1 and sum(bool(born_of(pid)) for pid in {run.pid for run in runs}) == 1

    await poll(is_one)


async def test_a_cancelled_run_takes_its_driver_with_it(bench: Bench) -> None:
    """Also one that waited for it before."""
    first = await done(bench)
    second = await bench.start("$.hang")
    await bench.until(second, "running")

    ended = await bench.runner.cancel(second.id)

    assert (ended.state, ended.pid) == ("cancelled", first.pid)
    await gone(bench, ended)


async def test_a_cancel_after_the_end_ends_no_other_run(bench: Bench) -> None:
    """The run has its outcome, and its driver works on another one."""
    first = await bench.start("$.succeed", group="a")

    async def waits() -> bool:
        return bench.runner._drivers.has_released(first.id, first.id)

    await poll(waits)
    second = await bench.start("$.hang", group="b")
    cancelled = await bench.runner.cancel(first.id)
    await bench.until(second, "running")

    assert (second.pid, cancelled.state) == (first.pid, "succeeded")


async def test_the_next_control_takes_over_the_drivers(bench: Bench) -> None:
    """Those that work and those that wait, unless it has other settings: then those that wait end."""
    first, second = await done(bench, group="a"), await bench.start("$.hang", group="b")
    third = await done(bench, group="c")

    bench.again()
    await bench.until(second, "running")
    again = await done(bench, group="d")

    assert (second.pid, again.pid) == (first.pid, third.pid)
    bench.again(jars="/others")
    assert (await done(bench, group="e")).pid != again.pid
    await gone(bench, again)
    assert bench.runner.run_of(second.id).state == "running"


async def test_a_control_that_ends_its_drivers_ends_those_that_wait(bench: Bench) -> None:
    """Nothing of them is left."""
    runs = [await bench.start("$.succeed", group=group) for group in "ab"]
    await asyncio.gather(*(bench.until(run, *ENDED) for run in runs))

    await bench.runner.stop()

    assert [born_of(run.pid) for run in runs] == ["", ""]
    assert drivers(bench) == []
