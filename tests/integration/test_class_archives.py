"""Kafka and Spark start from the archives that `baton jars` makes, as the memory of their processes shows."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from cli.stack.servers.class_archives import ensure_archive
from shared.class_archive import archive_of
from tests.servers import KafkaServer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_a_broker_starts_from_its_archive(tmp_path: Path) -> None:
    """With the jars and the Java for which it was made."""
    assert ensure_archive("kafka")
    broker = KafkaServer(tmp_path)

    broker.start()
    mapped = Path(f"/proc/{broker.pid}/maps").read_text()
    broker.kill()

    assert str(archive_of("kafka")) in mapped


def test_a_driver_starts_from_its_archive(spark: SparkSession) -> None:
    """With the class path that Spark gives it, and our options."""
    java = spark._jvm.java.lang.ProcessHandle.current().pid()

    assert str(archive_of("spark")) in Path(f"/proc/{java}/maps").read_text()
