"""What an operator's operation would move, what that costs, and whether it is done or has failed.

Pure. `move` pins a stream to a member, `drain` makes a member hand over everything and leave, `rebalance`
removes all pins. The effect of each is a change in ZooKeeper (pins, the member's state), which changes the
plan that the members carry out. So a forecast is the difference of two plans, and progress shows in the
claims. `services/control/live/operations.py` makes the effects and follows the operations.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from services.control.core.observed import Observed, StreamStatus
from services.control.core.report import owner_statuses
from shared.errors import Conflict, NotFound
from shared.model.balance import plan
from shared.model.cluster import View

Kind = Literal["move", "drain", "rebalance"]
OperationState = Literal["pending", "running", "done", "failed"]


class UnknownMember(NotFound):
    """There is no member of that name in the group."""


class UnknownOperation(NotFound):
    """There is no operation of that id; control forgets all of them when it restarts."""


class MoveRefused(Conflict):
    """The member cannot take a stream now."""


class OperationUnderWay(Conflict):
    """Another operation on the same stream or member is still under way."""


class Wish(msgspec.Struct, frozen=True, kw_only=True):
    """What an operator asks for."""

    kind: Kind
    group: str
    stream: Annotated[int | None, Meta(description="of a move")] = None
    to: Annotated[str | None, Meta(description="of a move: the member that gets the stream")] = None
    member: Annotated[str | None, Meta(description="of a drain: the member that leaves")] = None


class StreamMove(msgspec.Struct, frozen=True, kw_only=True):
    """A stream that changes its owner; null is no owner."""

    stream: int
    source: str | None = msgspec.field(name="from")
    to: str | None
    sessions: Annotated[int, Meta(description="open sessions that travel with it")]
    bytes: Annotated[int, Meta(description="their size in memory")]


class MoveTotals(msgspec.Struct, frozen=True, kw_only=True):
    """The sums over the moves."""

    moves: int
    sessions: int
    bytes: int


class Forecast(Wish, frozen=True, kw_only=True):
    """What an operation would do; fields that its kind does not have are null."""

    moves: list[StreamMove]
    totals: MoveTotals


class Operation(Wish, frozen=True, kw_only=True):
    """An operation and its progress; fields that its kind does not have are null."""

    id: str
    state: Annotated[
        OperationState, Meta(description="pending: control has not seen the effect in ZooKeeper yet")
    ]
    moves: Annotated[list[StreamMove], Meta(description="as forecast when it began")]
    done: Annotated[int, Meta(description="how many of the moves are complete")]
    total: int
    sessions: int
    bytes: int
    why: Annotated[str, Meta(description="what it waits for, or why it failed")]
    since: Annotated[int, Meta(description="ms UTC")]
    ended_at: Annotated[int | None, Meta(description="ms UTC")] = None

    @property
    def has_ended(self) -> bool:
        """Whether the operation is final."""
        return self.state in ("done", "failed")


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """One group at one moment: its view, the planned owner by stream, and what the present owners report."""

    view: View
    owner: Mapping[int, str]
    reported: Mapping[int, StreamStatus]


def situation_in(observed: Observed, group: str) -> Situation:
    """The situation of a group, which must exist."""
    view = observed.cluster.groups[group].view
    reported = owner_statuses(view, group, observed.answers.statuses)
    return Situation(view=view, owner=plan(view).owner, reported=reported)


def check(wish: Wish, view: View) -> None:
    """Raises UnknownMember if the group has no such member, MoveRefused if the recipient cannot take it."""
    for named in (wish.member, wish.to):
        if named is not None and named not in view.members:
            raise UnknownMember(f"there is no member {named!r} in group {wish.group!r}")
    if wish.to is not None and (state := view.members[wish.to].state) != "active":
        raise MoveRefused(f"{wish.to!r} is {state}")


def check_alone(wish: Wish, moves: Iterable[StreamMove], others: Iterable[Operation]) -> None:
    """Raises OperationUnderWay if one of `others` is still under way on the same stream or member."""
    # a move may exchange a second stream, so compare every stream that either of them touches
    streams = _streams(wish, moves)
    for other in others:
        if other.has_ended or other.group != wish.group:
            continue
        shared = streams & _streams(other, other.moves)
        if shared:
            raise OperationUnderWay(f"operation {other.id} is moving stream {min(shared)}")
        if wish.member is not None and wish.member == other.member:
            raise OperationUnderWay(f"operation {other.id} is draining {wish.member!r}")


def pins_after(wish: Wish, pins: Mapping[int, str]) -> dict[int, str]:
    """The pins after the wish has been carried out.

    A drain also removes the pins to the member that leaves: a pin would take effect again when it returns.

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
    """The streams whose owner the wish would change; excludes those that move without it."""
    view, members = now.view, dict(now.view.members)
    if wish.member in members:
        members[wish.member] = msgspec.structs.replace(members[wish.member], state="draining")
    after = plan(replace(view, members=members, pins=pins_after(wish, view.pins))).owner
    moves = []
    for stream in range(view.count):
        claim, to = view.claims.get(stream), after.get(stream)
        source = claim.member if claim is not None else None
        # a stream that changes its owner in the present plan too moves without this wish
        is_new = to != now.owner.get(stream) or (source is not None and source == wish.member)
        # the wished stream is listed even if the plan wants the same: the operator asked for it
        if to == source or not (is_new or stream == wish.stream):
            continue
        status = now.reported.get(stream)
        moves.append(
            StreamMove(
                stream=stream,
                source=source,
                to=to,
                sessions=status.open_sessions if status else 0,
                bytes=status.state_bytes if status else 0,
            )
        )
    return moves


