"""Whatever a broker answers to a question, the caller gets a whole answer or one error, soon, and goes on.

Transactions and sent records have sweeps of their own (`send/test_transactional.py`, `send/test_sender.py`).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import pytest
from aiokafka.protocol.admin import CreateTopicsRequest, DeleteRecordsRequest, DescribeConfigsRequest
from aiokafka.protocol.commit import OffsetCommitRequest, OffsetFetchRequest
from aiokafka.protocol.offset import OffsetRequest

from shared.errors import InvalidInput, KafkaDenied, KafkaUnavailable
from shared.kafka.admin.catalog import TopicSpec, change_settings, create_topics, read_settings
from shared.kafka.admin.committed import Committed, KafkaGroup
from shared.kafka.connect.cluster import MOVED, Cluster
from shared.kafka.connect.coordinators import LOADING
from shared.kafka.connect.refusals import NO_RIGHT, reason_of
from shared.kafka.read.offsets import LATEST, delete_records, list_offsets
from shared.kafka.read.ranges import read_range
from shared.kafka.wire.alter_configs import ChangeSettings
from shared.kafka.wire.fetch import FetchRequest
from shared.kafka.wire.metadata import MetadataRequest
from shared.kafka.wire.offset_delete import OffsetDeleteRequest
from shared.kafka.wire.transactions import FindCoordinators
from tests.fakes.kafka import Accident
from tests.fakes.kafka_admin import AdministeredKafka
from tests.fakes.virtual_time import virtual_time

A, B = ("a", 0), ("b", 0)
CODES = [-1, *range(1, 140)]
"""Every error code of Kafka, and some that it does not have yet."""
LONG_S = 60.0
SPECS = [TopicSpec(name="a"), TopicSpec(name="new")]
OUT_OF_RANGE, TIMED_OUT, EXISTS, NOT_CONTROLLER, UNKNOWN_GROUP = 1, 7, 36, 41, 69
UNKNOWN_MEMBER = 25
"""What only a member may commit for a group that has some."""


async def values(cluster: Cluster) -> list[bytes]:
    return [record.value async for record in read_range(cluster, A, 0, 1, is_committed=False)]


async def settings_of_a(cluster: Cluster) -> str:
    return (await read_settings(cluster, ["a"], ["x"]))["a"]["x"].value


async def delete_offset(cluster: Cluster) -> object:
    await KafkaGroup(cluster, "g").delete([B])
    return (await KafkaGroup(cluster, "g").committed([B]))[B].offset


@dataclass(frozen=True)
class Question:
    """`ask` gives `answer`; `awaited`: the errors that pass. The others are raised, `harmless` ones not."""

    ask: Callable[[Cluster], Awaitable[object]]
    answer: object
    awaited: frozenset[int] = frozenset()
    harmless: frozenset[int] = frozenset()


QUESTIONS: dict[type, Question] = {
    OffsetRequest: Question(lambda c: list_offsets(c, [A, B], LATEST), {A: 2, B: 2}, MOVED),
    # the leader has deleted, and does not wait for its followers
    DeleteRecordsRequest: Question(
        lambda c: delete_records(c, {A: 0, B: 0}), None, MOVED, frozenset({TIMED_OUT})
    ),
    FetchRequest: Question(values, [b"0", b"1"], MOVED),
    FindCoordinators: Question(lambda c: KafkaGroup(c, "g").committed([A]), {A: Committed(1, "m")}, LOADING),
    OffsetFetchRequest: Question(
        lambda c: KafkaGroup(c, "g").committed([A]), {A: Committed(1, "m")}, LOADING
    ),
    OffsetCommitRequest: Question(lambda c: KafkaGroup(c, "g").commit(A, 1, "m"), None, LOADING),
    OffsetDeleteRequest: Question(delete_offset, -1, LOADING, frozenset({UNKNOWN_GROUP})),
    CreateTopicsRequest: Question(
        lambda c: create_topics(c, SPECS, 1),
        {"a": False, "new": True},
        frozenset({NOT_CONTROLLER}),
        frozenset({EXISTS}),
    ),
    DescribeConfigsRequest: Question(settings_of_a, "1"),
    ChangeSettings: Question(lambda c: change_settings(c, "a", {"x": "1"}), None),
}


OTHER_WORDS: dict[tuple[type, int], list[str]] = {
    (FetchRequest, OUT_OF_RANGE): ["the log ends before offset 0"],
    (OffsetCommitRequest, UNKNOWN_MEMBER): ["has members; stop them first"],
    **{(ChangeSettings, code): ["rejects the settings: refused"] for code in CODES},
    **{(CreateTopicsRequest, code): ["a right is missing"] for code in NO_RIGHT},
}


@contextlib.asynccontextmanager
async def asking() -> AsyncIterator[tuple[AdministeredKafka, Cluster]]:
    """Two records in A on broker 1, and in B on broker 2; the group `g` has committed 1 in A."""
    kafka = AdministeredKafka(2)
    kafka.create("a").append(b"0", b"1")
    kafka.create("b", leader=2).append(b"0", b"1")
    kafka.committed["g", A] = 1, "m"
    kafka.settings["a"] = {"x": "1"}
    async with Cluster("fake:1", kafka.connect) as cluster:
        yield kafka, cluster


def refuse(kafka: AdministeredKafka, kind: type, code: int) -> None:
    """The next request of this kind is answered by the code; of partitions, only A."""
    if kind in (OffsetRequest, FetchRequest):
        kafka.partitions[A].refusals.append(code)
    else:
        kafka.refuse(kind, code)


@pytest.mark.parametrize("kind", QUESTIONS)
@virtual_time
async def test_every_error_is_awaited_or_raised_with_its_reason(kind: type) -> None:
    """One that passes is asked again; a missing right is named as such; and the next question is answered."""
    question = QUESTIONS[kind]
    found: dict[int, str] = {}
    for code in CODES:
        async with asking() as (kafka, cluster), asyncio.timeout(LONG_S):
            refuse(kafka, kind, code)
            try:
                answer = await question.ask(cluster)
                found[code] = "awaited" if answer == question.answer else "answered"
            except (KafkaUnavailable, InvalidInput) as error:
                names = [reason_of(code), f"error {code} refused", *OTHER_WORDS.get((kind, code), ())]
                is_named = any(name in error.detail for name in names)
                found[code] = type(error).__name__ if is_named else error.detail
            assert (await question.ask(cluster) == question.answer) or kind is CreateTopicsRequest

    assert found == {code: expected_of(kind, code) for code in CODES}


def expected_of(kind: type, code: int) -> str:
    question = QUESTIONS[kind]
    if code in question.awaited:
        return "awaited"
    if code in question.harmless:
        return "answered" if kind is CreateTopicsRequest else "awaited"
    is_wrong = kind in (OffsetDeleteRequest, ChangeSettings, CreateTopicsRequest)
    is_wrong |= (kind, code) == (OffsetCommitRequest, UNKNOWN_MEMBER)
    if code in NO_RIGHT:
        return "KafkaDenied"
    if kind is CreateTopicsRequest and code == TIMED_OUT:
        return "KafkaUnavailable"
    return "InvalidInput" if is_wrong else "KafkaUnavailable"


@pytest.mark.parametrize("accident", ["cut before", "cut after", "mute"])
@pytest.mark.parametrize("kind", [MetadataRequest, *QUESTIONS])
@virtual_time
async def test_a_missing_answer_ends_in_bounded_time(kind: type, accident: Accident) -> None:
    """It is unknown what the broker did; the next question is answered over a new connection."""
    question = QUESTIONS[OffsetRequest if kind is MetadataRequest else kind]
    async with asking() as (kafka, cluster), asyncio.timeout(LONG_S):
        kafka.accidents[kind].append(accident)
        with contextlib.suppress(KafkaUnavailable):
            await question.ask(cluster)
        again = await question.ask(cluster)

    assert again == question.answer or kind is CreateTopicsRequest


@virtual_time
async def test_every_error_about_a_topic_concerns_that_topic_alone() -> None:
    """Whatever is wrong with it, or with the broker that was asked, may be over at the next look."""
    for code in CODES:
        async with asking() as (kafka, cluster), asyncio.timeout(LONG_S):
            kafka.topic_errors["a"].extend([code] * 2)
            await cluster.refresh({"a", "b"})
            assert await list_offsets(cluster, [B], LATEST) == {B: 2}
            with contextlib.suppress(KafkaDenied):
                assert await list_offsets(cluster, [A], LATEST) == {A: 2}
            assert await list_offsets(cluster, [A], LATEST) == {A: 2}


@pytest.mark.parametrize("kind", [kind for kind in QUESTIONS if kind is not CreateTopicsRequest])
@virtual_time
async def test_what_a_dead_broker_led_is_found_at_another(kind: type) -> None:
    """Nobody says so: it only does not answer any more."""
    question = QUESTIONS[kind]
    async with asking() as (kafka, cluster), asyncio.timeout(LONG_S):
        kafka.coordinator = 2
        kafka.partitions[A].leader = 2
        await question.ask(cluster)
        kafka.brokers.remove(2)
        kafka.cut(2)
        kafka.coordinator = 1
        for partition in kafka.partitions.values():
            partition.leader, partition.epoch = 1, 1
        with contextlib.suppress(KafkaUnavailable):
            await question.ask(cluster)
        again: Any = await question.ask(cluster)

    assert again == question.answer
