"""How far the lake is behind the sessions topics, and how long until retention deletes what it lacks.

Pure. A lake holds a partition's records up to an offset. It lacks the rest, up to the last settled record.
Where retention has already removed a part of the rest, it lacks what is left of it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated

import msgspec
from msgspec import Meta

Positions = Mapping[tuple[str, str], Mapping[int, int]]
"""By group and topic id: for each partition the offset up to which the lake holds its sessions."""


class Oldest(msgspec.Struct, frozen=True, kw_only=True):
    """The oldest record of a partition that the lake lacks."""

    offset: int
    time_ms: int


class TopicState(msgspec.Struct, frozen=True, kw_only=True):
    """A sessions topic as Kafka shows it: half-open offsets, and what the lake lacks, by partition.

    `retention_ms`: None if records are kept forever, or if it is unknown.
    """

    topic_id: str
    bounds: Mapping[int, tuple[int, int]]
    oldest: Mapping[int, Oldest] = {}
    retention_ms: int | None = None


class FreshnessRow(msgspec.Struct, frozen=True, kw_only=True):
    """How far the table `sessions` is behind a group's topic."""

    group: str
    topic: str
    behind_records: Annotated[
        int,
        Meta(description="offsets that the lake lacks: records, and Kafka's own markers"),
    ]
    behind_s: Annotated[float, Meta(description="age of the oldest record that it lacks; 0: it lacks none")]
    oldest_at: Annotated[int | None, Meta(description="when that record was appended (ms UTC)")]
    lost_records: Annotated[
        int,
        Meta(description="offsets that Kafka deleted before the lake read them: records, and markers"),
    ]
    retention_ms: Annotated[int | None, Meta(description="of the topic; null: unlimited or unknown")]
    loss_in_s: Annotated[
        float | None, Meta(description="time until retention deletes that record; null: it never does")
    ]
    measured_at: Annotated[int, Meta(description="ms UTC")]


def first_lacking(held: Mapping[int, int], state: TopicState) -> dict[int, int]:
    """Where to look for the oldest record that the lake lacks, by partition; complete ones are left out.

    `held`: up to which offset it holds each partition.
    """
    wanted = {number: max(first, held.get(number, 0)) for number, (first, _) in state.bounds.items()}
    return {number: at for number, at in wanted.items() if at < state.bounds[number][1]}


def row_of(group: str, topic: str, held: Mapping[int, int], state: TopicState, now_ms: int) -> FreshnessRow:
    """The row of a group."""
    lacking = {number: state.oldest[number] for number in state.bounds if number in state.oldest}
    oldest_at = min((one.time_ms for one in lacking.values()), default=None)
    behind_s = 0.0 if oldest_at is None else max(0, now_ms - oldest_at) / 1000
    loss_in_s = None
    if oldest_at is not None and state.retention_ms is not None:
        loss_in_s = state.retention_ms / 1000 - behind_s
    return FreshnessRow(
        group=group,
        topic=topic,
        behind_records=sum(state.bounds[number][1] - one.offset for number, one in lacking.items()),
        behind_s=behind_s,
        oldest_at=oldest_at,
        lost_records=sum(
            max(0, state.bounds[number][0] - at) for number, at in held.items() if number in state.bounds
        ),
        retention_ms=state.retention_ms,
        loss_in_s=loss_in_s,
        measured_at=now_ms,
    )


def loss_in_s(row: FreshnessRow) -> float:
    """The row's `loss_in_s` as a gauge shows it: infinity instead of None."""
    return math.inf if row.loss_in_s is None else row.loss_in_s
