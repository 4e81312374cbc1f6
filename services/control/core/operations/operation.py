"""An operation: a wish that control has carried out, and whether its streams have moved since.

Pure. The effect of a wish is a change in ZooKeeper, which changes the plan that the members carry out. So
progress shows in the claims. `services/control/live/acts/operations.py` makes the effects and follows the
operations; ZooKeeper keeps each as it began and as it ended.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from services.control.core.operations.forecasts import Forecast, Situation, StreamMove
from services.control.core.operations.wishes import Wish
from shared.errors import Conflict, NotFound
from shared.model.cluster import View

OperationState = Literal["pending", "running", "done", "failed", "cancelled"]
ENDED: frozenset[OperationState] = frozenset({"done", "failed", "cancelled"})
KEPT = 1000
"""Most operations to remember."""
KEPT_MS = 7 * 86_400_000
"""How long to remember those that have ended."""
MAX_NODE_BYTES = 800_000
"""Most bytes of an operation's znode: ZooKeeper accepts a little less than 1 MiB."""


class UnknownOperation(NotFound):
    """There is no operation of that id, or it ended long ago."""


class OperationUnderWay(Conflict):
    """Another operation on the same stream or member is still under way."""


class OperationEnded(Conflict):
    """An operation that has ended cannot be cancelled."""


class Operation(Wish, frozen=True, kw_only=True):
    """An operation and its progress; fields that its kind does not have are null."""

    id: str
    who: Annotated[str, Meta(description="whose token asked for it")] = ""
    reason: Annotated[str, Meta(description="why they did, in their words")] = ""
    state: Annotated[
        OperationState, Meta(description="pending: control has not seen the effect in ZooKeeper yet")
    ]
    moves: Annotated[list[StreamMove], Meta(description="as forecast when it began")]
    done: Annotated[int, Meta(description="how many of the moves are complete")]
    total: int
    sessions: Annotated[int | None, Meta(description="null if an owner did not say it when it began")]
    bytes: Annotated[int | None, Meta(description="null if an owner did not say it when it began")]
    why: Annotated[str, Meta(description="what it waits for, or why it failed")]
    since: Annotated[int, Meta(description="ms UTC")]
    ended_at: Annotated[int | None, Meta(description="ms UTC")] = None
    pins_before: Annotated[
        dict[int, str | None],
        Meta(description="the former pins of the streams whose pin it changed, which a cancel restores"),
    ] = msgspec.field(default_factory=dict)

    @property
    def has_ended(self) -> bool:
        """Whether the operation is final."""
        return self.state in ENDED


