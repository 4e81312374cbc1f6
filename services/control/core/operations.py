"""What an operator's operation would move, what that costs, and whether it is done or has failed.

Pure. `move` pins a stream to a member, `drain` has a member hand over everything and leave, `rebalance`
takes all pins away. The effect of each stands in ZooKeeper (pins, the member's state), and the members carry
it out by their plan; so what would move is the difference of two plans, and what has moved shows in the
claims. `services/control/live/operations.py` has the effects made and follows them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Literal

import msgspec

from services.control.core.observed import Observed, StreamStatus
from services.control.core.report import told_by_owners
from shared.errors import Conflict, NotFound
from shared.model.balance import plan
from shared.model.cluster import View

Kind = Literal["move", "drain", "rebalance"]
OperationState = Literal["pending", "running", "done", "failed"]


class UnknownMember(NotFound):
    """There is no member of that name in the group."""


class UnknownOperation(NotFound):
    """There is no operation of that id; control remembers them only while it runs."""


class MoveRefused(Conflict):
    """The member cannot be given a stream now."""


class OperationUnderWay(Conflict):
    """Another operation that has not ended yet is about the same stream or member."""


class Wish(msgspec.Struct, frozen=True, kw_only=True):
    """What an operator asks for: `stream` and `to` of a move, `member` of a drain."""

    kind: Kind
    group: str
    stream: int | None = None
    to: str | None = None
    member: str | None = None


class StreamMove(msgspec.Struct, frozen=True, kw_only=True):
    """A stream that moves, None for nobody; `sessions` (open) and `bytes` (their size) travel with it."""

    stream: int
    source: str | None = msgspec.field(name="from")
    to: str | None
    sessions: int
    bytes: int


class Totals(msgspec.Struct, frozen=True, kw_only=True):
    """The sums over some moves."""

    moves: int
    sessions: int
    bytes: int


class Forecast(Wish, frozen=True, kw_only=True):
    """What an operation would do."""

    moves: list[StreamMove]
    totals: Totals


class Operation(Wish, frozen=True, kw_only=True):
    """An operation whose effect stands; `done` of `total` moves have been made.

    `why`: what it waits for, or why it has failed. `since`, `ended_at`: ms since the epoch.
    """

    id: str
    state: OperationState
    moves: list[StreamMove]
    done: int
    total: int
    sessions: int
    bytes: int
    why: str
    since: int
    ended_at: int | None = None

    @property
    def has_ended(self) -> bool:
        """Whether nothing will change about it any more."""
        return self.state in ("done", "failed")


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """One group at one moment: its view, the plan for it, and what the owners say of their streams."""

    view: View
    owner: Mapping[int, str]
    told: Mapping[int, StreamStatus]


def situation_in(observed: Observed, group: str) -> Situation:
    """The group (which must be there) as it was observed."""
    view = observed.cluster.groups[group].view
    told = told_by_owners(view, group, observed.answers.statuses)
    return Situation(view=view, owner=plan(view).owner, told=told)


def check(wish: Wish, view: View) -> None:
    """Raises UnknownMember for a drain of nobody, MoveRefused for a move to whom nothing can be given now."""
    if wish.member is not None and wish.member not in view.members:
        raise UnknownMember(f"there is no member {wish.member!r} in group {wish.group!r}")
    if wish.to is not None:
        node = view.members.get(wish.to)
        if node is None:
            raise MoveRefused(f"{wish.to!r} is no member of group {wish.group!r} now")
        if node.state != "active":
            raise MoveRefused(f"{wish.to!r} is {node.state}")


def check_alone(wish: Wish, moves: Iterable[StreamMove], others: Iterable[Operation]) -> None:
    """Raises OperationUnderWay when one of `others` has not ended and is about the same stream or member."""
    streams = _streams(wish, moves)
    for other in others:
        if other.has_ended or other.group != wish.group:
            continue
        both = streams & _streams(other, other.moves)
        if both:
            raise OperationUnderWay(f"stream {min(both)} is being moved by operation {other.id}")
        if wish.member is not None and wish.member == other.member:
            raise OperationUnderWay(f"{wish.member!r} is being drained by operation {other.id}")


def pins_after(wish: Wish, pins: Mapping[int, str]) -> dict[int, str]:
    """The pins as they stand once the wish is fulfilled.

    >>> pins_after(Wish(kind="move", group="g", stream=3, to="b"), {1: "a"})
    {1: 'a', 3: 'b'}
    >>> pins_after(Wish(kind="drain", group="g", member="a"), {1: "a", 3: "b"})
    {3: 'b'}
    """
    if wish.kind == "rebalance":
        return {}
    kept = {stream: member for stream, member in pins.items() if member != wish.member}
    return kept | {wish.stream: wish.to} if wish.stream is not None and wish.to is not None else kept


def moves_for(wish: Wish, now: Situation) -> list[StreamMove]:
    """The streams that would get another owner by the wish; what moves anyway is not among them."""
    view, members = now.view, dict(now.view.members)
    if wish.member in members:
        members[wish.member] = msgspec.structs.replace(members[wish.member], state="draining")
    after = plan(replace(view, members=members, pins=pins_after(wish, view.pins))).owner
    moves = []
    for stream in range(view.count):
        claim, to = view.claims.get(stream), after.get(stream)
        source = claim.member if claim is not None else None
        is_new = to != now.owner.get(stream) or (source is not None and source == wish.member)
        if to == source or not (is_new or stream == wish.stream):
            continue
        told = now.told.get(stream)
        moves.append(
            StreamMove(
                stream=stream,
                source=source,
                to=to,
                sessions=told.open_sessions if told else 0,
                bytes=told.state_bytes if told else 0,
            )
        )
    return moves


def totals_for(moves: Iterable[StreamMove]) -> Totals:
    """Their number and sums."""
    moves = list(moves)
    sessions, size = sum(move.sessions for move in moves), sum(move.bytes for move in moves)
    return Totals(moves=len(moves), sessions=sessions, bytes=size)


def forecast(wish: Wish, now: Situation) -> Forecast:
    """What the wish would do, made now."""
    moves = moves_for(wish, now)
    return Forecast(**msgspec.structs.asdict(wish), moves=moves, totals=totals_for(moves))


def begin(wish: Wish, moves: list[StreamMove], operation_id: str, at_ms: int) -> Operation:
    """The operation right after its effect was made."""
    totals = totals_for(moves)
    return Operation(
        **msgspec.structs.asdict(wish),
        id=operation_id,
        state="pending",
        moves=moves,
        done=0,
        total=totals.moves,
        sessions=totals.sessions,
        bytes=totals.bytes,
        why="its effect has not been seen yet",
        since=at_ms,
    )


def follow(operation: Operation, now: Situation, *, at_ms: int, age_ms: float, limit_ms: float) -> Operation:
    """The operation as of this situation; one that has not ended by `limit_ms` has failed.

    It is pending until its effect shows in the view, and done when each of its streams runs where the plan
    of that moment wants it (which may be another member than at first, if others came or went).
    """
    if operation.has_ended:
        return operation
    waiting = [why for move in operation.moves if (why := _waits_for(move.stream, now)) is not None]
    operation = msgspec.structs.replace(operation, done=operation.total - len(waiting))
    if (failure := _failure(operation, now.view)) is not None:
        return _ended(operation, "failed", failure, at_ms)
    is_seen = operation.state == "running" or _is_seen(operation, now.view)
    rest = [*waiting, *_goal_missed(operation, now)] if is_seen else [operation.why]
    if not rest:
        return _ended(operation, "done", "", at_ms)
    if age_ms > limit_ms:
        return _ended(operation, "failed", f"not done within {limit_ms / 1000:g} s: {rest[0]}", at_ms)
    return msgspec.structs.replace(operation, state="running" if is_seen else "pending", why=rest[0])


def give_up(operation: Operation, why: str, at_ms: int) -> Operation:
    """The operation, failed for that reason."""
    return _ended(operation, "failed", why, at_ms)


def _streams(wish: Wish, moves: Iterable[StreamMove]) -> set[int]:
    own = {wish.stream} if wish.stream is not None else set()
    return own | {move.stream for move in moves}


def _ended(operation: Operation, state: OperationState, why: str, at_ms: int) -> Operation:
    return msgspec.structs.replace(operation, state=state, why=why, ended_at=at_ms)


def _waits_for(stream: int, now: Situation) -> str | None:
    """What is missing until the stream runs where the plan wants it; None when it does."""
    claim, owner, told = now.view.claims.get(stream), now.owner.get(stream), now.told.get(stream)
    if claim is None:
        return None if owner is None else f"stream {stream} is not claimed by {owner} yet"
    if claim.member != owner:
        return f"stream {stream} is still with {claim.member}"
    if told is None or told.state not in ("running", "rewind"):
        return f"{owner} does not say yet that stream {stream} is running"
    return None


def _is_seen(operation: Operation, view: View) -> bool:
    match operation.kind:
        case "move":
            return operation.stream is not None and view.pins.get(operation.stream) == operation.to
        case "drain":
            node = view.members.get(operation.member or "")
            return node is None or node.state == "draining"
        case "rebalance":
            return not view.pins


def _goal_missed(operation: Operation, now: Situation) -> list[str]:
    """What is missing besides the moves that were foreseen."""
    if operation.kind == "move" and operation.stream is not None:
        missing = _waits_for(operation.stream, now)
        return [missing] if missing is not None else []
    if operation.kind == "drain" and operation.member in now.view.members:
        return [f"{operation.member} has not left yet"]
    return []


def _failure(operation: Operation, view: View) -> str | None:
    """Why it can no longer be done, if so."""
    if operation.kind != "move" or operation.to is None or operation.stream is None:
        return None
    node = view.members.get(operation.to)
    if node is None:
        return f"{operation.to} has left; the pin stands, and counts when it is back"
    if node.state == "draining":
        return f"{operation.to} is draining; the pin stands, and counts when it is back"
    if operation.state == "running" and view.pins.get(operation.stream) != operation.to:
        return f"stream {operation.stream} is no longer pinned to {operation.to}"
    return None
