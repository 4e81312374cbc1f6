"""The time line of streams that changed owner: handovers, take-overs after a death, and first claims.

Pure. The console draws it, and `forecasts.py` says from it how long the next moves are likely to take.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Literal

from services.control.core.events.recent_events import StoredEvent
from shared.model.events import Event

Kind = Literal["", "handover", "take-over"]
"""Which movements to show; "" means all."""
MOVED = frozenset({"claim", "handover", "takeover"})
"""Kinds of events that report a movement."""
READ = MOVED | {"action"}
"""Kinds of events from which movements and their operations are known."""
SKEW_MS = 5_000
"""How far the clocks of control and of a member may be apart."""
LONGEST_MS = 600_000
"""A movement that comes so long after an operation has begun has another cause."""
HOUR_MS = 3_600_000
TOGETHER_MS = 5_000
"""Moves with the same cause belong together if no more than this lies between one and the next."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Movement:
    """A stream that got an owner. `source` is "" if nobody had owned it, or if that is not known.

    `is_handover`: its owner gave it away. `is_first`: nobody had owned it before, so there was nothing to go
    on from, and nothing to replay. Otherwise a member took it over. `operation`: the drain or move that it is
    part of; "" if it is part of none, or that is not known.
    """

    id: int
    at: int
    stream: int
    is_handover: bool
    is_first: bool
    source: str
    target: str
    why: str
    sessions: int | None
    bytes: int | None
    copy_ms: float | None
    pause_ms: float | None
    is_warm: bool | None
    operation: str = ""

    @property
    def is_takeover(self) -> bool:
        """Whether a member took over what another one, or itself, had owned."""
        return not self.is_handover and not self.is_first


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
class Pauses:
    """Some pauses in three numbers, None without any. `p99_ms`: 99 % of them are no longer."""

    median_ms: float | None
    p99_ms: float | None
    longest_ms: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class MovementCounts:
    """Sums over movements; None is what no event reported.

    The pauses stand apart: a handover takes milliseconds, a take-over waits for the end of a session.
    """

    handovers: int
    warm: int
    taken_over: int
    handover_pauses: Pauses
    takeover_pauses: Pauses
    sessions: int | None
    bytes: int | None


def movements(events: Iterable[StoredEvent]) -> list[Movement]:
    """The movements among these events (oldest first), newest first.

    Each is reported as a claim first, and then as a handover or takeover. The claim is left out then, because
    the other says more.
    """
    found: dict[tuple[int, int], Movement] = {}
    begun: dict[object, list[Event]] = {}
    for stored in events:
        event = stored.event
        if event.kind == "action" and event.operation and event.what.startswith(("drain ", "move ")):
            begun.setdefault(event.member or (event.stream, event.target), []).append(event)
        if event.kind not in MOVED or event.stream is None:
            continue
        key = (event.stream, event.epoch if event.epoch is not None else -stored.id)
        if event.kind != "claim" or key not in found:
            found[key] = _movement(stored.id, event)
    known = list(found.values())
    if begun:
        known = [
            replace(move, operation=one) if (one := _operation_of(move, begun)) else move for move in known
        ]
    return sorted(known, key=lambda move: (move.at, move.id), reverse=True)


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
        and (not kind or (move.is_handover if kind == "handover" else move.is_takeover))
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


def older_than(moves: Sequence[Movement], event_id: int | None) -> Sequence[Movement]:
    """The movements (newest first) after that of this event; all of them if it is None or not among them."""
    place = next((n for n, move in enumerate(moves, 1) if move.id == event_id), 0)
    return moves[place:]


def handed_over(moves: Sequence[Movement], now_ms: int) -> list[Movement]:
    """The handovers of the last hour: the hour charts mark them."""
    return [move for move in moves if move.is_handover and move.at >= now_ms - HOUR_MS]


def counts_of(moves: Sequence[Movement]) -> MovementCounts:
    """The sums over the movements."""
    handed = [move for move in moves if move.is_handover]
    taken = [move for move in moves if move.is_takeover]
    return MovementCounts(
        handovers=len(handed),
        warm=sum(move.is_warm is True for move in handed),
        taken_over=len(taken),
        handover_pauses=_pauses_of(handed),
        takeover_pauses=_pauses_of(taken),
        sessions=_sum(move.sessions for move in moves),
        bytes=_sum(move.bytes for move in moves),
    )


def _pauses_of(moves: Iterable[Movement]) -> Pauses:
    pauses = sorted(move.pause_ms for move in moves if move.pause_ms is not None)
    if not pauses:
        return Pauses(median_ms=None, p99_ms=None, longest_ms=None)
    p99_ms = pauses[math.ceil(0.99 * len(pauses)) - 1]
    return Pauses(median_ms=median(pauses), p99_ms=p99_ms, longest_ms=pauses[-1])


def _sum(numbers: Iterable[int | None]) -> int | None:
    """The sum of what is known; None if there is something, but nothing is known of it."""
    every = list(numbers)
    known = [number for number in every if number is not None]
    return sum(known) if known or not every else None


def _operation_of(move: Movement, begun: Mapping[object, Sequence[Event]]) -> str:
    """The last drain of its donor, or move of the stream to its recipient, that had begun by then."""
    if not move.is_handover:
        return ""
    actions = [*begun.get(move.source, ()), *begun.get((move.stream, move.target), ())]
    return next(
        (one.operation for one in reversed(actions) if -SKEW_MS <= move.at - one.at <= LONGEST_MS), ""
    )


def _movement(event_id: int, event: Event) -> Movement:
    is_first = event.kind == "claim" and event.epoch == 1
    return Movement(
        id=event_id,
        at=event.at,
        stream=event.stream if event.stream is not None else -1,
        is_handover=event.kind == "handover",
        is_first=is_first,
        source=event.source,
        target=event.target or event.member,
        why=event.why,
        sessions=event.sessions,
        bytes=event.bytes,
        copy_ms=event.copy_ms,
        pause_ms=event.pause_ms,
        is_warm=None if is_first else event.warm,
    )
