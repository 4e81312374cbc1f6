"""What an operator's wish would move, and what that costs.

Pure. A forecast is the difference of two plans: without the wish and with it. Its digest lets an operator say
"only if it still is what I was shown".
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated

import msgspec
from msgspec import Meta

from services.control.core.events.movements import Movement
from services.control.core.operations.likely import Likely, likely
from services.control.core.operations.wishes import Wish, pins_after
from services.control.core.report.observed import MemberStatus, Observed, StreamStatus
from services.control.core.report.report import owner_statuses, sum_of
from shared.errors import Conflict
from shared.model.balance import plan
from shared.model.cluster import MemberState, View


class PlanChanged(Conflict):
    """The operation would no longer do what was shown."""


class StreamMove(msgspec.Struct, frozen=True, kw_only=True):
    """A stream that changes its owner; null is no owner."""

    stream: int
    source: str | None = msgspec.field(name="from")
    to: str | None
    sessions: Annotated[
        int | None, Meta(description="open sessions that travel with it; null if its owner does not say")
    ]
    bytes: Annotated[int | None, Meta(description="their size in memory; null if its owner does not say")]


class MoveTotals(msgspec.Struct, frozen=True, kw_only=True):
    """The sums over the moves."""

    moves: int
    sessions: Annotated[int | None, Meta(description="null if the owner of one of them does not say")]
    bytes: Annotated[int | None, Meta(description="null if the owner of one of them does not say")]


class Forecast(Wish, frozen=True, kw_only=True):
    """What an operation would do; fields that its kind does not have are null."""

    moves: list[StreamMove]
    totals: MoveTotals
    likely: Likely
    plan: Annotated[str, Meta(description="digest of the moves; as `if_plan` it allows only these")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """One group at one moment: its view, the planned owner by stream, and what owners and members report.

    `silent`: the members that did not answer the last request; what they reported before is kept.
    """

    view: View
    owner: Mapping[int, str]
    reported: Mapping[int, StreamStatus]
    statuses: Mapping[str, MemberStatus]
    silent: Collection[str] = ()


def situation_in(observed: Observed, group: str) -> Situation:
    """The situation of a group, which must exist."""
    view = observed.cluster.groups[group].view
    reported = owner_statuses(view, group, observed.answers.statuses)
    statuses = {name: one for (of, name), one in observed.answers.statuses.items() if of == group}
    silent = frozenset(name for of, name in observed.answers.silent if of == group)
    return Situation(view=view, owner=plan(view).owner, reported=reported, statuses=statuses, silent=silent)


_STATE_AFTER: Mapping[str, MemberState] = {"drain": "draining", "undrain": "active"}


def moves_for(wish: Wish, now: Situation) -> list[StreamMove]:
    """The streams whose owner the wish would change; excludes those that move without it."""
    view, members = now.view, dict(now.view.members)
    if wish.member in members:
        members[wish.member] = msgspec.structs.replace(members[wish.member], state=_STATE_AFTER[wish.kind])
    after = plan(replace(view, members=members, pins=pins_after(wish, view.pins))).owner
    moves = []
    for stream in range(view.count):
        claim, to = view.claims.get(stream), after.get(stream)
        source = claim.member if claim is not None else None
        # a stream that changes its owner in the present plan too moves without this wish
        leaves = wish.kind == "drain" and source is not None and source == wish.member
        is_new = to != now.owner.get(stream) or leaves
        # the wished stream is listed even if the plan wants the same: the operator asked for it
        if to == source or not (is_new or stream == wish.stream):
            continue
        # what a silent owner reported before is old by now
        status = None if source in now.silent else now.reported.get(stream)
        moves.append(
            StreamMove(
                stream=stream,
                source=source,
                to=to,
                sessions=status.open_sessions if status else None,
                bytes=status.state_bytes if status else None,
            )
        )
    return moves


def totals_for(moves: Sequence[StreamMove]) -> MoveTotals:
    """The number of the moves, and what they carry together; null if that is not known of each."""
    return MoveTotals(
        moves=len(moves),
        sessions=sum_of(move.sessions for move in moves),
        bytes=sum_of(move.bytes for move in moves),
    )


def forecast(wish: Wish, now: Situation, recent: Sequence[Movement] = (), now_ms: int = 0) -> Forecast:
    """What the wish would do in this situation; `recent` are the group's movements, newest first."""
    moves = moves_for(wish, now)
    return Forecast(
        **msgspec.structs.asdict(wish),
        moves=moves,
        totals=totals_for(moves),
        likely=likely(recent, len(moves), now_ms),
        plan=plan_digest(wish, moves),
    )


def plan_digest(wish: Wish, moves: Sequence[StreamMove], *, named: str = "") -> str:
    """The same for the same wish that moves the same streams from and to the same members.

    `named`: of a promotion, the group that the alias names before it.
    """
    rows = [(move.stream, move.source, move.to) for move in moves]
    known = [wish, rows, named] if named else [wish, rows]
    return hashlib.sha256(msgspec.json.encode(known)).hexdigest()[:12]


def check_plan(found: Forecast, if_plan: str | None) -> None:
    """Raises PlanChanged unless the forecast is the one of this digest; None allows every one."""
    if if_plan not in (None, found.plan):
        detail = f"the operation would now move {found.totals.moves} streams, not as it was shown"
        if found.kind == "promote":
            detail = "the alias would now be taken from another group than was shown"
        raise PlanChanged(f"{detail}; look at the dry run again", members={"plan": found.plan})
