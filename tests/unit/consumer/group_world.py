"""Several members over one ZooKeeper and one broker, in memory and on virtual time.

`join` starts a member, `stop` asks one to leave, `kill` ends one at once; its ZooKeeper session then lives on
until it expires.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import msgspec

from services.consumer.core.commits.turn import StreamLimits
from services.consumer.core.handover.rules import HandoverLimits
from services.consumer.core.ownership.dampers import OwnershipSettings
from services.consumer.member.effects import Pace
from services.consumer.member.member import Member
from services.consumer.stream.context import GroupContext
from services.consumer.stream.worker import StreamWorker
from shared.model.cluster import MemberNode, StreamNode
from shared.model.group import GroupSettings
from shared.model.names import Names
from tests.fakes.coordinator import InMemoryCoordinator, ZnodeStore
from tests.fakes.event_sink import InMemoryEventSink
from tests.fakes.listeners import InMemoryListeners, ListenerNetwork
from tests.fakes.peers import InMemoryPeers, PeerNetwork
from tests.fakes.virtual_time import until
from tests.unit.consumer.stream_world import LONG, HangingLog, StreamWorld

TIMEOUT_S = 6.0
RELEASE_S = 20.0


@dataclass(slots=True)
class Joined:
    """One member, as the test holds it."""

    coordinator: InMemoryCoordinator
    member: Member
    log: HangingLog
    stop: asyncio.Event
    task: asyncio.Task[None]

    def worker(self, stream: int) -> StreamWorker:
        """The worker of a stream that it runs."""
        worker = self.member.effect_runner.workers.worker(stream)
        assert worker is not None
        return worker

    @property
    def running(self) -> list[int]:
        """The streams whose log it reads."""
        return [worker.stream for worker in self.member.workers if worker.state == "running"]

    @property
    def session_id(self) -> int:
        """Its ZooKeeper session."""
        assert self.coordinator.session_id is not None
        return self.coordinator.session_id


class GroupWorld(StreamWorld):
    """A group of `count` streams."""

    def __init__(self, settings: GroupSettings, count: int) -> None:
        super().__init__(settings)
        self.count = count
        self.store = ZnodeStore(clock=asyncio.get_running_loop().time)
        self.members: dict[str, Joined] = {}
        self.peers = PeerNetwork()
        self.listeners = ListenerNetwork()
        self.lives = 0
        self.event_sink = InMemoryEventSink()
        self.pace = Pace(drain_s=RELEASE_S)
        self.limits = HandoverLimits()

    async def join(self, name: str) -> Joined:
        """Starts a member."""
        log = HangingLog(self.broker, name)
        self.listeners.silent.discard(f"http://{name}")
        coordinator = InMemoryCoordinator(
            self.store,
            name,
            count=self.count,
            session_timeout_s=TIMEOUT_S,
            is_fenced=self.settings.delivery == "exactly_once",
        )
        await coordinator.ensure_group(self.settings)
        context = GroupContext(
            group="default",
            settings=self.settings,
            limits=StreamLimits(commit_s=0.5),
            log=log,
            now_s=asyncio.get_running_loop().time,
            wall_ms=self.wall_ms,
            uniform=lambda: 1.0,
        )
        self.lives += 1
        member = Member(
            coordinator=coordinator,
            context=context,
            node=MemberNode(address=f"http://{name}", since=self.lives),
            peers=InMemoryPeers(self.peers, f"http://{name}"),
            listeners=InMemoryListeners(self.listeners, f"http://{name}"),
            settings=OwnershipSettings(),
            pace=self.pace,
            limits=self.limits,
            emit=self.event_sink.emit,
        )
        self.peers.hint_stores[f"http://{name}"] = member.hint_store
        self.listeners.open.add(f"http://{name}")
        stop = asyncio.Event()
        task = asyncio.create_task(member.run(stop), name=name)
        self.members[name] = Joined(coordinator, member, log, stop, task)
        return self.members[name]

    async def settled(self) -> None:
        """Returns when every stream is read by one member, and shares differ by one at most."""

        def is_settled() -> bool:
            shares = [one.running for one in self.members.values()]
            sizes = [len(share) for share in shares]
            return sorted(n for share in shares for n in share) == list(range(self.count)) and (
                max(sizes) - min(sizes) <= 1
            )

        await until(is_settled)

    async def kill(self, name: str, *, with_host: bool = True) -> int:
        """Ends a member at once; returns its ZooKeeper session, which lives on.

        Without its host, the host refuses connections to its port from then on.
        """
        one = self.members.pop(name)
        one.task.cancel()
        await asyncio.wait([one.task])
        self.peers.hint_stores.pop(f"http://{name}", None)
        if with_host:
            self.listeners.silent.add(f"http://{name}")
        self.listeners.close(f"http://{name}")
        one.coordinator.zookeeper.disconnect()
        return one.session_id

    async def stop(self, name: str) -> float:
        """Asks a member to leave; returns how many seconds that took."""
        one, loop = self.members.pop(name), asyncio.get_running_loop()
        begun_s = loop.time()
        one.stop.set()
        await one.task
        self.listeners.close(f"http://{name}")  # last
        return loop.time() - begun_s

    def node_of(self, stream: int) -> StreamNode:
        """The data of the stream's znode."""
        data = self.store.znodes[Names().stream("default", stream)].data
        return msgspec.json.decode(data, type=StreamNode)

    async def committed(self) -> None:
        """Returns when all of every stream's log is committed."""
        await until(lambda: all(map(self.is_committed, range(self.count))))

    async def end(self) -> None:
        """Stops all members."""
        await asyncio.gather(*(self.stop(name) for name in list(self.members)))


async def settled_group(count: int, *names: str) -> GroupWorld:
    """A group whose members share `count` streams."""
    world = GroupWorld(LONG, count)
    for name in names:
        await world.join(name)
    await world.settled()
    return world
