"""A lake on an object store: the jobs on `s3a://`, against a server that speaks S3 (`make test-s3`)."""

from __future__ import annotations

import os
import subprocess
import urllib.request
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import httpx
import pytest

from cli.stack.jars import fetch_jars
from cli.stack.lock import jar_folder
from services.control.spark.request import ClusterOptions
from tests.lake import session_record
from tests.servers import free_port
from tests.spark import Pipeline
from tests.spark_cluster import await_line
from tests.spark_control import Control

SERVER = os.environ.get("BATON_TEST_S3_SERVER", "")
"""The program of moto's server."""

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


@pytest.fixture
async def control(
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
    options = {
        "spark.hadoop.fs.s3a.endpoint": bucket,
        "spark.hadoop.fs.s3a.endpoint.region": "us-east-1",
        "spark.hadoop.fs.s3a.path.style.access": "true",
    }
    async with httpx.AsyncClient() as http:
        control = Control(
            *(tmp_path, kafka, zookeeper, namespace, http),
            cluster=ClusterOptions(options=options),
            lake="s3a://lake/tables",
            jars=os.pathsep.join(str(jar_folder(use)) for use in ("spark", "s3")),
        )
        yield control
        await control.runner.stop()


async def test_every_job_runs_on_an_object_store(control: Control, kafka: str, namespace: str) -> None:
    """Sessions that arrive between two runs are in the table once; reports and audit read it."""
    pipeline = Pipeline(kafka=kafka, namespace=namespace)
    await pipeline.create()
    await pipeline.deliver([session_record(f"k{n % 5}", n) for n in range(50)])
    first = await control.done("lake")
    await pipeline.deliver([session_record(f"k{n % 5}", n) for n in range(50, 80)])
    second = await control.done("lake")
    reports = await control.done("reports")

    runs = first, second, reports
    assert [run.state for run in runs] == ["succeeded"] * 3, [control.log(run)[-3000:] for run in runs]
    assert [control.runner.result_of(run.id)["sessions"] for run in (first, second)] == [50, 80]
    assert sum(day["sessions"] for day in control.runner.result_of(reports.id)["days"]) == 80
