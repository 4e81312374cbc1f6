"""Kafka's transaction requests in the last versions before transactions of version 2 (KIP-890).

aiokafka has them in version 0 only, which has one error for a fenced producer and for a transaction that
timed out. Each answer carries one error code, or one for each partition.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from aiokafka.protocol.api import Response
from aiokafka.protocol.types import (
    Boolean,
    CompactArray,
    CompactString,
    Int8,
    Int16,
    Int32,
    Int64,
    Schema,
    TaggedFields,
)

from shared.kafka.record import Partition
from shared.kafka.wire.flexible import FlexibleStruct

NO_PRODUCER = -1, -1
_TRANSACTION = 1
_TAGS = ("tags", TaggedFields)
_PARTITION_ERRORS = CompactArray(
    ("topic", CompactString()),
    ("partitions", CompactArray(("partition", Int32), ("error_code", Int16), _TAGS)),
    _TAGS,
)


class FoundCoordinators(Response):  # type: ignore[misc]
    API_KEY, API_VERSION = 10, 4
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        (
            "coordinators",
            CompactArray(
                ("key", CompactString()),
                ("node_id", Int32),
                ("host", CompactString()),
                ("port", Int32),
                ("error_code", Int16),
                ("error_message", CompactString()),
                _TAGS,
            ),
        ),
        _TAGS,
    )


class FindCoordinators(FlexibleStruct):
    """Which brokers coordinate these transactional ids, or with `is_group` these Kafka groups."""

    API_KEY, API_VERSION, RESPONSE_TYPE = 10, 4, FoundCoordinators
    SCHEMA = Schema(("key_type", Int8), ("keys", CompactArray(CompactString())), _TAGS)

    def __init__(self, keys: Iterable[str], *, is_group: bool = False) -> None:
        super().__init__(0 if is_group else _TRANSACTION, list(keys), {})


class ProducerId(Response):  # type: ignore[misc]
    API_KEY, API_VERSION = 22, 4
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        ("error_code", Int16),
        ("producer_id", Int64),
        ("producer_epoch", Int16),
        _TAGS,
    )


class InitProducerId(FlexibleStruct):
    """Fences earlier producers of a transactional id; without an id, a new producer."""

    API_KEY, API_VERSION, RESPONSE_TYPE = 22, 4, ProducerId
    SCHEMA = Schema(
        ("transactional_id", CompactString()),
        ("transaction_timeout_ms", Int32),
        ("producer_id", Int64),
        ("producer_epoch", Int16),
        _TAGS,
    )

    def __init__(self, transactional_id: str | None, timeout_ms: int) -> None:
        super().__init__(transactional_id, timeout_ms, *NO_PRODUCER, {})


class AddedPartitions(Response):  # type: ignore[misc]
    API_KEY, API_VERSION = 24, 3
    SCHEMA = Schema(("throttle_time_ms", Int32), ("topics", _PARTITION_ERRORS), _TAGS)


class AddPartitions(FlexibleStruct):
    """Begins a transaction if none is open, and says where it will write."""

    API_KEY, API_VERSION, RESPONSE_TYPE = 24, 3, AddedPartitions
    SCHEMA = Schema(
        ("transactional_id", CompactString()),
        ("producer_id", Int64),
        ("producer_epoch", Int16),
        (
            "topics",
            CompactArray(("topic", CompactString()), ("partitions", CompactArray(Int32)), _TAGS),
        ),
        _TAGS,
    )

    def __init__(
        self, transactional_id: str, producer: tuple[int, int], partitions: Iterable[Partition]
    ) -> None:
        topics: dict[str, list[int]] = {}
        for topic, number in partitions:
            topics.setdefault(topic, []).append(number)
        super().__init__(transactional_id, *producer, [(*topic, {}) for topic in topics.items()], {})


class AddedOffsets(Response):  # type: ignore[misc]
    API_KEY, API_VERSION = 25, 3
    SCHEMA = Schema(("throttle_time_ms", Int32), ("error_code", Int16), _TAGS)


class AddOffsets(FlexibleStruct):
    """Says that the transaction will commit offsets of a Kafka group."""

    API_KEY, API_VERSION, RESPONSE_TYPE = 25, 3, AddedOffsets
    SCHEMA = Schema(
        ("transactional_id", CompactString()),
        ("producer_id", Int64),
        ("producer_epoch", Int16),
        ("group_id", CompactString()),
        _TAGS,
    )

    def __init__(self, transactional_id: str, producer: tuple[int, int], group: str) -> None:
        super().__init__(transactional_id, *producer, group, {})


class CommittedOffsets(Response):  # type: ignore[misc]
    API_KEY, API_VERSION = 28, 3
    SCHEMA = Schema(("throttle_time_ms", Int32), ("topics", _PARTITION_ERRORS), _TAGS)


class CommitOffset(FlexibleStruct):
    """Commits one partition's offset in the transaction; the group's coordinator takes it."""

    API_KEY, API_VERSION, RESPONSE_TYPE = 28, 3, CommittedOffsets
    SCHEMA = Schema(
        ("transactional_id", CompactString()),
        ("group_id", CompactString()),
        ("producer_id", Int64),
        ("producer_epoch", Int16),
        ("generation_id", Int32),
        ("member_id", CompactString()),
        ("group_instance_id", CompactString()),
        (
            "topics",
            CompactArray(
                ("topic", CompactString()),
                (
                    "partitions",
                    CompactArray(
                        ("partition", Int32),
                        ("offset", Int64),
                        ("leader_epoch", Int32),
                        ("metadata", CompactString()),
                        _TAGS,
                    ),
                ),
                _TAGS,
            ),
        ),
        _TAGS,
    )

    def __init__(
        self,
        transactional_id: str,
        producer: tuple[int, int],
        group: str,
        partition: Partition,
        offset: int,
        metadata: str,
    ) -> None:
        topic, number = partition
        topics: list[Any] = [(topic, [(number, offset, -1, metadata, {})], {})]
        super().__init__(transactional_id, group, *producer, -1, "", None, topics, {})


class Ended(Response):  # type: ignore[misc]
    API_KEY, API_VERSION = 26, 3
    SCHEMA = Schema(("throttle_time_ms", Int32), ("error_code", Int16), _TAGS)


class EndTransaction(FlexibleStruct):
    """Commits or aborts."""

    API_KEY, API_VERSION, RESPONSE_TYPE = 26, 3, Ended
    SCHEMA = Schema(
        ("transactional_id", CompactString()),
        ("producer_id", Int64),
        ("producer_epoch", Int16),
        ("is_commit", Boolean),
        _TAGS,
    )

    def __init__(self, transactional_id: str, producer: tuple[int, int], *, is_commit: bool) -> None:
        super().__init__(transactional_id, *producer, is_commit, {})


def error_codes(answer: Any) -> Iterator[int]:
    """All error codes of an answer; 0 is none."""
    if hasattr(answer, "error_code"):
        yield answer.error_code
        return
    for _, partitions, *_ in answer.topics:
        for _, code, *_ in partitions:
            yield code
