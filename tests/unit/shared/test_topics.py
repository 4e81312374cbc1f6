"""The settings with which Baton creates its topics."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka.admin import NewTopic
from aiokafka.protocol.admin import DescribeConfigsResponse_v0

from shared.kafka import topics
from shared.kafka.topics import (
    MAX_RECORD_BYTES,
    checkpoints_topic,
    ensure_topics,
    events_topic,
    fragments_topics,
    rejected_topic,
    sessions_topic,
)
from shared.model.names import Names

NAMES = Names()
EVERY_TOPIC = [
    *fragments_topics(NAMES, 2, 3_600_000),
    sessions_topic(NAMES, "default", 2, -1),
    checkpoints_topic(NAMES, "default", 2),
    events_topic(NAMES),
    rejected_topic(NAMES),
]
EXISTS = 36


class InMemoryAdmin:
    """The calls of aiokafka's admin client that create and describe topics, without a broker.

    `existing` has the `min.insync.replicas` and the number of replicas of each topic that exists already.
    """

    def __init__(self, existing: dict[str, tuple[int, int]]) -> None:
        self.existing = existing
        self.created: list[NewTopic] = []

    async def create_topics(self, wanted: list[NewTopic]) -> Any:
        """Creates those that do not exist."""
        self.created += [topic for topic in wanted if topic.name not in self.existing]
        codes = [(topic.name, EXISTS if topic.name in self.existing else 0) for topic in wanted]
        return SimpleNamespace(topic_errors=codes)

    async def describe_topics(self, names: list[str]) -> list[dict[str, Any]]:
        """Their partitions with the replicas of each."""
        return [
            {"topic": name, "error_code": 0, "partitions": [{"replicas": [*range(self.existing[name][1])]}]}
            for name in names
        ]

    async def describe_configs(self, resources: list[Any]) -> list[DescribeConfigsResponse_v0]:
        """Their `min.insync.replicas`."""
        described = []
        for one in resources:
            config = (topics.MIN_INSYNC, str(self.existing[one.name][0]), False, False, False)
            described.append((0, None, 2, one.name, [config]))
        return [DescribeConfigsResponse_v0(0, described)]


@pytest.fixture
def admin(monkeypatch: pytest.MonkeyPatch) -> InMemoryAdmin:
    """The admin client that `ensure_topics` uses."""
    admin = InMemoryAdmin({})

    @contextlib.asynccontextmanager
    async def opened(_: str) -> AsyncIterator[InMemoryAdmin]:
        yield admin

    monkeypatch.setattr(topics, "admin_client", opened)
    return admin


@pytest.mark.parametrize(("replication", "expected"), [(1, "1"), (2, "2"), (3, "2"), (5, "2")])
async def test_an_acknowledged_record_is_on_two_brokers(
    admin: InMemoryAdmin, replication: int, expected: str
) -> None:
    """With Kafka's default of 1, a leader that is alone acknowledges, and what it has is lost with it."""
    await ensure_topics("kafka", EVERY_TOPIC, replication)

    assert {topic.topic_configs["min.insync.replicas"] for topic in admin.created} == {expected}
    assert len(admin.created) == len(EVERY_TOPIC)


@pytest.mark.parametrize(
    ("min_insync", "replicas", "replication", "is_weak"),
    [(1, 3, 3, True), (1, 3, 1, True), (1, 1, 3, True), (2, 3, 3, False), (1, 1, 1, False), (3, 3, 3, False)],
)
async def test_an_existing_topic_that_acknowledges_too_early_is_reported(
    admin: InMemoryAdmin,
    caplog: pytest.LogCaptureFixture,
    min_insync: int,
    replicas: int,
    replication: int,
    is_weak: bool,
) -> None:
    """Baton never alters a topic, so an operator must; more replicas than configured count as well."""
    admin.existing = {topic.name: (min_insync, replicas) for topic in EVERY_TOPIC}

    await ensure_topics("kafka", EVERY_TOPIC, replication)

    found = [record for record in caplog.records if record.message == "min.insync.replicas too low"]
    assert len(found) == is_weak
    for record in found:
        fields = vars(record)
        assert (fields["count"], fields["needed"]) == (len(EVERY_TOPIC), 2)
        assert "fragments.0000 has 1" in fields["topics"]


def test_trimmed_checkpoints_leave_the_disk_soon() -> None:
    """Kafka deletes whole segments only, and never the newest one of a partition: with its default of 1 GB
    every stream would keep that much, however small its checkpoint is."""
    configs = checkpoints_topic(Names(), "default", 288).configs

    assert int(configs.get("segment.bytes", 1024**3)) <= 32 * 1024**2
    assert int(configs["segment.bytes"]) >= 4 * MAX_RECORD_BYTES
    assert (configs["retention.ms"], configs["retention.bytes"]) == ("-1", "-1")
