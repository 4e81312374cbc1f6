"""Which topics a cluster has, with their settings: lists, creates, describes and changes them.

`topics.py` says which ones Baton has. A call asks about all its topics in one request.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from aiokafka.protocol.admin import CreateTopicsRequest, DeleteTopicsRequest, DescribeConfigsRequest

from shared.errors import BatonError, InvalidInput, KafkaUnavailable
from shared.kafka.connect.cluster import Cluster
from shared.kafka.connect.refusals import NO_RIGHT, reason_of, refusal
from shared.kafka.wire.alter_configs import TOPIC, ChangeSettings
from shared.kafka.wire.metadata import MetadataRequest

CREATE_TIMEOUT_S = 30.0
"""A broker may need seconds for thousands of topics."""
SHOWN_FAULTS = 3
_OF_THE_TOPIC: Final = 1
"""The source of a setting that was made for this topic; the others are defaults of the broker."""

# error codes of Kafka
_UNKNOWN, _TIMED_OUT, _NO_RIGHT_TO_TOPIC, _EXISTS, _NOT_CONTROLLER = 3, 7, 29, 36, 41


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSpec:
    """A topic to create."""

    name: str
    partitions: int = 1
    configs: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """A setting that is in force; `is_own`: it was made for this topic, and is no default of the broker."""

    value: str
    is_own: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Replicas:
    """Of a partition: its leader's node id (-1: none), how many replicas it has, how many are in step."""

    leader: int
    replicas: int
    in_sync: int


async def hear_from(cluster: Cluster, node: int) -> None:
    """Returns if this broker answers. Raises KafkaUnavailable."""
    await cluster.request(node, "ask", MetadataRequest([]))


async def list_all(cluster: Cluster) -> list[str]:
    """The names of all topics. Raises KafkaUnavailable."""
    answer = await cluster.ask_any(MetadataRequest(None))
    return [name for _, name, *_ in answer.topics]


async def read_replicas(cluster: Cluster, topics: Collection[str]) -> dict[str, list[Replicas]]:
    """The replicas of each partition of a topic; without the topics that do not exist.

    Raises KafkaUnavailable.
    """
    answer = await cluster.ask_any(MetadataRequest(sorted(topics)))
    return {
        name: [
            Replicas(leader=leader, replicas=len(replicas), in_sync=len(in_sync))
            for _, _, leader, _, replicas, in_sync, *_ in partitions
        ]
        for error, name, _, _, partitions, *_ in answer.topics
        if not error and partitions
    }


async def count_replicas(cluster: Cluster, topics: Collection[str]) -> dict[str, list[int]]:
    """How many replicas each partition of a topic has; without the topics that do not exist.

    Raises KafkaUnavailable.
    """
    found = await read_replicas(cluster, topics)
    return {name: [one.replicas for one in partitions] for name, partitions in found.items()}


async def is_missing(cluster: Cluster, topic: str) -> bool:
    """Whether a broker says that there is no such topic. Raises KafkaUnavailable."""
    answer = await cluster.ask_any(MetadataRequest([topic]))
    return any(error == _UNKNOWN for error, *_ in answer.topics)


async def count_partitions(cluster: Cluster, topic: str) -> int:
    """The topic's number of partitions. Raises KafkaUnavailable, also while the topic does not exist yet."""
    replicas = await count_replicas(cluster, [topic])
    if topic not in replicas:
        raise KafkaUnavailable(f"there is no topic {topic} yet")
    return len(replicas[topic])


async def create_topics(
    cluster: Cluster, specs: Iterable[TopicSpec], replication: int, *, all_or_none: bool = False
) -> dict[str, bool]:
    """Creates the topics; says of each whether it is new. Existing ones stay as they are.

    Without the right to create topics it suffices that they exist. `all_or_none`: if Kafka would reject one,
    none is created, and if it rejects one all the same, the others are deleted again. Raises InvalidInput
    when Kafka rejects a topic, KafkaUnavailable.
    """
    rows: list[Any] = [
        (spec.name, spec.partitions, replication, [], [*spec.configs.items()]) for spec in specs
    ]
    if not all_or_none:
        return await _create(cluster, rows, is_trial=False)
    await _create(cluster, rows, is_trial=True)
    made: list[str] = []
    try:
        return await _create(cluster, rows, is_trial=False, made=made)
    except BatonError:
        if made:
            with contextlib.suppress(KafkaUnavailable):
                await delete_topics(cluster, made)
        raise