def totals_for(moves: Sequence[StreamMove]) -> MoveTotals:
    """The number of the moves, and what they carry."""
    sessions, size = sum(move.sessions for move in moves), sum(move.bytes for move in moves)
    return MoveTotals(moves=len(moves), sessions=sessions, bytes=size)


def forecast(wish: Wish, now: Situation) -> Forecast:
    """What the wish would do in this situation."""
    moves = moves_for(wish, now)
    return Forecast(**msgspec.structs.asdict(wish), moves=moves, totals=totals_for(moves))


def begin(wish: Wish, moves: list[StreamMove], operation_id: str, at_ms: int) -> Operation:
    """The operation right after its effect was made, with these forecast moves."""
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
        why="its effect does not show in ZooKeeper yet",
        since=at_ms,
    )


def follow(operation: Operation, now: Situation, *, at_ms: int, age_ms: float, limit_ms: float) -> Operation:
    """The operation, updated from this situation; it fails if it is not done within `limit_ms`.

    It is pending until its effect shows in the view. It is done once each of its streams runs on the member
    that the current plan names, which may differ from the forecast if members have come or gone since.
    """
    if operation.has_ended:
        return operation
    # the forecast may be out of date: a stream is done where the current plan wants it
    waiting = [why for move in operation.moves if (why := _waits_for(move.stream, now)) is not None]
    operation = msgspec.structs.replace(operation, done=operation.total - len(waiting))
    if (failure := _failure(operation, now.view)) is not None:
        return failed(operation, failure, at_ms)
    # once visible, always visible: another operator may replace the pins while the streams still move
    is_visible = operation.state == "running" or _is_visible(operation, now.view)
    rest = [*waiting, *_goal_missed(operation, now)] if is_visible else [operation.why]
    if not rest:
        return msgspec.structs.replace(operation, state="done", why="", ended_at=at_ms)
    if age_ms > limit_ms:
        return failed(operation, f"not done within {limit_ms / 1000:g} s: {rest[0]}", at_ms)
    return msgspec.structs.replace(operation, state="running" if is_visible else "pending", why=rest[0])


def failed(operation: Operation, why: str, at_ms: int) -> Operation:
    """The operation, failed for that reason."""
    return msgspec.structs.replace(operation, state="failed", why=why, ended_at=at_ms)


def _streams(wish: Wish, moves: Iterable[StreamMove]) -> set[int]:
    own = {wish.stream} if wish.stream is not None else set()
    return own | {move.stream for move in moves}


def _waits_for(stream: int, now: Situation) -> str | None:
    """What keeps the stream from running on its planned owner; None if nothing does."""
    claim, owner, status = now.view.claims.get(stream), now.owner.get(stream), now.reported.get(stream)
    if claim is None:
        return None if owner is None else f"{owner} has not claimed stream {stream} yet"
    if claim.member != owner:
        return f"stream {stream} is still with {claim.member}"
    if status is not None and status.state == "retrying":
        return f"{owner} fails on stream {stream}: {status.why}"
    # in `rewind` the stream waits for an operator, but it has arrived
    if status is None or status.state not in ("running", "rewind"):
        return f"{owner} does not report stream {stream} as running yet"
    return None


def _is_visible(operation: Operation, view: View) -> bool:
    match operation.kind:
        case "move":
            return operation.stream is not None and view.pins.get(operation.stream) == operation.to
        case "drain":
            node = view.members.get(operation.member or "")
            return node is None or node.state == "draining"
        case "rebalance":
            return not view.pins


def _goal_missed(operation: Operation, now: Situation) -> list[str]:
    """What is missing besides the forecast moves."""
    if operation.kind == "move" and operation.stream is not None:
        missing = _waits_for(operation.stream, now)
        return [missing] if missing is not None else []
    if operation.kind == "drain" and operation.member in now.view.members:
        return [f"{operation.member} has not left yet"]
    return []


def _failure(operation: Operation, view: View) -> str | None:
    """Why the operation can no longer succeed; None while it can."""
    if operation.kind != "move" or operation.to is None or operation.stream is None:
        return None
    node = view.members.get(operation.to)
    if node is None:
        return f"{operation.to} has left; the pin stays, and takes effect when it returns"
    if node.state == "draining":
        return f"{operation.to} is draining; the pin stays, and takes effect when it returns"
    if operation.state == "running" and view.pins.get(operation.stream) != operation.to:
        return f"stream {operation.stream} is no longer pinned to {operation.to}"
    return None
