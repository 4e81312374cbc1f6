"""Kafka's OffsetDelete, which aiokafka lacks."""

from __future__ import annotations

from aiokafka.protocol.api import Request, RequestStruct, Response
from aiokafka.protocol.types import Array, Int16, Int32, Schema, String


class OffsetDeleteResponse(Response):  # type: ignore[misc]
    """The group's error, and each partition's."""

    API_KEY, API_VERSION = 47, 0
    SCHEMA = Schema(
        ("error_code", Int16),
        ("throttle_time_ms", Int32),
        (
            "topics",
            Array(("name", String("utf-8")), ("partitions", Array(("partition", Int32), ("error", Int16)))),
        ),
    )


class OffsetDeleteRequestV0(RequestStruct):  # type: ignore[misc]
    """Deletes a group's committed offsets of some partitions."""

    API_KEY, API_VERSION = 47, 0
    RESPONSE_TYPE = OffsetDeleteResponse
    SCHEMA = Schema(
        ("group_id", String("utf-8")),
        ("topics", Array(("name", String("utf-8")), ("partitions", Array(Int32)))),
    )


class OffsetDeleteRequest(Request[OffsetDeleteRequestV0]):  # type: ignore[misc]
    """Deletes a group's committed offsets of some partitions, by topic."""

    API_KEY = 47

    def __init__(self, group: str, topics: list[tuple[str, list[int]]]) -> None:
        self._group, self._topics = group, topics

    def build(self, request_struct_class: type[OffsetDeleteRequestV0]) -> OffsetDeleteRequestV0:
        """The request in its only version."""
        return request_struct_class(self._group, self._topics)
