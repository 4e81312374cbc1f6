"""What one member should do now about who owns what: claims, handovers, releases, and what it must drop.

Pure. From the view, the plan for it, the dampers and what the member runs follows a list of effects, in the
order in which they must happen. The member carries them out and decides again whenever one of these changes.
There is no master: all members compute the same plan, so at most one member claims a stream at a time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace

import msgspec

from services.consumer.core.ownership.dampers import Dampers
from shared.model.balance import Plan, plan
from shared.model.cluster import View


class Running(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A stream that the member runs, in `epoch`. Made anew for each decision, so it must be cheap.

    `is_ready`: it has been read up to the stored position, so its sessions can be copied. `is_opening`: it is
    being opened or replayed, and that has not failed so far. Neither: it waits for an operator, or it fails
    and is tried again, possibly without end. `bytes`: of the fragments in its open sessions.
    """

    epoch: int
    bytes: int = 0
    is_ready: bool = True
    is_opening: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Drop:
    """Stop running the stream without a commit: this member no longer holds the claim it runs on."""

    stream: int
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Adopt:
    """Confirm a claim that this ZooKeeper session holds but the member does not run, and run it."""

    stream: int
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class HandOver:
    """Give a running stream, with its open sessions, to `target`.

    `or_release`: where the target does not accept it, release the stream (the member drains). `left`: how
    many streams, this one included, still have to be given to it.
    """

    stream: int
    epoch: int
    target: str
    why: str
    or_release: bool = False
    left: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """Stop, commit and release the claim in favour of `target` (None: there is no other member)."""

    stream: int
    epoch: int
    target: str | None
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """Try to claim the stream."""

    stream: int
    why: str


Effect = Drop | Adopt | HandOver | Release | Claim
Move = HandOver | Release


def decide(
    view: View,
    running: Mapping[int, Running],
    dampers: Dampers,
    *,
    busy: Collection[int] = (),
    is_suspected: bool = False,
    planned: Plan | None = None,
) -> list[Effect]:
    """The effects that bring member `dampers.me` in line with the view, which the dampers have observed.

    `view.claims` holds a claim of this member only if its present ZooKeeper session does. `running`: the
    streams that it runs; `busy`: streams that an effect is being carried out for, which are left alone.
    `is_suspected`: others believe that this process has ended, and may claim whatever it holds. `planned`:
    the plan for the view, if it is known already.
    """
    if is_suspected:
        idle = sorted(running.keys() - frozenset(busy))
        return [Drop(stream=stream, why="suspected by another member") for stream in idle]
    planned = plan(view) if planned is None else planned
    me, busy = dampers.me, frozenset(busy)
    claims = view.claims.items()
    mine = sorted((n, claim.epoch) for n, claim in claims if claim.member == me and n not in busy)
    member = _Member(me=me, view=view, running=running, busy=busy, dampers=dampers, mine=mine)
    # what it may no longer run comes first: everything else can wait
    effects: list[Effect] = [*_drops(member)]
    node = view.members.get(dampers.me)
    if node is not None and node.state == "draining":
        return [*effects, *_drain(member, planned)]
    effects += _adoptions(member)
    if node is not None:
        effects += _moves(member, planned)
    if node is not None and node.state == "active":
        effects += _bounded(member, _claims(member, planned))
    return effects


@dataclass(frozen=True, slots=True, kw_only=True)
class _Member:
    me: str
    view: View
    running: Mapping[int, Running]
    busy: frozenset[int]
    dampers: Dampers
    mine: list[tuple[int, int]]
    """Stream and epoch of each claim that it holds and that nothing is under way for, ascending."""

    @property
    def free_openings(self) -> int:
        """How many more streams may be opened.

        Only what is under way counts: a stream that waits may wait without end, and must not keep others from
        being claimed.
        """
        opening = sum(1 for run in self.running.values() if run.is_opening)
        claiming = len(self.busy - self.running.keys())
        return self.dampers.settings.openings_at_once - opening - claiming


def _drops(member: _Member) -> Iterator[Drop]:
    mine = dict(member.mine)
    for stream in sorted(member.running.keys() - member.busy):
        if mine.get(stream) != member.running[stream].epoch:
            yield Drop(stream=stream, why=_loss(member.view, stream, member.me))


def _adoptions(member: _Member) -> Iterator[Adopt]:
    for stream, epoch in member.mine:
        if stream not in member.running:
            yield Adopt(stream=stream, epoch=epoch)


def _drain(member: _Member, planned: Plan) -> list[Move]:
    """Everything leaves: live where there is a recipient and the stream can be copied, else by a release."""
    effects: list[Move] = []
    for stream, epoch in member.mine:
        target, run = planned.owner.get(stream), member.running.get(stream)
        can_travel = run is not None and run.is_ready and not member.dampers.failed_moves.must_replay(stream)
        if target is not None and can_travel:
            effects.append(
                HandOver(stream=stream, epoch=epoch, target=target, why="draining", or_release=True)
            )
        else:
            effects.append(Release(stream=stream, epoch=epoch, target=target, why="draining"))
    return _startable(member, effects)


