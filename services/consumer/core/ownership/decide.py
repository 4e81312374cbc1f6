"""What one member should do now about who owns what: claims, handovers, releases, and getting all in line.

Pure. From the view, its plan and what the member runs comes a list of effects, in the order in which they
must happen; the member carries them out and asks again whenever the view or what it runs has changed.
No master: the plan is the same for everybody, so at most one member thinks a stream its own.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace

from services.consumer.core.ownership.observations import Observations, OwnershipSettings
from shared.model.balance import Plan, plan
from shared.model.cluster import View


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """A stream that the member runs, in `epoch`.

    `is_ready`: it reads the log's end, so its sessions can be copied; `rests`: it has just come here from
    another member, and only an operator's pin or a drain moves it; `failed`: a handover of it has failed
    while draining.
    """

    epoch: int
    is_ready: bool = True
    rests: bool = False
    failed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Drop:
    """Stop running the stream without a commit: the claim is not (or in another epoch) this member's."""

    stream: int
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Adopt:
    """Confirm a claim that this ZooKeeper session holds but the member does not run, and run it."""

    stream: int
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class HandOver:
    """Give a running stream, with its open sessions, to `target`."""

    stream: int
    epoch: int
    target: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """Stop, commit and give the claim up in favour of `target` (None: nobody is there to take it)."""

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


def decide(
    view: View,
    me: str,
    running: Mapping[int, Running],
    *,
    busy: Collection[int] = (),
    session_age_ms: int,
    observed: Observations,
    settings: OwnershipSettings,
    shunned: Collection[str] = (),
    moves_left: int = 1_000_000,
) -> list[Effect]:
    """The effects that bring member `me` in line with the view.

    `view.claims` holds a claim of `me` only if its present ZooKeeper session does. `running`: what it runs;
    `busy`: streams with a claim, stop or handover under way, which are left alone; `seen`: from `look` at
    this view; `shunned`: members that lately refused an offer; `moves_left`: how many handovers may
    begin now, but for a drain's.
    """
    wanted = plan(view)
    idle = _Member(me=me, running=running, busy=frozenset(busy), view=view)
    effects: list[Effect] = [*_drops(idle)]
    node = view.members.get(me)
    if node is None or node.state != "draining":
        effects += _adoptions(idle)
    if node is not None and node.state == "draining":
        effects += _drain(idle, wanted, settings)
    elif node is not None:
        effects += _moves(idle, wanted, observed, settings, {*observed.passed, *shunned})[
            : max(0, moves_left)
        ]
    if node is not None and node.state == "active":
        settled = session_age_ms >= settings.settle_ms
        claims = [
            claim
            for claim in _claims(idle, wanted, observed, settings)
            if settled or _may_claim_unsettled(view, me, claim.stream)
        ]
        effects += _bounded(idle, claims, settings)
    return effects


@dataclass(frozen=True, slots=True, kw_only=True)
class _Member:
    me: str
    running: Mapping[int, Running]
    busy: frozenset[int]
    view: View

    @property
    def mine(self) -> Iterator[tuple[int, int]]:
        """Stream and epoch of every claim of its own on which nothing is under way, ascending."""
        for stream, claim in sorted(self.view.claims.items()):
            if claim.member == self.me and stream not in self.busy:
                yield stream, claim.epoch


def _drops(member: _Member) -> Iterator[Drop]:
    mine = dict(member.mine)
    for stream in sorted(member.running.keys() - member.busy):
        if mine.get(stream) != member.running[stream].epoch:
            yield Drop(stream=stream, why=_loss(member.view, stream, member.me))


def _adoptions(member: _Member) -> Iterator[Adopt]:
    for stream, epoch in member.mine:
        if stream not in member.running:
            yield Adopt(stream=stream, epoch=epoch)


def _drain(member: _Member, wanted: Plan, settings: OwnershipSettings) -> list[Effect]:
    """Everything goes: live where somebody is there and it can be copied, else by an orderly release."""
    effects: list[Effect] = []
    for stream, epoch in member.mine:
        target, run = wanted.owner.get(stream), member.running.get(stream)
        if target is not None and run is not None and run.is_ready and not run.failed:
            effects.append(HandOver(stream=stream, epoch=epoch, target=target, why="draining"))
        else:
            effects.append(Release(stream=stream, epoch=epoch, target=target, why="draining"))
    return effects[: _free(member, settings)]


def _moves(
    member: _Member,
    wanted: Plan,
    observed: Observations,
    settings: OwnershipSettings,
    shunned: Collection[str],
) -> list[HandOver]:
    """Running streams that are somebody else's by the plan, if that one has been there for a while."""
    view, moves = member.view, []
    for stream, epoch in member.mine:
        target, run = wanted.owner.get(stream), member.running.get(stream)
        if target is None or target == member.me or target in shunned:
            continue
        if run is None or run.epoch != epoch or not run.is_ready:
            continue
        if run.rests and view.pins.get(stream) != target:
            continue
        if observed.is_steady(target, view.members[target].address, settings.steady_ms):
            why = _reason_to_move(view, wanted, member.me, stream)
            moves.append(HandOver(stream=stream, epoch=epoch, target=target, why=why))
    return moves[: _free(member, settings)]


def _free(member: _Member, settings: OwnershipSettings) -> int:
    """How many more streams may be under way to others."""
    claims = member.view.claims
    under_way = sum(1 for stream in member.busy if stream in claims and claims[stream].member == member.me)
    return max(0, settings.moves_at_once - under_way)


def _reason_to_move(view: View, wanted: Plan, me: str, stream: int) -> str:
    target = wanted.owner[stream]
    if view.pins.get(stream) == target:
        return f"pinned to {target}"
    return f"the share of {me} is {wanted.quota.get(me, 0)} of {view.count}"


def _bounded(member: _Member, claims: list[Claim], settings: OwnershipSettings) -> Iterator[Claim]:
    """What was meant for or last owned by this member at once, the rest as openings come to an end."""
    opening = sum(1 for run in member.running.values() if not run.is_ready)
    free = settings.openings_at_once - opening - len(member.busy)
    for claim in claims:
        node = member.view.node(claim.stream)
        if member.me in (node.target, node.owner):
            yield claim
        elif free > 0:
            free -= 1
            yield claim


def _claims(
    member: _Member, wanted: Plan, observed: Observations, settings: OwnershipSettings
) -> Iterator[Claim]:
    """Unowned streams: planned ones at once; after a grace those of members that do not act."""
    view, me = member.view, member.me
    taken = {*member.busy, *member.running}  # what it still runs it drops first, and keeps as a memory
    unowned = {n: observed.now_ms - at for n, at in observed.unowned_since.items() if n not in taken}
    overdue = []
    for stream, age_ms in unowned.items():
        if wanted.owner.get(stream) == me:
            yield Claim(stream=stream, why=_reason(view, me, stream))
        elif age_ms >= settings.grace_ms:
            overdue.append(stream)
    if not overdue:
        return
    # who let a turn pass is left out of a second plan; after two graces whoever comes first takes it
    present = {name: node for name, node in view.members.items() if name == me or name not in observed.passed}
    second = plan(replace(view, members=present))
    for stream in overdue:
        if second.owner.get(stream) == me or unowned[stream] >= 2 * settings.grace_ms:
            yield Claim(stream=stream, why=f"unowned for {unowned[stream]} ms")


def _may_claim_unsettled(view: View, me: str, stream: int) -> bool:
    node = view.node(stream)
    return node.epoch == 0 or node.owner == me or node.target == me


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
