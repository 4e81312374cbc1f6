"""Groups in a ZooKeeper in memory, and control over them; a test sets what Kafka says of their logs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import httpx
import msgspec
from fastapi import FastAPI

from services.control.adapters.znodes.cluster import ZooKeeperCluster
from services.control.adapters.znodes.groups import ZooKeeperGroups
from services.control.adapters.znodes.operations import ZooKeeperOperations
from services.control.core.groups.rewinds import StreamFacts
from services.control.http.api.groups import groups_routes
from services.control.http.api.operations import operations_routes
from services.control.live.acts.actions import Actions
from services.control.live.acts.effects import Effects
from services.control.live.acts.groups import Groups
from services.control.live.acts.operations import Operations
from services.control.live.view.cluster_view import ClusterView
from shared.model.cluster import MemberNode
from shared.model.events import Event
from shared.model.group import GroupSettings
from shared.model.names import Names
from shared.model.routing import initial_table
from shared.model.start import Cut
from shared.service.http import install_problems
from tests.fakes.coordinator import InMemoryZooKeeper, ZnodeStore
from tests.unit.control.operators_world import Group, InMemoryDrain, InMemoryPauses, InMemoryPins
from tests.unit.control.sources import InMemoryMembers, InMemoryOffsets, InMemoryProducers

NAMES = Names()
STREAMS = 2


@dataclass
class InMemoryRewinds:
    """A `RewindSource`; `used`: names of groups that have run; `cut`: those whose sessions are gone;
    `looked`: whose sessions were looked for.
    """

    streams: dict[int, StreamFacts] = field(default_factory=dict)
    used: set[str] = field(default_factory=set)
    cut: set[str] = field(default_factory=set)
    asked: list[int | None] = field(default_factory=list)
    looked: set[Cut] = field(default_factory=set)

    async def facts(
        self, group: str, before: Mapping[int, int | None], time_ms: int | None
    ) -> Mapping[int, StreamFacts]:
        self.asked.append(time_ms)
        return {
            stream: self.streams.get(stream, StreamFacts(first=0, end=0, before=start))
            for stream, start in before.items()
        }

    async def has_sessions_since(self, cut: Cut, stream: int, offset: int) -> bool:
        self.looked.add(cut)
        return cut.group not in self.cut

    async def appended(self, starts: Mapping[int, int]) -> Mapping[int, int]:
        return {stream: 1_000 + start for stream, start in starts.items() if start > 0}

    async def is_unused(self, group: str) -> bool:
        return group not in self.used


def groups_over(view: ClusterView, operations: Operations, znodes: ZnodeStore) -> Groups:
    """Groups on a view, kept in that ZooKeeper, with empty logs."""
    store = ZooKeeperGroups(InMemoryZooKeeper(znodes), NAMES)
    return Groups(view, operations, store, InMemoryRewinds(), Actions(lambda event: None), NAMES)


class GroupsWorld:
    """Control's face over the groups; the group `default` has two streams and no members."""

    def __init__(self) -> None:
        self.znodes = ZnodeStore()
        self.zookeeper = InMemoryZooKeeper(self.znodes)
        self.rewinds, self.offsets = InMemoryRewinds(), InMemoryOffsets()
        self.events: list[Event] = []
        self.view = ClusterView(
            ZooKeeperCluster(InMemoryZooKeeper(self.znodes), NAMES),
            self.offsets,
            InMemoryMembers(),
            InMemoryProducers(),
            NAMES,
            refresh_s=0.5,
            status_window_s=20.0,
        )
        group = Group(STREAMS, "")
        actions = Actions(self.events.append)
        self.operations = Operations(
            self.view,
            Effects(self.view, InMemoryPins(group), InMemoryDrain(group), InMemoryPauses(group)),
            ZooKeeperOperations(self.zookeeper, NAMES),
            actions,
            timeout_s=60,
            look_every_s=1,
        )
        store = ZooKeeperGroups(self.zookeeper, NAMES)
        self.groups = Groups(self.view, self.operations, store, self.rewinds, actions, NAMES)
        app = FastAPI()
        install_problems(app)
        app.include_router(operations_routes(self.operations, self.groups))
        app.include_router(groups_routes(self.groups))
        self.http = httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://control")

    async def fill(self) -> None:
        """The group `default`, as its first member made it."""
        await self.zookeeper.make_path(NAMES.groups)
        await self.zookeeper.create(NAMES.table, initial_table(STREAMS).encode())
        await self.zookeeper.create(NAMES.group("default"), GroupSettings(gap_ms=7).encode())
        for path in (NAMES.streams("default"), NAMES.claims("default"), NAMES.members("default")):
            await self.zookeeper.create(path)
        await self.view.step()

    async def join(self, group: str, member: str) -> None:
        """A member joins a group."""
        await self.zookeeper.create(NAMES.member(group, member), msgspec.json.encode(MemberNode(address="x")))
        await self.view.step()

    async def post(self, *, key: str = "", **body: Any) -> httpx.Response:
        """The answer to an operation; control has looked again since."""
        headers = {"Idempotency-Key": key} if key else {}
        answer = await self.http.post("/operations", json=body, headers=headers)
        await self.view.step()
        return answer

    async def delete(self, group: str, reason: str = "") -> httpx.Response:
        """The answer to a deletion; control has looked again since."""
        answer = await self.http.delete(f"/groups/{group}", params={"reason": reason})
        await self.view.step()
        return answer

    async def current(self, group: str) -> dict[str, Any]:
        """What is current in a group."""
        answer: dict[str, Any] = (await self.http.get(f"/groups/{group}/current")).json()
        return answer
