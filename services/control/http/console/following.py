"""An operation under way, as its page follows it. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from services.control.core.forecasts import StreamMove
from services.control.core.operations import Operation
from services.control.core.rows import StreamRow
from services.control.http.console.actions import title_of
from services.control.http.console.movements import Movement
from services.control.http.console.pauses import pause_width
from services.control.http.console.scene import Scene
from services.control.http.console.words import plural

SKEW_MS = 5_000
"""How far the clocks of control and of a member may be apart."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveLine:
    """A stream of the operation: where it is by now. `bar`: the width of its pause, 0 if not known."""

    move: StreamMove
    has_moved: bool
    state: str
    is_warm: bool | None
    pause_ms: float | None
    bar: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Following:
    """The page of an operation. `share`: percent of its moves that are done."""

    title: str
    stressed: str
    sentence: str
    share: float
    lines: Sequence[MoveLine]


def following(operation: Operation, scene: Scene, moves: Sequence[Movement]) -> Following:
    """The page; `moves` are the group's latest movements, newest first."""
    lines = [_line(move, operation, scene, moves) for move in operation.moves]
    done, total = operation.done, operation.total
    return Following(
        title=_title(operation),
        stressed=f"{done} of {plural(total, 'stream')}" if total else "",
        sentence=_sentence(operation, lines),
        share=round(100 * done / total, 1) if total else 100.0 * (operation.state == "done"),
        lines=lines,
    )


def _title(operation: Operation) -> str:
    words = title_of(operation)
    match operation.state:
        case "pending" | "running":
            return words
        case state:
            return f"{words}: {state}"


def _sentence(operation: Operation, lines: Sequence[MoveLine]) -> str:
    known = [line.is_warm for line in lines if line.is_warm is not None]
    how = ", all warm" if known and all(known) and len(known) == operation.done else ""
    moved = f" {'has' if operation.total == 1 else 'have'} moved{how}." if operation.total else ""
    if not operation.why:
        return moved or "No stream had to move."
    if operation.state == "cancelled":
        return f"{moved} {operation.why[:1].upper()}{operation.why[1:]}."
    word = "It waits" if not operation.has_ended else operation.state.capitalize()
    return f"{moved} {word}: {operation.why}."


def _line(move: StreamMove, operation: Operation, scene: Scene, moves: Sequence[Movement]) -> MoveLine:
    made = next((one for one in moves if _is_of(one, move, operation)), None)
    row = scene.rows[move.stream] if move.stream < len(scene.rows) else None
    has_moved = operation.state == "done" or made is not None or _is_there(row, move)
    return MoveLine(
        move=move,
        has_moved=has_moved,
        state="moved" if has_moved else _waits_as(row),
        is_warm=made.is_warm if made else None,
        pause_ms=made.pause_ms if made else None,
        bar=pause_width(made.pause_ms) if made else 0,
    )


def _is_there(row: StreamRow | None, move: StreamMove) -> bool:
    return row is not None and row.owner == move.to and row.state == "running"


def _waits_as(row: StreamRow | None) -> str:
    """The state of a stream that has not moved yet, in a word or two."""
    if row is not None and row.owner is None:
        return "has no owner"
    return "waits" if row is None or row.state == "running" else row.state


def _is_of(made: Movement, move: StreamMove, operation: Operation) -> bool:
    """Whether this movement is the operation's: right stream and target, and while it was under way."""
    begin, end = operation.since - SKEW_MS, operation.ended_at
    is_in_time = made.at >= begin and (end is None or made.at <= end + SKEW_MS)
    return is_in_time and (made.stream, made.target) == (move.stream, move.to)
