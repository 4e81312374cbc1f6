"""The time line of streams that changed owner: handovers, and take-overs after a death. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Literal

from services.control.core.recent_events import StoredEvent
from shared.model.events import Event

Kind = Literal["", "handover", "take-over"]
"""Which movements to show; "" means all."""
MOVED = frozenset({"claim", "handover", "takeover"})
"""Kinds of events that report a movement."""
HOUR_MS = 3_600_000
TOGETHER_MS = 5_000
"""Moves with the same cause belong together if no more than this lies between one and the next."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Movement:
    """A stream that got an owner. `source` is "" if nobody had owned it, or if that is not known.

    `is_handover`: its owner gave it away; else another member took it over.
    """

    id: int
    at: int
    stream: int
    is_handover: bool
    source: str
    target: str
    why: str
    sessions: int | None
    bytes: int | None
    copy_ms: float | None
    pause_ms: float | None
    is_warm: bool | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """Movements of one cause, newest first."""

    why: str
    moves: Sequence[Movement]

    @property
    def at(self) -> int:
        """When the last of them happened, ms UTC."""
        return self.moves[0].at

    @property
    def sources(self) -> list[str]:
        """Who gave streams, sorted."""
        return sorted({move.source for move in self.moves if move.source})

    @property
    def targets(self) -> list[str]:
        """Who got them, sorted."""
        return sorted({move.target for move in self.moves})

    @property
    def longest_ms(self) -> float | None:
        """The longest pause that is known."""
        return max((move.pause_ms for move in self.moves if move.pause_ms is not None), default=None)

    @property
    def is_warm(self) -> bool | None:
        """Whether all went on from memory; None if that is not known of any."""
        known = [move.is_warm for move in self.moves if move.is_warm is not None]
        return all(known) if known else None


@dataclass(frozen=True, slots=True, kw_only=True)
class MovementCounts:
    """Sums over movements; None is what no event reported. `p99_ms`: 99 % of the pauses are no longer."""

    handovers: int
    warm: int
    taken_over: int
    median_ms: float | None
    p99_ms: float | None
    longest_ms: float | None
    sessions: int
    bytes: int


def movements(events: Iterable[StoredEvent]) -> list[Movement]:
    """The movements among these events (oldest first), newest first.

    Each is reported as a claim first, and then as a handover or takeover. The claim is left out then, because
    the other says more.
    """
    found: dict[tuple[int, int], Movement] = {}
    for stored in events:
        event = stored.event
        if event.kind not in MOVED or event.stream is None:
            continue
        key = (event.stream, event.epoch if event.epoch is not None else -stored.id)
        if event.kind != "claim" or key not in found:
            found[key] = _movement(stored.id, event)
    return sorted(found.values(), key=lambda move: (move.at, move.id), reverse=True)


def chosen(
    moves: Sequence[Movement], *, since_ms: int | None, stream: int | None, member: str, kind: Kind
) -> list[Movement]:
    """The movements since then, of this stream, from or to this member, and of this kind."""
    return [
        move
        for move in moves
        if (since_ms is None or move.at >= since_ms)
        and stream in (None, move.stream)
        and member in ("", move.source, move.target)
        and kind in ("", "handover" if move.is_handover else "take-over")
    ]


def members_of(moves: Iterable[Movement]) -> list[str]:
    """Who gave or got streams, sorted."""
    return sorted({name for move in moves for name in (move.source, move.target) if name})


def by_cause(moves: Sequence[Movement]) -> list[Cause]:
    """The movements (newest first) with those of one cause together."""
    causes: list[list[Movement]] = []
    for move in moves:
        last = causes[-1][-1] if causes else None
        if last is not None and last.why == move.why and last.at - move.at <= TOGETHER_MS:
            causes[-1].append(move)
        else:
            causes.append([move])
    return [Cause(why=group[0].why, moves=group) for group in causes]


def handed_over(moves: Sequence[Movement], now_ms: int) -> list[Movement]:
    """The handovers of the last hour: the hour charts mark them."""
    return [move for move in moves if move.is_handover and move.at >= now_ms - HOUR_MS]


def counts_of(moves: Sequence[Movement]) -> MovementCounts:
    """The sums over the movements."""
    handed = [move for move in moves if move.is_handover]
    pauses = sorted(move.pause_ms for move in moves if move.pause_ms is not None)
    return MovementCounts(
        handovers=len(handed),
        warm=sum(move.is_warm is True for move in handed),
        taken_over=len(moves) - len(handed),
        median_ms=median(pauses) if pauses else None,
        p99_ms=pauses[math.ceil(0.99 * len(pauses)) - 1] if pauses else None,
        longest_ms=pauses[-1] if pauses else None,
        sessions=sum(move.sessions or 0 for move in moves),
        bytes=sum(move.bytes or 0 for move in moves),
    )


def _movement(event_id: int, event: Event) -> Movement:
    return Movement(
        id=event_id,
        at=event.at,
        stream=event.stream if event.stream is not None else -1,
        is_handover=event.kind == "handover",
        source=event.source,
        target=event.target or event.member,
        why=event.why,
        sessions=event.sessions,
        bytes=event.bytes,
        copy_ms=event.copy_ms,
        pause_ms=event.pause_ms,
        is_warm=event.warm,
    )
