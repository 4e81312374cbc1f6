"""A group whose members carry operations out, with in-memory twins of the pins and the drain.

`Group` holds a view and statuses; `act` carries the plan out as members would, some streams at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import msgspec

from services.control.adapters.znodes.operations import ZooKeeperOperations
from services.control.core.events.movements import Movement
from services.control.core.report.observed import (
    Answers,
    Cluster,
    MemberStatus,
    Observed,
    StreamState,
    StreamStatus,
)
from services.control.core.report.observed import Group as ObservedGroup
from services.control.live.acts.actions import Actions
from services.control.live.acts.effects import Effects
from services.control.live.acts.operations import Operations
from shared.errors import PeerUnavailable, ZooKeeperUnavailable
from shared.model.balance import plan
from shared.model.cluster import ClaimNode, MemberNode, MemberState, PauseNode, View
from shared.model.events import Event
from shared.model.group import GroupSettings
from shared.model.names import DEFAULT_GROUP, Names
from tests.fakes.coordinator import InMemoryZooKeeper, ZnodeStore
from tests.unit.control.sources import InMemoryCluster, InMemoryMembers, Sources

TIMEOUT_S = 60.0
SESSIONS, BYTES = 10, 1000
"""The open sessions of every stream, and their size."""


class Group:
    """`count` streams, spread over active members by the plan."""

    def __init__(self, count: int, members: str) -> None:
        nodes = {name: MemberNode(address=f"http://{name}") for name in members}
        self.view = View(count=count, members=nodes)
        self.silent: set[str] = set()
        self.states: dict[int, StreamState] = {}
        self.act()

    def act(self, streams: int | None = None) -> None:
        """Carries the plan out for at most `streams` streams; a draining member without any leaves."""
        owner = plan(self.view).owner
        wrong = [n for n in range(self.view.count) if self.owner(n) != owner.get(n)]
        for stream in wrong[:streams]:
            self.give(stream, owner.get(stream))
        gone = {
            name
            for name, node in self.view.members.items()
            if node.state == "draining" and not self.view.streams_of(name)
        }
        members = {name: node for name, node in self.view.members.items() if name not in gone}
        self.view = replace(self.view, members=members)

    def owner(self, stream: int) -> str | None:
        """The member that has claimed the stream."""
        claim = self.view.claims.get(stream)
        return claim.member if claim is not None else None

    def give(self, stream: int, member: str | None) -> None:
        """Moves the claim to that member, in a higher epoch."""
        claims = dict(self.view.claims)
        before = claims.pop(stream, None)
        if member is not None:
            claims[stream] = ClaimNode(member=member, epoch=before.epoch + 1 if before else 1)
        self.view = replace(self.view, claims=claims)

    def pin(self, pins: Mapping[int, str]) -> None:
        """Replaces the pins."""
        self.view = replace(self.view, pins=dict(pins))

    def member(self, name: str, node: MemberNode | None) -> None:
        """Adds or changes the member, or (None) removes it with its claims."""
        members = {other: there for other, there in self.view.members.items() if other != name}
        claims = self.view.claims
        if node is not None:
            members[name] = node
        else:
            claims = {n: claim for n, claim in claims.items() if claim.member != name}
        self.view = replace(self.view, members=members, claims=claims)

    @property
    def cluster(self) -> Cluster:
        """The group in ZooKeeper."""
        group = ObservedGroup(settings=GroupSettings(), view=self.view)
        return Cluster(count=self.view.count, groups={DEFAULT_GROUP: group})

    @property
    def statuses(self) -> dict[tuple[str, str], MemberStatus]:
        """What the members report."""
        return {
            (DEFAULT_GROUP, name): MemberStatus(
                id=name,
                group=DEFAULT_GROUP,
                paused=self.view.pause is not None,
                streams=[
                    StreamStatus(
                        stream=n,
                        epoch=self.view.claims[n].epoch,
                        state=self.states.get(n, "running"),
                        open_sessions=SESSIONS,
                        state_bytes=BYTES,
                    )
                    for n in self.view.streams_of(name)
                ],
            )
            for name in self.view.members
            if name not in self.silent
        }

    @property
    def observed(self) -> Observed:
        """Everything, as control composes it."""
        silent = frozenset((DEFAULT_GROUP, name) for name in self.silent)
        return Observed(cluster=self.cluster, answers=Answers(statuses=self.statuses, silent=silent))


@dataclass
class InMemoryPins:
    """A `PinStore` of the group."""

    group: Group
    is_down: bool = False

    async def change(self, group: str, change: Callable[[Mapping[int, str]], dict[int, str]]) -> None:
        if self.is_down:
            raise ZooKeeperUnavailable("ZooKeeper is down for the test")
        assert group == DEFAULT_GROUP
        self.group.pin(change(self.group.view.pins))


@dataclass
class InMemoryDrain:
    """A `MemberDrain` of the group; `asked` holds (member, address, why) of every request.

    With `loses_answers` a member does what it is asked, and nobody hears of it.
    """

    group: Group
    is_down: bool = False
    loses_answers: bool = False
    asked: list[tuple[str, str, str]] = field(default_factory=list)

    async def drain(self, group: str, member: str, address: str, why: str) -> None:
        self._ask(member, address, why, "draining")

    async def undrain(self, group: str, member: str, address: str, why: str) -> None:
        self._ask(member, address, why, "active")

    def _ask(self, member: str, address: str, why: str, state: MemberState) -> None:
        if not self.is_down:
            self.asked.append((member, address, why))
            node = self.group.view.members[member]
            self.group.member(member, msgspec.structs.replace(node, state=state))
        if self.is_down or self.loses_answers:
            raise PeerUnavailable(f"{member} does not answer")


@dataclass
class InMemoryPauses:
    """A `PauseStore` of the group."""

    group: Group
    is_down: bool = False

    async def pause(self, group: str, pause: PauseNode) -> None:
        self._set(self.group.view.pause or pause)

    async def resume(self, group: str) -> None:
        self._set(None)

    def _set(self, pause: PauseNode | None) -> None:
        if self.is_down:
            raise ZooKeeperUnavailable("ZooKeeper is down for the test")
        self.group.view = replace(self.group.view, pause=pause)


class OperatorsWorld:
    """Operations over a group, kept in a ZooKeeper in memory; `look` does what control's refresh does."""

    def __init__(
        self,
        count: int = 6,
        members: str = "ab",
        events: list[Event] | None = None,
        movements: Callable[[str], Sequence[Movement]] = lambda group: (),
    ) -> None:
        self.movements = movements
        self.group = Group(count, members)
        self.pins = InMemoryPins(self.group)
        self.drain = InMemoryDrain(self.group)
        self.pauses = InMemoryPauses(self.group)
        self.znodes = ZnodeStore()
        self.sources = Sources(cluster=InMemoryCluster(), members=InMemoryMembers())
        self.now_s = 0.0
        self.view = self.sources.view()
        self.events: list[Event] = [] if events is None else events
        self.actions = Actions(self.events.append, lambda: int(self.now_s * 1000))
        self.operations = self.control()

    def control(self, zookeeper: InMemoryZooKeeper | None = None) -> Operations:
        """The operations of one more control, or of one that was started again."""
        return Operations(
            self.view,
            Effects(self.view, self.pins, self.drain, self.pauses),
            ZooKeeperOperations(zookeeper or InMemoryZooKeeper(self.znodes), Names()),
            self.actions,
            timeout_s=TIMEOUT_S,
            look_every_s=1.0,
            steady_s=lambda: self.now_s,
            wall_ms=lambda: int(self.now_s * 1000),
            movements=self.movements,
        )

    async def look(self) -> None:
        """Control reads everything and follows its operations."""
        self.sources.cluster.cluster = self.group.cluster
        self.sources.members.statuses = self.group.statuses
        await self.view.step()
        await self.operations.step()

    async def until_ended(self, operation_id: str, limit: int = 20) -> str:
        """Moves stream by stream until the operation has ended. Returns its state."""
        for _ in range(limit):
            self.group.act(streams=1)
            await self.look()
            if (operation := self.operations.operation_of(operation_id)).has_ended:
                return operation.state
        raise AssertionError(operation)
