"""The plan: which member should own which stream, computed from a view alone.

Pure. Every member (and control) computes the same plan from the same view, so no master is needed. With n
streams and c active members, each gets floor(n/c) streams, and n mod c of them one more, so shares differ by
at most 1. A stream pinned to an active member goes to that member. A member with more pins than its share
owns exactly its pins, and the others share the rest evenly. Within these quotas as few streams as possible
leave their holder (the member that claims them or that their release targets), and as many unowned ones as
possible return to their last owner. Like Kafka's sticky assignor, the plan prefers what is already there.

Ordasity, an older library that shares work through ZooKeeper, lets each member claim up to ceil(n/c). That
bounds a share only from above: for 13 streams and 5 members, 3, 3, 3, 3, 1 satisfies it and would stay. Hence
a quota for each member.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial

from shared.model.cluster import View

_HELD, _REMEMBERED, _NOTHING = 0, 1, 2
"""A member's stake in a stream: its claim, or a release that targets it; its last ownership; none.

A lower number is a higher stake, since the members are sorted by it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """A claimed stream that its owner should hand to `target`, and the reason in words."""

    stream: int
    source: str
    target: str
    why: str


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The planned owner of every stream (none without an active member), the quotas, and the moves.

    `sum(quota.values()) == len(owner)`, and quotas differ by at most 1, except for members with more pins.
    """

    owner: Mapping[int, str]
    quota: Mapping[str, int]
    find_moves: Callable[[], tuple[Move, ...]] = field(default=tuple, repr=False, compare=False)

    @cached_property
    def moves(self) -> tuple[Move, ...]:
        """What has to move, by stream. Members plan again with each change, and need no reasons in words."""
        return self.find_moves()

    def streams_of(self, member: str) -> list[int]:
        """The streams that the member should own, ascending."""
        return [stream for stream, owner in self.owner.items() if owner == member]


def plan(view: View) -> Plan:
    """The plan for a view. Cost: about 10 ms for 4,096 streams and 50 members.

    13 streams over 5 members:

    >>> from shared.model.cluster import MemberNode
    >>> members = {name: MemberNode(address="") for name in "abcde"}
    >>> list(plan(View(count=13, members=members)).quota.values())
    [3, 3, 3, 2, 2]

    With five of them pinned to one member, and one to an absent member:

    >>> pinned = plan(View(count=13, members=members, pins=dict.fromkeys(range(8, 13), "e") | {0: "z"}))
    >>> list(pinned.quota.values()), pinned.streams_of("e")
    ([2, 2, 2, 2, 5], [8, 9, 10, 11, 12])
    """
    active = sorted(name for name, node in view.members.items() if node.state == "active")
    if not active:
        return Plan(owner={}, quota={})
    pinned = _effective_pins(view, active)
    held, remembered = _stakes(view, set(active), pinned)
    quota = _quotas(view.count, active, pinned, held, remembered)
    # pins first, then what members hold, then what they owned last; unowned streams fill the rest
    owner = dict(pinned)
    # what each member may still take; every step below lowers it
    room = dict(quota)
    for member in pinned.values():
        room[member] -= 1
    for member in active:
        # a target first keeps what was released to it: that stream has already been paused for the move
        streams = sorted(held[member], key=lambda stream: (stream in view.claims, stream))[: room[member]]
        owner.update(dict.fromkeys(streams, member))
        room[member] -= len(streams)
    for member in active:
        back = [stream for stream in remembered[member] if stream not in owner][: room[member]]
        owner.update(dict.fromkeys(back, member))
        room[member] -= len(back)
    free = (stream for stream in range(view.count) if stream not in owner)
    places = (member for member in active for _ in range(room[member]))
    owner.update(zip(free, places, strict=True))
    ordered = {stream: owner[stream] for stream in range(view.count)}
    return Plan(owner=ordered, quota=quota, find_moves=partial(_moves, view, ordered, quota, pinned, held))


def _effective_pins(view: View, active: list[str]) -> dict[int, str]:
    """The pins of existing streams to active members, ascending."""
    return {n: view.pins[n] for n in sorted(view.pins) if 0 <= n < view.count and view.pins[n] in active}


def _stakes(
    view: View, active: set[str], pinned: Collection[int]
) -> tuple[dict[str, list[int]], dict[str, list[int]]]:
    """For each member the streams that it holds, and the unowned ones that it owned last; ascending.

    Pinned streams are left out.
    """
    held: dict[str, list[int]] = defaultdict(list)
    remembered: dict[str, list[int]] = defaultdict(list)
    for stream in range(view.count):
        if stream in pinned:
            continue
        claim = view.claims.get(stream)
        if claim is not None:
            if claim.member in active:
                held[claim.member].append(stream)
            continue
        node = view.node(stream)
        # a release names its target: the stream is on its way there, so it counts as held
        if node.target in active:
            held[node.target].append(stream)
        elif node.owner in active:
            remembered[node.owner].append(stream)
    return held, remembered


def _quotas(
    count: int,
    active: list[str],
    pinned: Mapping[int, str],
    held: Mapping[str, list[int]],
    remembered: Mapping[str, list[int]],
) -> dict[str, int]:
    """The floor for every member, and one more where it keeps most: a held stream before a remembered one.

    A member with more pins than the floor gets exactly its pins, and the others share the rest.
    """
    full: dict[str, int] = {}
    pins = Counter(pinned.values())
    sharers, floor, overflow = active, 0, 0
    # a member with more pins than the floor stops sharing, which lowers the floor of the others: repeat
    while True:
        floor, overflow = divmod(count - sum(full.values()), len(sharers))
        above = {member: pins[member] for member in sharers if pins[member] > floor}
        if not above:
            break
        full |= above
        sharers = [member for member in sharers if member not in above]

    def gain(member: str) -> int:
        # one more stream is worth most to a member that would otherwise hand one over
        keeps = pins[member] + len(held.get(member, ()))
        if keeps > floor:
            return _HELD
        return _REMEMBERED if keeps + len(remembered.get(member, ())) > floor else _NOTHING

    # the name breaks ties, so that all members call the same ones lucky
    lucky = set(sorted(sharers, key=lambda member: (gain(member), member))[:overflow])
    return {member: full.get(member, floor + (member in lucky)) for member in active}


def _moves(
    view: View,
    owner: Mapping[int, str],
    quota: Mapping[str, int],
    pinned: Mapping[int, str],
    held: Mapping[str, list[int]],
) -> tuple[Move, ...]:
    pins = Counter(pinned.values())
    moves = []
    for stream in sorted(view.claims):
        source, target = view.claims[stream].member, owner.get(stream)
        if target is None or target == source:
            continue
        node = view.members.get(source)
        if node is None:
            why = f"{source} is gone"
        elif node.state != "active":
            why = f"{source} is {node.state}"
        elif stream in pinned:
            why = f"pinned to {target}"
        else:
            why = f"{source} holds {len(held[source]) + pins[source]}, its share is {quota[source]}"
        moves.append(Move(stream=stream, source=source, target=target, why=why))
    return tuple(moves)
