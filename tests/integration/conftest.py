"""Fixtures of the integration tests: one Spark session for all that do not kill it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from cli.stack.jars import fetch_jars
from cli.stack.lock import jar_folder
from tests.servers import temporary_home

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """A Spark session with the Kafka connector and Delta, started when first asked for."""
    # only here, because importing pyspark takes a second that most tests need not spend
    from services.control.spark.spark_session import start_spark

    fetch_jars("spark", quiet=True)
    with temporary_home("spark") as home:
        session = start_spark(name="tests", master="local[2]", jars=str(jar_folder("spark")), work=home)
        yield session
        session.stop()
