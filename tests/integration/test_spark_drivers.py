"""Drivers that wait for their next run: one works for several jobs, and one that died is replaced."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from services.control.spark.driver.folder import DRIVERS
from tests.lake import session_record
from tests.spark import Pipeline
from tests.spark_control import Control, stack_traces
from tests.spark_driver import java_of


@pytest.fixture
async def control(tmp_path: Path, kafka: str, zookeeper: str, namespace: str) -> AsyncIterator[Control]:
    async with httpx.AsyncClient() as http:
        control = Control(tmp_path, kafka, zookeeper, namespace, http)
        yield control
        await control.runner.stop()


async def test_one_driver_runs_several_jobs(control: Control, kafka: str, namespace: str) -> None:
    """Each with its own result, log and progress; what arrives in between is in the next one.

    Java works at a lower priority than the services and the driver's Python, which keeps the lock. The logs
    have no stack traces, up to the end of the driver.
    """
    pipeline = Pipeline(kafka=kafka, namespace=namespace)
    await pipeline.create()
    await pipeline.deliver([session_record("a", 1), session_record("b", 2)])
    first = await control.done("lake")
    await pipeline.deliver([session_record("c", 3)])
    second = await control.done("lake")
    third = await control.done("reports", item_path="$.data.path", top=5)

    runs = first, second, third
    assert [run.state for run in runs] == ["succeeded"] * 3, [control.log(run) for run in runs]
    assert {run.pid for run in runs} == {first.pid}
    assert first.pid is not None
    usual = os.getpriority(os.PRIO_PROCESS, 0)
    assert priorities_of(first.pid) == {usual}
    assert min(priorities_of(java_of(first.pid))) > usual
    assert [control.runner.result_of(run.id)["sessions"] for run in (first, second)] == [2, 3]
    assert control.runner.result_of(third.id)["days"][0]["sessions"] == 3
    assert all(run.progress.tasks > 0 for run in runs)
    await control.end_driver(third)
    assert [line for run in runs for line in stack_traces(control.log(run))] == []


def priorities_of(process: int) -> set[int]:
    """Those of its threads."""
    threads = [int(thread) for thread in os.listdir(f"/proc/{process}/task")]
    return {os.getpriority(os.PRIO_PROCESS, thread) for thread in threads}


async def test_the_death_of_java_ends_one_run_at_most(control: Control, kafka: str, namespace: str) -> None:
    """While its driver waits, nobody notices; in a run, the run says so. The next run has its own driver."""
    pipeline = Pipeline(kafka=kafka, namespace=namespace)
    await pipeline.create()
    await pipeline.deliver([session_record("a", 1), session_record("b", 2)])
    first = await control.done("maintain")
    os.kill(java_of(first.pid), signal.SIGKILL)

    second = await control.begin("lake")
    has_table = Path(control.lake, namespace, "sessions", "_delta_log", f"{0:020}.json").exists
    while not has_table():  # its sessions come with the commit after this one
        await asyncio.sleep(0.01)
        await control.runner.step()
        assert not control.runner.run_of(second.id).has_ended, control.log(second)
    os.kill(java_of(control.runner.run_of(second.id).pid), signal.SIGKILL)
    second = await control.ended(second)
    third = await control.done("lake")

    assert (first.state, second.state, third.state) == ("succeeded", "failed", "succeeded"), control.log(
        third
    )
    assert second.error is not None
    assert second.error.condition == "JavaLost"
    assert "killed by signal 9" in second.error.message
    assert len({first.pid, second.pid, third.pid}) == 3
    assert [path.name for path in (control.store.folder / DRIVERS).iterdir()] == [third.driver]
    assert control.runner.result_of(third.id)["sessions"] == 2
