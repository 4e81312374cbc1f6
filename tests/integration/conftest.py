"""Fixtures of the integration tests: a Spark session for all that do not kill it, a log of two streams."""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cli.stack.jars.downloads import fetch_jars
from cli.stack.jars.lock import jar_folder
from cli.stack.servers.class_archives import ensure_archive
from services.consumer.adapters.kafka.log import KafkaStreamLog
from services.control.spark.run.request import ClusterOptions, RunRequest
from shared.kafka.admin.topics import checkpoints_topic, ensure_topics, fragments_topics, sessions_topic
from shared.model.names import Names
from tests.integration.kafka_log_ground import RETENTION_MS
from tests.log_contract import SETTINGS
from tests.servers import temporary_home
from tests.spark_driver import DRIVER, Driver, StartDriver
from tests.topics import Append, appending

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """A Spark session with the Kafka connector and Delta, started when first asked for.

    Everything in it has the settings for small tables; the product's own drivers run in `test_spark_drivers`.
    """
    # only here, because importing pyspark takes a second that most tests need not spend
    from services.control.spark.session.settings import SMALL
    from services.control.spark.session.spark_session import start_spark

    fetch_jars("spark", quiet=True)
    ensure_archive("spark")
    with temporary_home("spark") as home:
        on_interrupt = signal.getsignal(signal.SIGINT)
        session = start_spark(
            name="tests",
            master="local[2]",
            jars=str(jar_folder("spark")),
            work=home,
            cluster=ClusterOptions(options=SMALL | {"spark.ui.enabled": "false"}),
        )
        signal.signal(signal.SIGINT, on_interrupt)  # Spark has set its own, which later tests would meet
        yield session
        session.stop()


@pytest.fixture
def start_driver() -> Iterator[StartDriver]:
    """Starts drivers; kills what is left of them at the end."""
    drivers: list[Driver] = []

    def start(run: Path, request: RunRequest, module: str = DRIVER) -> Driver:
        drivers.append(Driver(run, request, module))
        return drivers[-1]

    yield start
    for driver in drivers:
        driver.signal(signal.SIGKILL)
        driver.wait()


@pytest.fixture
async def names(kafka: str, namespace: str) -> Names:
    """The names of a log whose topics exist."""
    names = Names(namespace)
    topics = [
        *fragments_topics(names, 2, RETENTION_MS),
        sessions_topic(names, "default", 2, -1),
        checkpoints_topic(names, "default", 2),
    ]
    await ensure_topics(kafka, topics, 1)
    return names


@pytest.fixture
async def append(kafka: str, names: Names) -> AsyncIterator[Append]:
    """Appends records to its streams."""
    async with appending(kafka, names) as append:
        yield append


@pytest.fixture
async def stream_log(kafka: str, names: Names) -> AsyncIterator[KafkaStreamLog]:
    """A member's access to it."""
    log = KafkaStreamLog(kafka, names, "default", SETTINGS, 2)
    yield log
    await log.close()
