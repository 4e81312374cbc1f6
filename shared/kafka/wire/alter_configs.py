"""Kafka's IncrementalAlterConfigs, which aiokafka lacks: it changes some settings and leaves the others.

AlterConfigs replaces all, so a caller must read them before, from a broker that may not have heard yet of the
change before this one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from aiokafka.protocol.api import Response
from aiokafka.protocol.types import (
    Boolean,
    CompactArray,
    CompactString,
    Int8,
    Int16,
    Int32,
    Schema,
    TaggedFields,
)

from shared.kafka.wire.flexible import FlexibleStruct

TOPIC = 2
"""Of all that has settings, this is a topic."""
_SET = 0
_TAGS = ("tags", TaggedFields)


class ChangedSettings(Response):  # type: ignore[misc]
    API_KEY, API_VERSION = 44, 1
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        (
            "resources",
            CompactArray(
                ("error_code", Int16),
                ("error_message", CompactString()),
                ("resource_type", Int8),
                ("resource_name", CompactString()),
                _TAGS,
            ),
        ),
        _TAGS,
    )


class ChangeSettings(FlexibleStruct):
    """Changes these settings of a topic."""

    API_KEY, API_VERSION, RESPONSE_TYPE = 44, 1, ChangedSettings
    SCHEMA = Schema(
        (
            "resources",
            CompactArray(
                ("resource_type", Int8),
                ("resource_name", CompactString()),
                (
                    "settings",
                    CompactArray(
                        ("name", CompactString()), ("operation", Int8), ("value", CompactString()), _TAGS
                    ),
                ),
                _TAGS,
            ),
        ),
        ("validate_only", Boolean),
        _TAGS,
    )

    def __init__(self, topic: str, settings: Mapping[str, str]) -> None:
        rows: list[Any] = [(name, _SET, value, {}) for name, value in settings.items()]
        super().__init__([(TOPIC, topic, rows, {})], False, {})
