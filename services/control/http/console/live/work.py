"""Runs and operations as live messages: the newest state of each, encoded once for all viewers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final, Literal

import msgspec

from services.control.core.operations.operation import Operation
from services.control.core.runs.run import RunSummary
from services.control.http.console.shown.jobs import progress_words, share_of
from shared.errors import Unavailable

NEWEST: Final = 20
"""How many runs and operations that have ended are remembered, so that no page misses an end."""
Kind = Literal["run", "operation"]


class Work(msgspec.Struct, frozen=True, kw_only=True):
    """A run or an operation at one moment.

    `drawn`: while it stays the same, a page needs only the bar and the words of this message. `share` is in
    percent, null if it is not known.
    """

    kind: Kind
    group: str
    id: str
    drawn: str
    share: float | None
    words: str


def work_of_run(run: RunSummary, now_ms: int) -> Work:
    """The run as it is now."""
    return Work(
        kind="run",
        group=run.group,
        id=run.id,
        drawn=run.state,
        share=share_of(run),
        words=progress_words(run, now_ms),
    )


def work_of_operation(operation: Operation) -> Work:
    """The operation as it is now."""
    return Work(
        kind="operation",
        group=operation.group,
        id=operation.id,
        drawn=drawn_of(operation),
        share=100 * operation.done / operation.total if operation.total else None,
        words=operation.why,
    )


def drawn_of(operation: Operation) -> str:
    """Changes whenever the operation's page must be drawn again."""
    return f"{operation.state} {operation.done} {operation.why}"


def work_in(runs: Sequence[RunSummary], operations: Sequence[Operation], now_ms: int) -> list[Work]:
    """What pages may show of these (newest first): all that is under way, and the newest of the rest."""
    shown = [run for n, run in enumerate(runs) if n < NEWEST or run.ended_at is None]
    asked = [one for n, one in enumerate(operations) if n < NEWEST or not one.has_ended]
    return [work_of_run(run, now_ms) for run in reversed(shown)] + [
        work_of_operation(one) for one in reversed(asked)
    ]


class WorkLog:
    """Compares what `read` returns with what it returned before; `read` may raise Unavailable."""

    def __init__(self, read: Callable[[], Iterable[Work]]) -> None:
        self._read = read
        self._known: dict[tuple[Kind, str], tuple[int, Work, bytes]] = {}
        self.number = 0

    def __repr__(self) -> str:
        return f"<WorkLog of {len(self._known)} runs and operations at change {self.number}>"

    def look(self) -> int:
        """The number of the last change, after another look."""
        try:
            found = {(work.kind, work.id): work for work in self._read()}
        except Unavailable:
            return self.number
        known = self._known
        self._known = {}
        for key, work in found.items():
            if key in known and known[key][1] == work:
                self._known[key] = known[key]
                continue
            self.number += 1
            self._known[key] = (self.number, work, message_of(work))
        return self.number

    def after(self, number: int, kind: str, group: str) -> list[bytes]:
        """The messages of this kind and group that came after that change, oldest first."""
        news = [entry for entry in self._known.values() if entry[0] > number]
        return [
            message
            for _, work, message in sorted(news, key=lambda entry: entry[0])
            if (work.kind, work.group) == (kind, group)
        ]


def message_of(work: Work) -> bytes:
    """The server-sent event."""
    return b"event: %b\ndata: %b\n\n" % (work.kind.encode(), msgspec.json.encode(work))
