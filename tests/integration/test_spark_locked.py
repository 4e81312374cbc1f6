"""Spark's jobs on a broker that demands TLS, a principal and rights; and secrets that nothing shows."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from cli.kafka.rights import rights_of
from cli.stack.jars.lock import jar_folder
from services.control.spark.audit.job import audit
from services.control.spark.kafka.client import java_properties
from services.control.spark.kafka.log import offsets, read_log, topic_partitions
from services.control.spark.run.request import RunRequest
from shared.kafka.admin.topics import ensure_topics, fragments_topics, sessions_topic
from shared.kafka.connect.access import KafkaAccess
from shared.kafka.connect.cluster import Cluster
from shared.kafka.send.transactional import GroupOffset, TransactionalWriter
from shared.model.group import GroupSettings
from shared.model.head import Head
from shared.model.names import Names
from tests.integration.test_kafka_locked import WAYS
from tests.lake import session_record
from tests.secured_kafka import PASSWORD, SecuredKafka
from tests.spark_driver import StartDriver

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RETENTION_MS = 3_600_000


@pytest.fixture
async def names(secured_kafka: SecuredKafka, namespace: str) -> Names:
    """A log with three sessions, which the principal `spark` may read."""
    names = Names(namespace)
    topics = [*fragments_topics(names, 1, RETENTION_MS), sessions_topic(names, "default", 1, RETENTION_MS)]
    await ensure_topics(secured_kafka.root, topics, 1)
    await secured_kafka.allow("spark", names)
    async with Cluster(secured_kafka.root) as cluster:
        writer = TransactionalWriter(cluster, f"{namespace}.test", timeout_ms=10_000)
        await writer.open()
        where = names.sessions("default"), 0
        await writer.add([where])
        await writer.write(where, [(*session_record(key, n), []) for n, key in enumerate("abc")])
        head = Head(epoch=1, seq=1, position=0, safe_offset=0)
        await writer.commit_offset(
            GroupOffset(
                group=names.kafka_group("default"),
                partition=(names.fragments(0), 0),
                offset=0,
                metadata=head.metadata(),
            )
        )
        await writer.end(is_commit=True)
    return names


@pytest.mark.parametrize("way", WAYS)
async def test_spark_reads_whichever_way_it_shows_who_it_is(
    secured_kafka: SecuredKafka, spark: SparkSession, names: Names, way: str
) -> None:
    """By a client certificate or each mechanism of SASL, as a principal with the least rights."""
    access = WAYS[way](secured_kafka, "spark")
    for name, value in java_properties(access).items():
        spark._jvm.java.lang.System.setProperty(name, value)

    def read() -> list[bytes]:
        partitions = topic_partitions(spark, access, [names.sessions("default")])
        start, end = (offsets(spark, access, partitions, at) for at in ("start", "stable"))
        return sorted(bytes(row.key) for row in read_log(spark, access, start, end).collect())

    assert await asyncio.to_thread(read) == [b"a", b"b", b"c"]


async def test_the_least_rights_of_jobs_suffice_and_each_is_used(
    secured_kafka: SecuredKafka, spark: SparkSession, names: Names, tmp_path: Path
) -> None:
    """The audit reads all that any job reads: sessions, fragments and heads."""
    # with the key in the same file
    access = secured_kafka.by_certificate("spark")
    keystore = access.certificate_file.replace(".pem", ".keystore.pem")
    access = dataclasses.replace(access, certificate_file=keystore, key_file="")
    job = msgspec.structs.replace(request(access, names, tmp_path), job="audit")

    await asyncio.to_thread(audit, spark, job)

    used = {right for right in secured_kafka.used_rights("spark") if right[1].startswith(names.namespace)}
    assert used == {
        (right.resource, right.name, does) for right in rights_of("spark", names) for does in right.operations
    }


def request(access: KafkaAccess, names: Names, folder: Path) -> RunRequest:
    return RunRequest(
        id="run",
        job="lake",
        kafka=access,
        lake=str(folder / "lake"),
        jars=str(jar_folder("spark")),
        group_settings=GroupSettings(),
        streams=1,
        namespace=names.namespace,
    )


async def test_a_job_shows_its_secret_nowhere(
    secured_kafka: SecuredKafka, names: Names, tmp_path: Path, start_driver: StartDriver
) -> None:
    """Not in files, its log, arguments of processes, or the pages of Spark; it finds the valid one of two."""
    access = secured_kafka.by_secret("SCRAM-SHA-512", "spark", "not yet valid", PASSWORD)
    driver = start_driver(tmp_path / "run", request(access, names, tmp_path))
    shown: list[str] = []

    def watch() -> bool:
        shown.extend(pages_of(driver.run))
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            with contextlib.suppress(ProcessLookupError, FileNotFoundError):  # it has just ended
                shown.append(path.read_text(errors="replace"))
        return (driver.run / "result.json").exists()

    # more often, the watch would take the driver's CPU
    await asyncio.to_thread(driver.wait_until, watch, every_s=1.0)
    assert await asyncio.to_thread(driver.wait) == 0, driver.log()

    shown += files_in(tmp_path)
    assert json.loads((driver.run / "result.json").read_text())["sessions"] == 3
    assert any("spark.sql.redaction.options.regex" in page for page in shown)
    assert [text for text in shown if "battery" in text or "not yet valid" in text] == []


def files_in(folder: Path) -> list[str]:
    return [path.read_bytes().decode(errors="replace") for path in folder.rglob("*") if path.is_file()]


def pages_of(run: Path) -> list[str]:
    """What Spark's own pages say of a run at this moment."""
    try:
        driver: dict[str, Any] = json.loads((run / "driver.json").read_text())
        base = f"{driver['ui']}/api/v1/applications/{driver['application']}"
        found = []
        for page in (f"{base}/environment", f"{base}/sql?details=true", f"{driver['ui']}/StreamingQuery/"):
            with urllib.request.urlopen(page, timeout=5) as answer:
                found.append(answer.read().decode())
        return found
    except (OSError, ValueError):
        return []  # not there yet, or no longer


async def test_a_job_that_is_not_let_in_says_why(
    secured_kafka: SecuredKafka, names: Names, tmp_path: Path, start_driver: StartDriver
) -> None:
    """At once, in one sentence."""
    access = secured_kafka.by_secret("SCRAM-SHA-512", "spark", "wrong")
    driver = start_driver(tmp_path / "run", request(access, names, tmp_path))

    assert await asyncio.to_thread(driver.wait) == 1
    error = json.loads((driver.run / "error.json").read_text())
    assert error["condition"] == "KafkaDenied"
    assert error["message"].startswith("Kafka refuses the user or the password: user 'spark'")
