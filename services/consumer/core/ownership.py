"""What one member should do now about who owns what: claims, releases, and getting both in line.

Pure. From the view, its plan and what the member runs comes a list of effects, in the order in which they
must happen; the member carries them out and asks again whenever the view or what it runs has changed.
No master: the plan is the same for everybody, so at most one member thinks a stream its own.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace

from shared.balance import Plan, plan
from shared.cluster import View


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnershipSettings:
    """`settle_ms` must be more than a reconnection takes (see shared/zookeeper.py)."""

    grace_ms: int = 5000
    """An unowned stream is left this long to the member that the plan names."""
    settle_ms: int = 3000
    """So young a ZooKeeper session claims only what was, is meant for, or nobody's: ZooKeeper may have been
    gone for everybody, and the others be about to come back for theirs."""
    shun_ms: int = 60_000
    """A member that let its turn pass is given no running stream for so long."""
    releases_at_once: int = 32
    """Streams under way to another member at a time, so that the rest goes on meanwhile."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What a member remembers of earlier views; `now_ms` and all times are of one clock.

    `unowned_since`: stream → since when it has been seen unowned without a break; `passed`: member →
    when it last let a turn pass, that is, left a stream that the plan named it for unowned for a grace.
    """

    now_ms: int = 0
    unowned_since: Mapping[int, int] = field(default_factory=dict)
    passed: Mapping[str, int] = field(default_factory=dict)


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


Effect = Drop | Adopt | Release | Claim


def look(previous: Seen, view: View, now_ms: int, settings: OwnershipSettings) -> Seen:
    """What is remembered after having seen this view now."""
    unowned_since = {
        n: previous.unowned_since.get(n, now_ms) for n in range(view.count) if n not in view.claims
    }
    passed = {name: at_ms for name, at_ms in previous.passed.items() if now_ms - at_ms < settings.shun_ms}
    if any(now_ms - since_ms >= settings.grace_ms for since_ms in unowned_since.values()):
        wanted = plan(view)
        for stream, since_ms in unowned_since.items():
            if now_ms - since_ms >= settings.grace_ms and stream in wanted.owner:
                passed[wanted.owner[stream]] = now_ms
    return Seen(now_ms=now_ms, unowned_since=unowned_since, passed=passed)


def decide(
    view: View,
    me: str,
    running: Mapping[int, int],
    *,
    busy: Collection[int] = (),
    session_age_ms: int,
    seen: Seen,
    settings: OwnershipSettings,
) -> list[Effect]:
    """The effects that bring member `me` in line with the view.

    `view.claims` holds a claim of `me` only if its present ZooKeeper session does. `running`: stream →
    epoch of what it runs; `busy`: streams with a claim, opening, stop or release under way, which are left
    alone; `seen`: from `look` at this view.
    """
    wanted = plan(view)
    idle = _Member(me=me, running=running, busy=frozenset(busy), view=view)
    effects: list[Effect] = [*_drops(idle)]
    node = view.members.get(me)
    if node is None or node.state != "draining":
        effects += _adoptions(idle)
    if node is not None:
        effects += _releases(idle, wanted, node.state == "draining", seen, settings)
    if node is not None and node.state == "active":
        settled = session_age_ms >= settings.settle_ms
        effects += (
            claim
            for claim in _claims(idle, wanted, seen, settings)
            if settled or _may_claim_unsettled(view, me, claim.stream)
        )
    return effects


@dataclass(frozen=True, slots=True, kw_only=True)
class _Member:
    me: str
    running: Mapping[int, int]
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
        if mine.get(stream) != member.running[stream]:
            yield Drop(stream=stream, why=_loss(member.view, stream, member.me))


def _adoptions(member: _Member) -> Iterator[Adopt]:
    for stream, epoch in member.mine:
        if stream not in member.running:
            yield Adopt(stream=stream, epoch=epoch)


def _releases(
    member: _Member, wanted: Plan, is_draining: bool, seen: Seen, settings: OwnershipSettings
) -> list[Release]:
    """Streams that are somebody else's by the plan; all of them, run or not, when draining."""
    share = f"its share is {wanted.quota.get(member.me, 0)} of {member.view.count}"
    releases = []
    for stream, epoch in member.mine:
        target = wanted.owner.get(stream)
        if is_draining:
            releases.append(Release(stream=stream, epoch=epoch, target=target, why="draining"))
        elif member.running.get(stream) == epoch and target not in (None, member.me, *seen.passed):
            releases.append(Release(stream=stream, epoch=epoch, target=target, why=share))
    claims = member.view.claims
    under_way = sum(1 for stream in member.busy if stream in claims and claims[stream].member == member.me)
    return releases[: max(0, settings.releases_at_once - under_way)]


def _claims(member: _Member, wanted: Plan, seen: Seen, settings: OwnershipSettings) -> Iterator[Claim]:
    """Unowned streams: planned ones at once; after a grace those of members that do not act."""
    view, me = member.view, member.me
    unowned = {n: seen.now_ms - at for n, at in seen.unowned_since.items() if n not in member.busy}
    overdue = []
    for stream, age_ms in unowned.items():
        if wanted.owner.get(stream) == me:
            yield Claim(stream=stream, why=_reason(view, me, stream))
        elif age_ms >= settings.grace_ms:
            overdue.append(stream)
    if not overdue:
        return
    # who let a turn pass is left out of a second plan; after two graces whoever comes first takes it
    present = {name: node for name, node in view.members.items() if name == me or name not in seen.passed}
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
