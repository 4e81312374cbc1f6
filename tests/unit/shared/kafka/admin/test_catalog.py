"""Topics and their settings: what each answer of the brokers means for the caller."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
from aiokafka.protocol.admin import CreateTopicsRequest, DeleteTopicsRequest

from shared.errors import BatonError, InvalidInput, KafkaDenied, KafkaUnavailable
from shared.kafka.admin.catalog import (
    Replicas,
    Setting,
    TopicSpec,
    change_settings,
    count_partitions,
    count_replicas,
    create_topics,
    delete_topics,
    hear_from,
    is_missing,
    list_all,
    read_replicas,
    read_settings,
)
from shared.kafka.connect.cluster import Cluster
from tests.fakes.kafka_admin import AdministeredKafka
from tests.fakes.virtual_time import virtual_time

SPECS = [TopicSpec(name="old"), TopicSpec(name="new", partitions=3, configs={"retention.ms": "5"})]
NOT_CONTROLLER, TIMED_OUT, NO_RIGHT = 41, 7, 29


@contextlib.asynccontextmanager
async def administering(brokers: int = 1) -> AsyncIterator[tuple[AdministeredKafka, Cluster]]:
    """Brokers that have the topic `old`, with one partition."""
    kafka = AdministeredKafka(brokers)
    kafka.create("old")
    kafka.defaults = {"retention.ms": "7", "segment.ms": "8"}
    async with Cluster("fake:1", kafka.connect) as cluster:
        yield kafka, cluster


@virtual_time
async def test_missing_topics_are_created_with_their_settings_by_the_controller() -> None:
    """Existing ones stay as they are, and the caller learns which are new."""
    async with administering(brokers=3) as (kafka, cluster):
        kafka.controller = 2
        is_new = await create_topics(cluster, SPECS, 2)
        replicas = await count_replicas(cluster, ["old", "new", "none"])
        settings = await read_settings(cluster, ["old", "new"])
        one_setting = await read_settings(cluster, ["new"], ["segment.ms"])
        topics = await list_all(cluster)

    assert is_new == {"old": False, "new": True}
    assert [node for node, name in kafka.asked if name == "CreateTopicsRequest"] == [2]
    assert replicas == {"old": [1], "new": [2, 2, 2]}
    assert sorted(topics) == ["new", "old"]
    default = {name: Setting(value=value, is_own=False) for name, value in kafka.defaults.items()}
    assert settings == {
        "old": default,
        "new": default | {"retention.ms": Setting(value="5", is_own=True)},
    }
    assert one_setting == {"new": {"segment.ms": default["segment.ms"]}}


@virtual_time
async def test_a_topic_that_is_deleted_is_missing() -> None:
    """To delete one that there is not is no fault; a refusal is."""
    async with administering() as (kafka, cluster):
        kafka.create("other")
        before = [await is_missing(cluster, topic) for topic in ("old", "other", "none")]
        await delete_topics(cluster, ["old", "none"])
        kafka.refuse(DeleteTopicsRequest, 3)
        await delete_topics(cluster, ["none"])
        after = [await is_missing(cluster, topic) for topic in ("old", "other")]
        kafka.refuse(DeleteTopicsRequest, NO_RIGHT)
        with pytest.raises(KafkaDenied, match="topic other cannot be deleted"):
            await delete_topics(cluster, ["other"])

    assert before == [False, False, True]
    assert after == [True, False]


@virtual_time
async def test_replicas_are_told_with_their_leader() -> None:
    """Also while there is none, or some are not in step."""
    async with administering() as (kafka, cluster):
        kafka.create("two").replicas = 3
        kafka.create("two", 1, leader=-1)
        found = await read_replicas(cluster, ["two", "old", "none"])

    alone = Replicas(leader=1, replicas=1, in_sync=0)
    assert found == {
        "old": [alone],
        "two": [Replicas(leader=1, replicas=3, in_sync=0), replace(alone, leader=-1)],
    }


@virtual_time
async def test_a_broker_that_answers_is_heard() -> None:
    """Of two, the one that was asked."""
    async with administering(brokers=2) as (kafka, cluster):
        await cluster.refresh()
        kafka.muted.add(2)
        await hear_from(cluster, 1)
        with pytest.raises(KafkaUnavailable):
            await hear_from(cluster, 2)


@virtual_time
async def test_a_new_controller_is_found() -> None:
    """The one before answers that it is none any more."""
    async with administering(brokers=2) as (kafka, cluster):
        await cluster.refresh()
        kafka.controller = 2
        is_new = await create_topics(cluster, SPECS, 1)

    assert is_new == {"old": False, "new": True}
    assert [node for node, name in kafka.asked if name == "CreateTopicsRequest"] == [1, 2]


@virtual_time
async def test_without_a_controller_no_topic_is_created() -> None:
    """That passes, so callers try again."""
    async with administering() as (kafka, cluster):
        kafka.controller = -1
        with pytest.raises(KafkaUnavailable, match="the cluster has no controller"):
            await create_topics(cluster, SPECS, 1)
        kafka.controller = 1
        assert await create_topics(cluster, SPECS, 1) == {"old": False, "new": True}


@pytest.mark.parametrize(
    ("codes", "failure"),
    [
        ([NOT_CONTROLLER, NOT_CONTROLLER], KafkaUnavailable),
        ([TIMED_OUT], KafkaUnavailable),
        *(([code], InvalidInput) for code in (17, 37, 38, 39, 40, 42, 44, 89)),
    ],
)
@virtual_time
async def test_a_refused_topic_fails_with_kafkas_reason(codes: list[int], failure: type[BatonError]) -> None:
    """What passes may be tried again; anything else is wrong with the topic."""
    async with administering() as (kafka, cluster):
        kafka.refuse(CreateTopicsRequest, *codes)
        with pytest.raises(failure, match=f"old: error {codes[-1]} refused; new: error {codes[-1]} refused"):
            await create_topics(cluster, SPECS, 1)


@pytest.mark.parametrize("is_race", [False, True])
@virtual_time
async def test_of_topics_that_belong_together_all_are_created_or_none(is_race: bool) -> None:
    """Names are checked first; what is rejected all the same takes with it what was created beside it."""
    specs = [TopicSpec(name="queue.mail_log"), TopicSpec(name="queue.mail_log.log")]
    async with administering() as (kafka, cluster):
        if is_race:
            kafka.rejected.add("queue.mail_log")
        else:
            kafka.create("queue.mail.log")
        before = set(kafka.partitions)
        with pytest.raises(InvalidInput, match="collides"):
            await create_topics(cluster, specs, 1, all_or_none=True)
        left = set(kafka.partitions)
        kafka.rejected.clear()
        kafka.partitions.pop(("queue.mail.log", 0), None)
        made = await create_topics(cluster, [*specs, TopicSpec(name="old")], 1, all_or_none=True)

    assert left == before
    assert made == {"queue.mail_log": True, "queue.mail_log.log": True, "old": False}


@virtual_time
async def test_changed_settings_leave_the_others() -> None:
    """Whoever changes some need not know the others."""
    async with administering() as (kafka, cluster):
        kafka.settings["old"] = {"retention.ms": "1"}
        await change_settings(cluster, "old", {"segment.ms": "2"})

    assert kafka.settings == {"old": {"retention.ms": "1", "segment.ms": "2"}}


@pytest.mark.parametrize("exists", [True, False])
@virtual_time
async def test_without_the_right_to_create_topics_it_suffices_that_they_exist(exists: bool) -> None:
    """Else it may be granted later, so another try makes sense."""
    async with administering() as (kafka, cluster):
        kafka.refuse(CreateTopicsRequest, NO_RIGHT)
        if exists:
            kafka.create("new")
            assert await create_topics(cluster, SPECS, 1) == {"old": False, "new": False}
        else:
            with pytest.raises(KafkaDenied, match=r"e\.g\. new.*a right is missing"):
                await create_topics(cluster, SPECS, 1)


@virtual_time
async def test_a_topic_that_does_not_exist_yet_has_no_partitions() -> None:
    """Another process may be about to create it."""
    async with administering() as (_, cluster):
        assert await count_partitions(cluster, "old") == 1
        with pytest.raises(KafkaUnavailable, match="there is no topic new yet"):
            await count_partitions(cluster, "new")
