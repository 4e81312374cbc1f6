"""An operation under way, as its page follows it. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from services.control.core.operations.forecasts import StreamMove
from services.control.core.operations.operation import Operation
from services.control.core.operations.progress import MoveProgress, OperationDetail
from services.control.http.console.drawing.pauses import pause_width
from services.control.http.console.shown.actions import title_of
from services.control.http.console.words import plural


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


def following(operation: OperationDetail) -> Following:
    """The page of this operation."""
    lines = [_line(move, one) for move, one in zip(operation.moves, operation.progress, strict=True)]
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


def _line(move: StreamMove, progress: MoveProgress) -> MoveLine:
    return MoveLine(
        move=move,
        has_moved=progress.state == "moved",
        state=_WORDS.get(progress.state, progress.state),
        is_warm=progress.warm,
        pause_ms=progress.pause_ms,
        bar=pause_width(progress.pause_ms),
    )


_WORDS = {"waiting": "waits", "unowned": "has no owner"}
"""The states that the page says in other words."""