def _moves(member: _Member, planned: Plan) -> list[Move]:
    """Running streams that the plan gives to another member, unless a damper holds them here.

    Those whose handover has failed come last, in turns; after a few failures they are released.
    """
    view, dampers = member.view, member.dampers
    moves: list[Move] = []
    for stream, epoch in sorted(member.mine, key=lambda mine: dampers.failed_moves.turn(mine[0])):
        target, run = planned.owner.get(stream), member.running.get(stream)
        if target is None or target == member.me or dampers.holds_back(target):
            continue
        if run is None or run.epoch != epoch or not run.is_ready:
            continue
        # an operator knows better than a damper, so a pin does not wait for the stream's rest
        if view.pins.get(stream) == target:
            why = f"pinned to {target}"
        elif dampers.rests(stream):
            continue
        else:
            why = f"the share of {member.me} is {planned.quota.get(member.me, 0)} of {view.count}"
        kind = Release if dampers.failed_moves.must_replay(stream) else HandOver
        moves.append(kind(stream=stream, epoch=epoch, target=target, why=why))
    return _startable(member, moves)


def _startable(member: _Member, moves: list[Move]) -> list[Move]:
    """As many of the moves as may be under way, in count and in bytes; a single one whatever its size."""
    settings, claims, running = member.dampers.settings, member.view.claims, member.running
    sizes = {stream: running[stream].bytes for stream in running}
    under_way = [n for n in member.busy if n in claims and claims[n].member == member.me]
    count, held = len(under_way), sum(sizes.get(n, 0) for n in under_way)
    left = Counter(move.target for move in moves)
    found: list[Move] = []
    for move in moves:
        size = sizes.get(move.stream, 0) if isinstance(move, HandOver) else 0
        if count >= settings.moves_at_once:
            break
        if count and held + size > settings.move_bytes_at_once:
            continue  # smaller ones go first
        count, held = count + 1, held + size
        found.append(replace(move, left=left[move.target]) if isinstance(move, HandOver) else move)
        left[move.target] -= 1
    return found


def _claims(member: _Member, planned: Plan) -> Iterator[Claim]:
    """Unowned streams: those the plan gives to this member at once, those of absent members after a grace."""
    view, me, dampers = member.view, member.me, member.dampers
    settling, grace_ms = dampers.holds_back(me), dampers.settings.grace_ms
    # what it still runs it must drop first: the dropped state is the memory to open the stream from
    taken = {*view.claims, *member.running, *member.busy}
    overdue = []
    for stream in range(view.count):
        if stream in taken or (settling and not _is_own_or_new(view, me, stream)):
            continue
        if planned.owner.get(stream) == me:
            yield Claim(stream=stream, why=_reason(view, me, stream))
        elif dampers.unowned_ms(stream) >= grace_ms:
            overdue.append(stream)
    if not overdue:
        return
    # First a second plan, without the members that are held back, so that one member claims and the others do
    # not race. Plans differ where memories do: after two graces any member claims.
    present = {name: n for name, n in view.members.items() if name == me or not dampers.holds_back(name)}
    second = plan(replace(view, members=present))
    for stream in overdue:
        unowned_ms = dampers.unowned_ms(stream)
        if second.owner.get(stream) == me or unowned_ms >= 2 * grace_ms:
            yield Claim(stream=stream, why=f"unowned for {unowned_ms} ms")


def _bounded(member: _Member, claims: Iterator[Claim]) -> Iterator[Claim]:
    """All claims of streams that are meant for this member or were its own; of the others as many as may be
    opened now. Why: other members wait for what is meant for this one, but may claim the rest themselves.
    """
    free = member.free_openings
    for claim in claims:
        node = member.view.node(claim.stream)
        if member.me in (node.target, node.owner):
            yield claim
        elif free > 0:
            free -= 1
            yield claim


def _is_own_or_new(view: View, me: str, stream: int) -> bool:
    node = view.node(stream)
    return node.epoch == 0 or me in (node.owner, node.target)


def _reason(view: View, me: str, stream: int) -> str:
    node = view.node(stream)
    if node.target == me:
        return f"released to {me} by {node.owner}"
    if node.owner == me:
        return "the last owner comes back"
    return f"{node.owner} is gone" if node.owner else "never owned"


def _loss(view: View, stream: int, me: str) -> str:
    claim = view.claims.get(stream)
    if claim is None:
        return "the claim is gone"
    return "claimed in another epoch" if claim.member == me else f"claimed by {claim.member}"