class OperationNode(msgspec.Struct, frozen=True, kw_only=True):
    """Data of `operations/<id>`; `request`: digest of the request under its `Idempotency-Key`, or ""."""

    operation: Operation
    request: str = ""

    def encode(self) -> bytes:
        """The data of the znode; of an operation too large for one it lacks the last moves and old pins."""
        data, operation = msgspec.json.encode(self), self.operation
        while len(data) > MAX_NODE_BYTES:
            moves, pins = operation.moves, list(operation.pins_before.items())
            operation = msgspec.structs.replace(
                operation, moves=moves[: len(moves) // 2], pins_before=dict(pins[: len(pins) // 2])
            )
            data = msgspec.json.encode(msgspec.structs.replace(self, operation=operation))
        return data


def check_alone(wish: Wish, moves: Iterable[StreamMove], others: Iterable[Operation]) -> None:
    """Raises OperationUnderWay if one of `others` is still under way on the same stream or member."""
    # a move may exchange a second stream, so compare every stream that either of them touches
    streams = _streams(wish, moves)
    for other in others:
        if other.has_ended or other.group != wish.group or _overrules(wish, other):
            continue
        shared = streams & _streams(other, other.moves)
        if shared:
            raise _under_way(other, f"is moving stream {min(shared)}")
        if wish.member is not None and wish.member == other.member:
            raise _under_way(other, f"is draining {wish.member!r}")


def begin(
    found: Forecast,
    operation_id: str,
    at_ms: int,
    *,
    who: str = "",
    reason: str = "",
    pins_before: Mapping[int, str | None] | None = None,
) -> Operation:
    """The operation of this forecast, right before its effect is made."""
    return Operation(
        **{name: getattr(found, name) for name in Wish.__struct_fields__},
        id=operation_id,
        who=who,
        reason=reason,
        state="pending",
        moves=found.moves,
        done=0,
        total=found.totals.moves,
        sessions=found.totals.sessions,
        bytes=found.totals.bytes,
        why="its effect does not show in ZooKeeper yet",
        since=at_ms,
        pins_before=dict(pins_before or {}),
    )


def done_at_once(wish: Wish, operation_id: str, at_ms: int, *, who: str, reason: str) -> Operation:
    """An operation that moves nothing, after its effect was made."""
    return Operation(
        **{name: getattr(wish, name) for name in Wish.__struct_fields__},
        id=operation_id,
        who=who,
        reason=reason,
        state="done",
        moves=[],
        done=0,
        total=0,
        sessions=0,
        bytes=0,
        why="",
        since=at_ms,
        ended_at=at_ms,
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


def cancelled(operation: Operation, why: str, at_ms: int) -> Operation:
    """The operation after its effect was undone."""
    return msgspec.structs.replace(operation, state="cancelled", why=why, ended_at=at_ms)


def check_cancel(operation: Operation) -> None:
    """Raises OperationEnded, or Conflict for an operation that is undone by another one."""
    if operation.has_ended:
        raise OperationEnded(f"operation {operation.id} is {operation.state}")
    if operation.kind not in ("move", "unpin", "drain", "rebalance"):
        opposite = {"undrain": "drain", "pause": "resume", "resume": "pause"}[operation.kind]
        raise Conflict(f"a {operation.kind} cannot be cancelled; ask for a {opposite}")


def surplus(operations: Iterable[Operation], now_ms: int) -> list[Operation]:
    """The ended operations to forget: those too old, and the oldest if there are too many.

    An operation under way is never forgotten.
    """
    known = list(operations)
    ended = sorted((one for one in known if one.has_ended), key=lambda one: (one.since, one.id))
    many = max(0, len(known) - KEPT)
    return ended[:many] + [one for one in ended[many:] if (one.ended_at or 0) < now_ms - KEPT_MS]


def _under_way(other: Operation, what: str) -> OperationUnderWay:
    return OperationUnderWay(f"operation {other.id} {what}", members={"operation": other.id})


def _overrules(wish: Wish, other: Operation) -> bool:
    """Whether the wish takes back what the other operation does, so need not wait for it."""
    return wish.kind == "undrain" and other.kind == "drain" and wish.member == other.member


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
    # in `rewind` the stream waits for an operator, and in a pause a replay does, but it has arrived
    arrived = ("running", "rewind", "replaying") if now.view.pause is not None else ("running", "rewind")
    if status is None or status.state not in arrived:
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
        case "unpin":
            return operation.stream not in view.pins
        case "undrain":
            node = view.members.get(operation.member or "")
            return node is not None and node.state == "active"
        case "pause" | "resume":
            return (operation.kind == "pause") == (view.pause is not None)
        case "rewind" | "promote":
            return True


def _goal_missed(operation: Operation, now: Situation) -> list[str]:
    """What is missing besides the forecast moves."""
    if operation.kind == "move" and operation.stream is not None:
        missing = _waits_for(operation.stream, now)
        return [missing] if missing is not None else []
    if operation.kind == "drain" and operation.member in now.view.members:
        return [f"{operation.member} has not left yet"]
    if operation.kind in ("pause", "resume"):
        wanted = operation.kind == "pause"
        slow = sorted(name for name in now.view.members if _is_paused(now, name) is not wanted)
        return [f"{name} does not report that it has {operation.kind}d yet" for name in slow]
    return []


def _is_paused(now: Situation, member: str) -> bool:
    status = now.statuses.get(member)
    return status is not None and bool(status.paused)


def _failure(operation: Operation, view: View) -> str | None:
    """Why the operation can no longer succeed; None while it can."""
    is_running = operation.state == "running"
    match operation.kind:
        case "move":
            return _move_failure(operation, view)
        case "drain" if is_running:
            node = view.members.get(operation.member or "")
            return f"{operation.member} is active again" if node and node.state == "active" else None
        case "undrain" if operation.member not in view.members:
            return f"{operation.member} has left; a restart makes it join again"
        case "pause" if is_running and view.pause is None:
            return "the group was resumed"
        case "resume" if is_running and view.pause is not None:
            return "the group was paused again"
        case _:
            return None


def _move_failure(operation: Operation, view: View) -> str | None:
    if operation.to is None or operation.stream is None:
        return None
    node = view.members.get(operation.to)
    if node is None:
        return f"{operation.to} has left; the pin stays, and takes effect when it returns"
    if node.state == "draining":
        return f"{operation.to} is draining; the pin stays, and takes effect when it returns"
    if operation.state == "running" and view.pins.get(operation.stream) != operation.to:
        return f"stream {operation.stream} is no longer pinned to {operation.to}"
    return None
