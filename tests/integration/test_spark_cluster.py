"""The jobs on a cluster whose machines have neither the project's files nor its packages."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import httpx
import pytest
from click.testing import CliRunner

from cli.stack.commands.spark import spark_group
from cli.stack.jars.downloads import fetch_jars
from services.control.adapters.runs import progress as spark_progress
from services.control.core.runs.run import Run
from services.control.settings import ControlSettings
from services.control.wiring import cluster_for
from shared.service.settings import load
from tests.spark import Pipeline, closed_log
from tests.spark_cluster import MEMORY, SparkCluster, spark_cluster
from tests.spark_control import Control, stack_traces

KEYS = 40
POLL_S = 0.05
ANSWER_S = 60.0
DRIVER_HOST = "localhost"
"""Another name than Spark would choose."""
FAST = "-XX:TieredStopAtLevel=1"
"""Java's first compiler alone: executors that live for seconds gain nothing from the second."""
OPTIONS = (
    "spark.sql.shuffle.partitions=2 spark.databricks.delta.snapshotPartitions=2 "
    f"spark.driver.extraJavaOptions={FAST} spark.executor.extraJavaOptions={FAST}"
)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    fetch_jars("spark", quiet=True)
    with spark_cluster(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster


@pytest.fixture
async def control(
    cluster: SparkCluster,
    tmp_path: Path,
    kafka: str,
    zookeeper: str,
    namespace: str,
    monkeypatch: pytest.MonkeyPatch,
) -> AsyncIterator[Control]:
    """Control whose jobs run on the cluster by its settings; the folder of the lake is seen by all."""
    pack = tmp_path / "baton.zip"
    written = CliRunner().invoke(spark_group, ["pack", str(pack)])
    assert f"BATON_SPARK_PACK={pack}" in written.output
    settings = {
        "BATON_SPARK_PACK": str(pack),
        "BATON_SPARK_DRIVER_HOST": DRIVER_HOST,
        "BATON_SPARK_EXECUTOR_MEMORY": MEMORY,
        "BATON_SPARK_EXECUTOR_CORES": "1",
        "BATON_SPARK_OPTIONS": OPTIONS,
    }
    options = cluster_for(load(ControlSettings, settings))
    # on a busy machine Spark answers late, and then the executors would be left alone
    monkeypatch.setattr(spark_progress, "ANSWER_TIMEOUT_S", ANSWER_S)
    async with httpx.AsyncClient(timeout=ANSWER_S) as http:
        control = Control(tmp_path, kafka, zookeeper, namespace, http, master=cluster.master, cluster=options)
        yield control
        await control.runner.stop()


async def test_all_jobs_run_where_nothing_of_ours_is(
    control: Control, cluster: SparkCluster, kafka: str, namespace: str
) -> None:
    """Code and packages come with the archive; executors that are killed at work change nothing.

    Executors reach the driver by the name that is set for it. Two drivers at a time share the cluster,
    although each alone would use all of it: one that has no work gives its executors back. The log of a run
    that nothing disturbs has no stack traces, up to the end of its driver.
    """
    pipeline = Pipeline(kafka=kafka, namespace=namespace)
    await pipeline.create()
    await pipeline.send(closed_log(400, KEYS, step_ms=1000))
    await pipeline.deliver_all()

    first = await disturbed(control, cluster, await control.begin("lake"))
    both = [await control.begin(job) for job in ("reports", "audit")]
    runs = [first, *await asyncio.gather(*(disturbed(control, cluster, run) for run in both))]
    last = await control.done("lake")
    await control.end_driver(last)

    assert [run.state for run in (*runs, last)] == ["succeeded"] * 4, [
        control.log(run)[-3000:] for run in (*runs, last)
    ]
    lake, reports, audit = (control.runner.result_of(run.id) for run in runs)
    assert lake["sessions"] == audit["judged"] == sum(day["sessions"] for day in reports["days"]) > 0
    assert (audit["verdict"], audit["lake_judged"]) == ("exact", lake["sessions"])
    assert runs[0].pid == runs[1].pid != runs[2].pid
    assert stack_traces(control.log(last)) == []
    unpacked = [folder for folder in cluster.folders() if (folder / "baton" / "services").is_dir()]
    assert unpacked != []
    assert all(f"@{DRIVER_HOST}:" in (folder / "stderr").read_text() for folder in unpacked)


async def disturbed(control: Control, cluster: SparkCluster, run: Run) -> Run:
    """The run after its end; SIGKILL to its executors has made a task of it fail."""
    while (driver := control.store.driver(run.id)) is None:
        await look(control, run)
    application = driver.application
    assert application is not None
    while not (seen := await look(control, run)).progress.failed:
        if seen.progress.active:
            cluster.signal_executors(signal.SIGSTOP, application)
            # what is still active now does not end before the next signal
            is_hit = (await look(control, run)).progress.active
            cluster.signal_executors(signal.SIGKILL if is_hit else signal.SIGCONT, application)
    return await control.ended(run)


async def look(control: Control, run: Run) -> Run:
    """The run as it is now, which has not ended."""
    await asyncio.sleep(POLL_S)
    await control.runner.step()
    seen = control.runner.run_of(run.id)
    assert not seen.has_ended, control.log(run)[-3000:]
    return seen
