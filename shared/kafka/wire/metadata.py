"""Kafka's Metadata in version 12: aiokafka's stops at 5, before topics had ids and leaders epochs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from aiokafka.protocol.api import Response
from aiokafka.protocol.struct import Struct
from aiokafka.protocol.types import (
    Boolean,
    CompactArray,
    CompactString,
    Int16,
    Int32,
    Schema,
    TaggedFields,
)

from shared.kafka.wire.flexible import FlexibleRequest, Uuid

ANY_ID = bytes(16)


class MetadataResponse(Response):  # type: ignore[misc]
    """What the brokers know of each other and of the requested topics."""

    API_KEY = 3
    API_VERSION = 12
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        (
            "brokers",
            CompactArray(
                ("node_id", Int32),
                ("host", CompactString()),
                ("port", Int32),
                ("rack", CompactString()),
                ("tags", TaggedFields),
            ),
        ),
        ("cluster_id", CompactString()),
        ("controller_id", Int32),
        (
            "topics",
            CompactArray(
                ("error_code", Int16),
                ("name", CompactString()),
                ("topic_id", Uuid),
                ("is_internal", Boolean),
                (
                    "partitions",
                    CompactArray(
                        ("error_code", Int16),
                        ("partition", Int32),
                        ("leader", Int32),
                        ("leader_epoch", Int32),
                        ("replicas", CompactArray(Int32)),
                        ("in_sync", CompactArray(Int32)),
                        ("offline", CompactArray(Int32)),
                        ("tags", TaggedFields),
                    ),
                ),
                ("authorized_operations", Int32),
                ("tags", TaggedFields),
            ),
        ),
        ("tags", TaggedFields),
    )


class MetadataRequest(FlexibleRequest, Struct):  # type: ignore[misc]
    """Asks about topics, by name; creates none. None: about all."""

    API_KEY = 3
    API_VERSION = 12
    RESPONSE_TYPE = MetadataResponse
    SCHEMA = Schema(
        ("topics", CompactArray(("topic_id", Uuid), ("name", CompactString()), ("tags", TaggedFields))),
        ("allow_auto_topic_creation", Boolean),
        ("include_authorized_operations", Boolean),
        ("tags", TaggedFields),
    )

    def __init__(self, topics: Sequence[str] | None) -> None:
        named: Any = None if topics is None else [(ANY_ID, topic, {}) for topic in topics]
        super().__init__(named, False, False, {})


@dataclass(frozen=True, slots=True)
class Leader:
    """Where a partition is read and written: the topic's id, the leader's node id (-1: none) and epoch."""

    topic_id: bytes
    node: int
    epoch: int


@dataclass(frozen=True, slots=True)
class Metadata:
    """Brokers: node id → host and port. Leaders of each topic by partition. `missing`: topic → error code.

    `controller`: the broker that creates topics, or forwards them to what does; -1: none is known.
    """

    brokers: dict[int, tuple[str, int]]
    controller: int
    topics: dict[str, dict[int, Leader]]
    missing: dict[str, int]
    cluster_id: str | None


def read_metadata(response: MetadataResponse) -> Metadata:
    """The response's content."""
    topics, missing = {}, {}
    for error, name, topic_id, _, partitions, *_ in response.topics:
        if error:
            missing[name] = error
        else:
            topics[name] = {
                number: Leader(topic_id, leader, epoch) for _, number, leader, epoch, *_ in partitions
            }
    brokers = {node: (host, port) for node, host, port, *_ in response.brokers}
    return Metadata(brokers, response.controller_id, topics, missing, response.cluster_id)
