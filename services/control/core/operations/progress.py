"""How far each stream of an operation is: still with its donor, on its way, or moved, and how long it paused.

Pure. `GET /operations/{id}` and the operation's page show it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from services.control.core.events.movements import SKEW_MS, Movement
from services.control.core.operations.forecasts import StreamMove
from services.control.core.operations.operation import Operation
from services.control.core.report.observed import StreamState
from services.control.core.report.rows import StreamRow


class MoveProgress(msgspec.Struct, frozen=True, kw_only=True):
    """One of an operation's moves; null is what no event has reported."""

    stream: int
    state: Annotated[
        Literal["waiting", "moved"] | StreamState,
        Meta(description="`waiting`: it runs where it was; `moved`: the operation is through with it"),
    ]
    warm: Annotated[bool | None, Meta(description="whether the new owner continued from memory")]
    pause_ms: Annotated[float | None, Meta(description="how long the stream stood still")]


class OperationDetail(Operation, frozen=True, kw_only=True):
    """An operation with the progress of each of its moves, in their order."""

    progress: list[MoveProgress]


def detail_of(operation: Operation, rows: Sequence[StreamRow], moves: Sequence[Movement]) -> OperationDetail:
    """The operation in detail. `rows` are its group's streams, `moves` the latest movements, newest first."""
    return OperationDetail(
        **{name: getattr(operation, name) for name in Operation.__struct_fields__},
        progress=[_progress(move, operation, rows, moves) for move in operation.moves],
    )


def _progress(
    move: StreamMove, operation: Operation, rows: Sequence[StreamRow], moves: Sequence[Movement]
) -> MoveProgress:
    made = next((one for one in moves if _is_of(one, move, operation)), None)
    row = rows[move.stream] if move.stream < len(rows) else None
    has_moved = operation.state == "done" or made is not None or _is_there(row, move)
    return MoveProgress(
        stream=move.stream,
        state="moved" if has_moved else "waiting" if row is None or row.state == "running" else row.state,
        warm=made.is_warm if made else None,
        pause_ms=made.pause_ms if made else None,
    )


def _is_there(row: StreamRow | None, move: StreamMove) -> bool:
    return row is not None and row.owner == move.to and row.state == "running"


def _is_of(made: Movement, move: StreamMove, operation: Operation) -> bool:
    """Whether this movement is the operation's: right stream and target, and while it was under way."""
    begin, end = operation.since - SKEW_MS, operation.ended_at
    is_in_time = made.at >= begin and (end is None or made.at <= end + SKEW_MS)
    return is_in_time and (made.stream, made.target) == (move.stream, move.to)