async def _create(
    cluster: Cluster, rows: list[Any], *, is_trial: bool, made: list[str] | None = None
) -> dict[str, bool]:
    """As `create_topics`; `made` gets what it creates, even if it raises. `is_trial`: creates nothing."""
    # the broker's bound is below ours, so that its answer is the one we get
    request = CreateTopicsRequest(rows, int(CREATE_TIMEOUT_S * 800), is_trial)
    answer = await cluster.ask_controller(request, CREATE_TIMEOUT_S)
    if any(row[1] == _NOT_CONTROLLER for row in answer.topic_errors):
        await cluster.refresh()
        answer = await cluster.ask_controller(request, CREATE_TIMEOUT_S)
    if made is not None:
        made += [name for name, code, *_ in answer.topic_errors if code == 0]
    faults = [row for row in answer.topic_errors if row[1] not in (0, _EXISTS)]
    if denied := {name for name, code, *_ in faults if code in NO_RIGHT}:
        # an operator may have created them, and given no right to
        denied -= (await count_replicas(cluster, denied)).keys()
        if denied:
            raise refusal(f"topics cannot be created, e.g. {min(denied)}", _NO_RIGHT_TO_TOPIC)
        faults = [row for row in faults if row[1] not in NO_RIGHT]
    if any(code in (_NOT_CONTROLLER, _TIMED_OUT) for _, code, *_ in faults):
        raise KafkaUnavailable("topics cannot be created", cause=_shown(faults))
    if faults:
        raise InvalidInput(f"Kafka rejects topics: {_shown(faults)}")
    return {name: code == 0 for name, code, *_ in answer.topic_errors}


async def delete_topics(cluster: Cluster, names: Collection[str]) -> None:
    """Deletes the topics; one that does not exist is no fault. Raises KafkaUnavailable."""
    request = DeleteTopicsRequest(sorted(names), int(CREATE_TIMEOUT_S * 800))
    answer = await cluster.ask_controller(request, CREATE_TIMEOUT_S)
    for name, code in answer.topic_error_codes:
        if code not in (0, _UNKNOWN):
            raise refusal(f"topic {name} cannot be deleted", code)


async def read_settings(
    cluster: Cluster, topics: Collection[str], names: Collection[str] | None = None
) -> dict[str, dict[str, Setting]]:
    """The settings of each topic by name, as they are in force; these, or all. Raises KafkaUnavailable."""
    wanted = None if names is None else list(names)
    answer = await cluster.ask_any(DescribeConfigsRequest([(TOPIC, topic, wanted) for topic in topics]))
    found: dict[str, dict[str, Setting]] = {}
    for code, message, _, topic, entries in answer.resources:
        if code:
            raise refusal(f"settings of {topic} cannot be read: {message or 'refused'}", code)
        found[topic] = {
            name: Setting(value=value, is_own=source == _OF_THE_TOPIC)
            for name, value, _, source, *_ in entries
        }
    return found


async def change_settings(cluster: Cluster, topic: str, changes: Mapping[str, str]) -> None:
    """Changes these settings of the topic; the brokers know them a moment later.

    Raises InvalidInput when Kafka rejects one, KafkaUnavailable, KafkaDenied without the right to.
    """
    answer = await cluster.ask_any(ChangeSettings(topic, changes))
    code, message, *_ = answer.resources[0]
    if code in NO_RIGHT:
        raise refusal(f"the settings of {topic} cannot be changed", code)
    if code:
        raise InvalidInput(f"Kafka rejects the settings: {message or reason_of(code)}")


def _shown(faults: Collection[Any]) -> str:
    """The first topics that Kafka refuses, each with the reason."""
    shown = [f"{name}: error {code} {(message or [''])[0] or ''}" for name, code, *message in faults]
    return "; ".join(one.rstrip() for one in shown[:SHOWN_FAULTS])
