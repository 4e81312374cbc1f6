"""The columns of the lake's own tables, and their partitions."""

from __future__ import annotations

from typing import Final

from services.control.spark.lake.rows import NUMBER_COLUMNS

SESSIONS_COLUMNS: Final = {
    **dict.fromkeys(("id", "group", "key", "reason"), "STRING"),
    **dict.fromkeys(NUMBER_COLUMNS, "BIGINT"),
    "topic_id": "STRING",
    "topic_partition": "INT",
    "topic_offset": "BIGINT",
    "data": "ARRAY<STRING>",
    "day": "DATE",
}
SESSIONS_PARTITIONS: Final = ("group", "day")
UNREADABLE_COLUMNS: Final = {
    **dict.fromkeys(("group", "topic_id"), "STRING"),
    "topic_partition": "INT",
    "topic_offset": "BIGINT",
    **dict.fromkeys(("key", "value"), "BINARY"),
    "why": "STRING",
    "appended": "BIGINT",
}
UNREADABLE_PARTITIONS: Final = ("group",)
