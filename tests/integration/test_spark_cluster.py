"""The jobs on a cluster whose machines have neither the project's files nor its packages."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import httpx
import pytest

from cli.stack.jars import fetch_jars
from services.control.core.runs import Run
from services.control.spark.request import ClusterOptions
from tests.spark import Pipeline, closed_log
from tests.spark_cluster import MEMORY, SparkCluster, spark_cluster
from tests.spark_control import Control

KEYS = 40
POLL_S = 0.05
DRIVER_HOST = "localhost"
"""Another name than Spark would choose."""
SIZES = {
    "spark.executor.memory": MEMORY,
    "spark.executor.cores": "1",
    "spark.sql.shuffle.partitions": "4",  # any option of Spark's is a setting
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    fetch_jars("spark", quiet=True)
    with spark_cluster(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster


@pytest.fixture
async def control(
    cluster: SparkCluster, tmp_path: Path, kafka: str, zookeeper: str, namespace: str
) -> AsyncIterator[Control]:
    """Control whose jobs run on the cluster; the folder of the lake is seen by all."""
    options = ClusterOptions(driver_host=DRIVER_HOST, options=SIZES)
    async with httpx.AsyncClient() as http:
        control = Control(tmp_path, kafka, zookeeper, namespace, http, master=cluster.master, cluster=options)
        yield control
        await control.runner.stop()


async def test_all_jobs_run_where_nothing_of_ours_is(
    control: Control, cluster: SparkCluster, kafka: str, namespace: str
) -> None:
    """Code and packages come with the archive; an executor that is killed in each job changes nothing.

    Executors reach the driver by the name that is set for it.
    """
    pipeline = Pipeline(kafka=kafka, namespace=namespace)
    await pipeline.create()
    await pipeline.send(closed_log(400, KEYS, step_ms=1000))
    await pipeline.deliver_all()

    runs = [await run_disturbed(control, cluster, job) for job in ("lake", "reports", "audit")]

    assert [run.state for run in runs] == ["succeeded"] * 3, [control.log(run)[-3000:] for run in runs]
    lake, reports, audit = (control.runner.result_of(run.id) for run in runs)
    assert lake["sessions"] == audit["judged"] == sum(day["sessions"] for day in reports["days"]) > 0
    assert (audit["missing"], audit["extra"], audit["different"]) == (0, 0, 0)
    unpacked = [folder for folder in cluster.folders() if (folder / "baton" / "services").is_dir()]
    assert unpacked != []
    assert all(f"@{DRIVER_HOST}:" in (folder / "stderr").read_text() for folder in unpacked)


async def run_disturbed(control: Control, cluster: SparkCluster, job: str) -> Run:
    """A run of the job that lost an executor after Spark had begun to work."""
    run, killed = await control.begin(job), None
    while killed is None:
        await control.runner.step()
        seen = control.runner.run_of(run.id)
        assert not seen.has_ended, control.log(run)[-3000:]
        if seen.progress.active or seen.progress.completed:
            killed = cluster.kill_executor()
        await asyncio.sleep(POLL_S)
    return await control.ended(run)
