"""Emits an event of kind `action` for everything that people and schedules start: who did what, and why."""

from __future__ import annotations

import time
from collections.abc import Callable

from services.control.core.causes import Cause
from services.control.core.operations.operation import Operation
from services.control.core.operations.wishes import what_of
from services.control.core.runs.run import Run
from shared.errors import BatonError, Unavailable
from shared.model.events import Event


class Actions:
    """Reports through `emit`, which never blocks and never raises."""

    def __init__(
        self,
        emit: Callable[[Event], None],
        wall_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        self._emit = emit
        self._wall_ms = wall_ms

    def report_operation(
        self, operation: Operation, cause: Cause, *, what: str = "", error: BatonError | None = None
    ) -> None:
        """An operation that has begun, or with `what` something else that was done to it.

        With `error` it may have been done, or a part of it.
        """
        self._emit(
            Event(
                at=self._wall_ms(),
                group=operation.group,
                kind="action",
                member=operation.member or "",
                stream=operation.stream,
                target=operation.to or "",
                who=cause.who,
                what=what + what_of(operation) + _failure(error),
                why=cause.reason,
                operation=operation.id,
            )
        )

    def report_deletion(self, group: str, cause: Cause, *, error: BatonError | None = None) -> None:
        """A group that was deleted, or with `error` may have been."""
        self._emit(
            Event(
                at=self._wall_ms(),
                group=group,
                kind="action",
                who=cause.who,
                what=f"delete group {group}" + _failure(error),
                why=cause.reason,
            )
        )

    def report_queue(self, queue: str, what: str, cause: Cause) -> None:
        """Something that was done to a queue, which belongs to no group."""
        self._emit(
            Event(
                at=self._wall_ms(),
                group="",
                kind="action",
                queue=queue,
                who=cause.who,
                what=what,
                why=cause.reason,
            )
        )

    def report_run(self, run: Run, cause: Cause, what: str) -> None:
        """A run that was started or cancelled."""
        self._emit(
            Event(
                at=self._wall_ms(),
                group=run.group,
                kind="action",
                who=cause.who,
                what=f"{what} {run.job}",
                why=cause.reason,
                run=run.id,
            )
        )


def _failure(error: BatonError | None) -> str:
    # viewers read events, so without addresses
    if isinstance(error, Unavailable):
        return f", without an answer: {error.reason}"
    return "" if error is None else f", failed: {error.detail}"
