"""A lake on an object store: the jobs on `s3a://`, against a server that speaks S3 (`make test-s3`).

On a local master, and on a cluster whose machines share nothing, for which it is the only kind of lake.
"""

from __future__ import annotations

import os
import subprocess
import urllib.request
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import httpx
import pytest

from cli.stack.jars.downloads import fetch_jars
from cli.stack.jars.lock import jar_folder
from services.control.spark.run.request import ClusterOptions
from services.control.tables.lake import Lake
from services.control.tables.positions import LakePositions
from tests.servers import free_port
from tests.spark import Pipeline, closed_log
from tests.spark_cluster import MEMORY, await_line, spark_cluster
from tests.spark_control import Control

SERVER = os.environ.get("BATON_TEST_S3_SERVER", "")
"""The program of moto's server."""
KEYS = 40

pytestmark = pytest.mark.skipif(not SERVER, reason="no S3 server: `make test-s3` fetches one and runs this")


@pytest.fixture(scope="module")
def bucket(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a server with the bucket `lake`."""
    address = f"http://127.0.0.1:{(port := free_port())}"
    log = tmp_path_factory.mktemp("s3") / "log"
    with (
        log.open("wb") as output,
        subprocess.Popen(
            [SERVER, "-H", "127.0.0.1", "-p", str(port)], stdout=output, stderr=output
        ) as server,
    ):
        await_line(log, "Running on")
        urllib.request.urlopen(urllib.request.Request(f"{address}/lake", method="PUT"), timeout=10).close()
        yield address
        server.terminate()


@pytest.fixture(params=["local[2]", "cluster"])
def master(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The Spark master of the jobs."""
    if request.param != "cluster":
        yield request.param
        return
    with spark_cluster(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster.master


@pytest.fixture
async def control(
    master: str,
    bucket: str,
    tmp_path: Path,
    kafka: str,
    zookeeper: str,
    namespace: str,
    monkeypatch: pytest.MonkeyPatch,
) -> AsyncIterator[Control]:
    """Control whose lake is in the bucket; everything S3 needs comes from the environment, as usual."""
    fetch_jars("s3", quiet=True)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    monkeypatch.setenv("AWS_ENDPOINT_URL", bucket)
    monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
    options = {"spark.hadoop.fs.s3a.path.style.access": "true", "spark.executor.memory": MEMORY}
    async with httpx.AsyncClient() as http:
        control = Control(
            *(tmp_path, kafka, zookeeper, namespace, http),
            master=master,
            cluster=ClusterOptions(options=options),
            lake="s3a://lake/tables",
            jars=os.pathsep.join(str(jar_folder(use)) for use in ("spark", "s3")),
        )
        yield control
        await control.runner.stop()


async def test_every_job_runs_on_an_object_store(control: Control, kafka: str, namespace: str) -> None:
    """Sessions that arrive between two runs are in the table once; the other jobs and control read it."""
    pipeline = Pipeline(kafka=kafka, namespace=namespace)
    await pipeline.create()
    await pipeline.send(closed_log(400, KEYS, step_ms=1000))
    sessions, positions = await pipeline.sessions()
    records = [(session.key.encode(), value) for session, value in sessions]
    await pipeline.deliver(records[:30])
    first = await control.done("lake")
    await pipeline.deliver(records[30:])
    await pipeline.commit(positions)
    runs = [first, *[await control.done(job) for job in ("lake", "reports", "maintain", "audit")]]

    assert {run.state for run in runs} == {"succeeded"}, [control.log(run)[-3000:] for run in runs]
    before, lake, reports, maintain, audit = (control.runner.result_of(run.id) for run in runs)
    assert (before["sessions"], lake["sessions"]) == (30, KEYS)
    assert sum(day["sessions"] for day in reports["days"]) == KEYS
    assert maintain["tables"]["sessions"]["compacted"] == 1
    assert (audit["verdict"], audit["lake_judged"]) == ("exact", KEYS)
    tables = Lake(control.lake, namespace)
    assert {"sessions", "reports/periods"} <= set(tables.names())
    keys = tables.open("sessions").to_pyarrow_table(columns=["key"]).column("key").to_pylist()
    assert sorted(keys) == sorted(session.key for session, _ in sessions)
    assert LakePositions(tables).read({"default"}) != {}
