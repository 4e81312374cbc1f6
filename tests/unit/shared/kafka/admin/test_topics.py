"""The settings with which Baton creates its topics."""

from __future__ import annotations

import pytest
from aiokafka.protocol.admin import DescribeConfigsRequest

from shared.kafka.admin import topics
from shared.kafka.admin.catalog import TopicSpec
from shared.kafka.admin.topics import (
    MAX_RECORD_BYTES,
    checkpoints_topic,
    ensure_topics,
    events_topic,
    fragments_topics,
    history_topic,
    list_topics,
    queue_log_topic,
    queue_topic,
    rejected_topic,
    sessions_topic,
)
from shared.kafka.connect.cluster import Cluster
from shared.model.names import Names
from tests.fakes.kafka_admin import AdministeredKafka
from tests.fakes.virtual_time import virtual_time

NAMES = Names()
DAY_MS = 86_400_000
ENDLESS = {"retention.ms": "-1", "retention.bytes": "-1"}
BROKER_TIME = {"message.timestamp.type": "LogAppendTime"}
LARGE = {"max.message.bytes": str(MAX_RECORD_BYTES)}
SMALL_SEGMENTS = {"segment.bytes": str(16 * 1024**2)}
SETTINGS: dict[str, dict[str, str]] = {
    NAMES.fragments(0): {"retention.ms": "3600000"} | BROKER_TIME | LARGE,
    NAMES.fragments(1): {"retention.ms": "3600000"} | BROKER_TIME | LARGE,
    NAMES.sessions("default"): {"retention.ms": "-1"} | LARGE,
    NAMES.checkpoints("default"): ENDLESS | LARGE | SMALL_SEGMENTS,
    NAMES.events: {"retention.ms": str(7 * DAY_MS)},
    NAMES.history: {
        "retention.ms": "7200000",
        "retention.bytes": str(64 * 1024**2),
        "segment.ms": "1800000",
    }
    | SMALL_SEGMENTS,
    NAMES.rejected: {
        "retention.ms": str(5 * DAY_MS),
        "retention.bytes": str(1024**3),
        "segment.ms": str(DAY_MS),
    }
    | BROKER_TIME,
    NAMES.queue("mail"): ENDLESS | BROKER_TIME | LARGE,
    NAMES.queue_log("mail"): ENDLESS | BROKER_TIME | LARGE | SMALL_SEGMENTS,
}
PARTITIONS = {NAMES.sessions("default"): 2, NAMES.checkpoints("default"): 2, NAMES.queue("mail"): 4}


def every_topic() -> list[TopicSpec]:
    """Made anew by each test: what a module makes when it is imported is the same under every mutant."""
    return [
        *fragments_topics(NAMES, 2, 3_600_000),
        sessions_topic(NAMES, "default", 2, -1),
        checkpoints_topic(NAMES, "default", 2),
        events_topic(NAMES),
        history_topic(NAMES),
        rejected_topic(NAMES),
        queue_topic(NAMES, "mail", 4),
        queue_log_topic(NAMES, "mail"),
    ]


@pytest.fixture
def kafka(monkeypatch: pytest.MonkeyPatch) -> AdministeredKafka:
    """The brokers that `ensure_topics` asks."""
    kafka = AdministeredKafka()
    monkeypatch.setattr(topics, "Cluster", lambda _: Cluster("fake:1", kafka.connect))
    return kafka


@virtual_time
async def test_each_topic_is_created_with_the_settings_that_it_needs(kafka: AdministeredKafka) -> None:
    """What lies below a commit may be deleted, but by nobody else where Baton deletes; sessions end by the
    broker's time."""
    await ensure_topics("kafka", every_topic(), 1)

    both = {"cleanup.policy": "delete", "min.insync.replicas": "1"}
    assert kafka.settings == {topic: both | settings for topic, settings in SETTINGS.items()}
    counts = {topic: sum(name == topic for name, _ in kafka.partitions) for topic in SETTINGS}
    assert counts == dict.fromkeys(SETTINGS, 1) | PARTITIONS
    assert sorted(await list_topics("kafka")) == sorted(SETTINGS)


@pytest.mark.parametrize(("replication", "expected"), [(1, "1"), (2, "2"), (3, "2"), (5, "2")])
@virtual_time
async def test_an_acknowledged_record_is_on_two_brokers(
    kafka: AdministeredKafka, replication: int, expected: str
) -> None:
    """With Kafka's default of 1, a leader that is alone acknowledges, and what it has is lost with it."""
    created = await ensure_topics("kafka", every_topic(), replication)

    assert {settings["min.insync.replicas"] for settings in kafka.settings.values()} == {expected}
    assert created == [*kafka.settings] == [spec.name for spec in every_topic()]


@pytest.mark.parametrize(
    ("min_insync", "replicas", "replication", "is_weak"),
    [(1, 3, 3, True), (1, 3, 1, True), (1, 1, 3, True), (2, 3, 3, False), (1, 1, 1, False), (3, 3, 3, False)],
)
@virtual_time
async def test_an_existing_topic_that_acknowledges_too_early_is_reported(
    kafka: AdministeredKafka,
    caplog: pytest.LogCaptureFixture,
    min_insync: int,
    replicas: int,
    replication: int,
    is_weak: bool,
) -> None:
    """Baton never alters a topic, so an operator must; more replicas than configured count as well."""
    kafka.defaults = {topics.MIN_INSYNC: str(min_insync)}
    for spec in every_topic():
        kafka.create(spec.name).replicas = replicas

    await ensure_topics("kafka", every_topic(), replication)

    found = [record for record in caplog.records if record.message == "min.insync.replicas too low"]
    assert len(found) == is_weak
    for record in found:
        fields = vars(record)
        assert (fields["count"], fields["needed"]) == (len(every_topic()), 2)
        assert "fragments.0000 has 1" in fields["topics"]


@virtual_time
async def test_a_forbidden_description_is_no_failure(kafka: AdministeredKafka) -> None:
    """It serves a warning only, and a broker may forbid it."""
    kafka.refuse(DescribeConfigsRequest, 29)
    kafka.create(NAMES.events)

    assert await ensure_topics("kafka", [events_topic(NAMES)], 3) == []


def test_trimmed_checkpoints_leave_the_disk_soon() -> None:
    """Kafka deletes whole segments only, and never the newest one of a partition: with its default of 1 GB
    every stream would keep that much, however small its checkpoint is."""
    configs = checkpoints_topic(Names(), "default", 288).configs

    assert int(configs.get("segment.bytes", 1024**3)) <= 32 * 1024**2
    assert int(configs["segment.bytes"]) >= 4 * MAX_RECORD_BYTES
