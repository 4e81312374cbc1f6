"""Starts the Spark session of a run, on this machine or on the cluster that `master` names.

Everything that Spark writes besides its results is in the run's folder. So removing the folder removes it
all, however the run ended. Used by the driver and by the tests.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from pyspark.sql import SparkSession

from services.control.spark.kafka_client import REDACTED
from shared.errors import SparkUnavailable

DRIVER_MEMORY = "2g"
"""Heap of the driver, which on a local master also does all the work; SPARK_DRIVER_MEMORY overrides."""
ARROW_BATCH_BYTES = 16 * 1024 * 1024
"""Largest batch that goes to Python: records of the topic `sessions` may have 2 MB each."""
PROJECT = Path(__file__).resolve().parents[3]


def start_spark(
    *, name: str, master: str, jars: str, work: Path, properties: Mapping[str, str] | None = None
) -> SparkSession:
    """A Spark session whose temporary files lie under `work`; 5–6 s. `properties`: of every JVM.

    Raises SparkUnavailable if the folder `jars` holds none.
    """
    found = sorted(str(path) for path in Path(jars).expanduser().glob("*.jar"))
    if not found:
        raise SparkUnavailable(f"there are no jars for Spark in {jars}: `baton jars` fetches them")
    is_local = master.startswith("local")
    (work / "tmp").mkdir(parents=True, exist_ok=True)
    _prepare_environment(is_local)
    options = _common_options(work) | (_local_options(work) if is_local else {})
    if properties:
        java = " ".join(f"-D{name}={value}" for name, value in properties.items())
        options["spark.driver.extraJavaOptions"] += f" {java}"
        options["spark.executor.extraJavaOptions"] = java
    builder = SparkSession.builder.appName(name).master(master).config("spark.jars", ",".join(found))
    for option, value in options.items():
        builder = builder.config(option, value)
    return builder.getOrCreate()


def _prepare_environment(is_local: bool) -> None:
    """Sets what Spark reads from the environment: its Python, our modules for its workers, loopback."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    if str(PROJECT) not in paths:
        os.environ["PYTHONPATH"] = os.pathsep.join([str(PROJECT), *filter(None, paths)])
    if is_local:
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")


def _common_options(work: Path) -> dict[str, str]:
    return {
        "spark.driver.memory": os.environ.get("SPARK_DRIVER_MEMORY", DRIVER_MEMORY),
        "spark.driver.extraJavaOptions": f"-Djava.io.tmpdir={work / 'tmp'}",
        "spark.local.dir": str(work / "local"),
        "spark.sql.warehouse.dir": str(work / "warehouse"),
        "spark.log.level": "WARN",
        "spark.ui.enabled": "true",
        "spark.ui.port": "0",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.execution.arrow.maxBytesPerBatch": str(ARROW_BATCH_BYTES),
        **REDACTED,
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    }


def _local_options(work: Path) -> dict[str, str]:
    # With the defaults (200 and 50 tasks) a small table takes 15 s. Most of a short run's CPU is Java's
    # second compiler: without it a run of `lake` over 200 sessions takes 35 CPU seconds instead of 65.
    return {
        "spark.driver.extraJavaOptions": f"-Djava.io.tmpdir={work / 'tmp'} -XX:TieredStopAtLevel=1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.shuffle.partitions": "4",
        "spark.databricks.delta.snapshotPartitions": "2",
    }
