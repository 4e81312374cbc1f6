"""A group in one process: members that run the real code, over simulated servers, on virtual time.

`World` starts, kills, freezes and thaws processes, appends fragments, and answers what a check asks. The
schedule of faults stands in `schedule.py`, what must hold in `verdict.py`.
"""

from __future__ import annotations

import asyncio
import contextvars
import random
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import msgspec

from services.consumer.adapters.zookeeper.coordinator import ZooKeeperCoordinator
from services.consumer.core.commits.turn import StreamLimits
from services.consumer.core.handover.rules import HandoverLimits
from services.consumer.core.ownership.dampers import OwnershipSettings
from services.consumer.member.effects import Pace
from services.consumer.member.member import Member
from services.consumer.stream.context import GroupContext
from shared.errors import KafkaUnavailable, NotFound, PeerUnavailable, Unavailable, ZooKeeperUnavailable
from shared.model.cluster import ClaimNode, MemberNode
from shared.model.events import Event
from shared.model.fragments import encode_marker
from shared.model.group import Delivery, GroupSettings
from shared.model.names import Names
from shared.zookeeper.znodes import Create, Delete, Set
from tests.fakes.log import InMemoryLog
from tests.fakes.virtual_time import PROCESS, VirtualLoop
from tests.reference import Rec
from tests.simulation.listeners import Firewalls, SimulatedListeners
from tests.simulation.log import SimulatedStreamLog
from tests.simulation.peers import SimulatedPeers
from tests.simulation.process import Process, causes_of
from tests.simulation.trace import Trace
from tests.simulation.wire import Weather, Wire
from tests.simulation.zookeeper import TIMEOUT_S, Ensemble, SimulatedZooKeeper

EPOCH_MS = 1_700_000_000_000
"""What the clocks on the wall show when virtual time begins."""
GROUP = "default"
SETTINGS = GroupSettings(
    gap_ms=2500,
    lateness_ms=500,
    idle_ms=3500,
    future_ms=1000,
    repeat_ms=2000,
    max_session_fragments=6,
    max_session_bytes=400,
    max_session_span_ms=9000,
)
"""Everything small, so that every rule bites within seconds."""
OWNERSHIP = OwnershipSettings(grace_ms=2000, settle_ms=1000, shun_ms=4000, steady_ms=200, flap_ms=4000)
MARGIN_S = TIMEOUT_S / 8
"""A commit that is sent while the lease is alive, and travels for no longer, arrives before its end."""
NAMES = Names()


@dataclass(kw_only=True)
class World:
    """`streams` streams in a group of the given delivery, without members yet."""

    seed: int
    streams: int
    delivery: Delivery = "exactly_once"
    max_replay_fragments: int = 16
    commit_s: float = 0.3
    hold_s: float = 30.0
    rest_s: float = 1.0
    openings_at_once: int = 32
    drain_s: float = 8.0
    max_body_bytes: int = HandoverLimits().max_body_bytes
    is_calm: bool = False
    loop: VirtualLoop = field(default_factory=VirtualLoop)
    processes: dict[str, Process] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)
    killed: list[asyncio.Task[None]] = field(default_factory=list)
    firewalls: Firewalls = field(default_factory=Firewalls)
    regrown: list[tuple[int, int, list[Rec]]] = field(default_factory=list)
    """Logs that lost their end, as they were before: stream, number, records."""

    def __post_init__(self) -> None:
        self.rng = random.Random(f"{self.seed} messages")
        self.context = contextvars.Context()
        self.trace = Trace(self.loop)
        self.settings = msgspec.structs.replace(SETTINGS, delivery=self.delivery)
        self.ensemble = Ensemble(self.loop, self.trace, self.context)
        self.ensemble.is_alive = self.processes.__contains__
        self.broker = InMemoryLog(self.settings, now_ms=self.wall_ms, note=self.trace.note)
        self.broker_offset_ms = 0
        self.lives: dict[str, int] = {}
        self.events: list[Event] = []
        self.bad: dict[int, tuple[str, int]] = {}
        """Stream → what fails in every life of its owner, and at which offset."""

    def wall_ms(self) -> int:
        """The broker's clock."""
        return EPOCH_MS + int(self.loop.now_s * 1000) + self.broker_offset_ms

    # processes

    def start(self, member_id: str) -> Process:
        """A new process of that member's id."""
        life = self.lives[member_id] = self.lives.get(member_id, 0) + 1
        name = f"{member_id}{life}"
        weathers = {end: Weather() for end in ("zookeeper", "log", "peers")}
        context = contextvars.Context()
        context.run(PROCESS.set, name)
        to_zookeeper = self._wire(weathers["zookeeper"], ZooKeeperUnavailable, in_order=True)
        zookeeper = SimulatedZooKeeper(self.ensemble, name, to_zookeeper, self.context)
        zookeeper.context = context
        process = Process(
            name=name,
            member_id=member_id,
            zookeeper=zookeeper,
            weathers=weathers,
            wires=[to_zookeeper],
            context=context,
            stop=asyncio.Event(),
        )
        self.processes[name] = process
        self.trace.note(name, "starts")
        process.task = self.loop.create_task(self._live(process), name=name, context=context)
        process.task.add_done_callback(partial(self._on_end, process), context=self.context)
        return process

    def kill(self, process: Process, how: str = "is killed") -> None:
        """Ends a process at once: no message that it sends from now on arrives."""
        self.trace.note(process.name, how)
        for wire in process.wires:
            wire.dead = True
        self.firewalls.end(process)
        self.loop.thaw(process.name)
        assert process.task is not None
        process.task.cancel()
        self.killed.append(process.task)
        del self.processes[process.name]

    def drain(self, process: Process) -> None:
        """Asks a process to hand over everything; it lives on, as after `POST /drain`."""
        if process.member is not None:
            self.trace.note(process.name, "is asked to drain")
            process.is_leaving = True
            self.loop.call_soon(process.member.departure.drain, "asked", context=process.context)

    def undrain(self, process: Process) -> None:
        """Asks a draining process to take streams again, as after `POST /undrain`."""
        assert process.member is not None
        self.trace.note(process.name, "is asked to undrain")
        process.is_leaving = False
        process.member.departure.undrain("asked")

    def leave(self, process: Process) -> None:
        """Asks a process to leave in order."""
        self.trace.note(process.name, "is asked to leave")
        process.is_leaving = True
        self.loop.call_soon(process.stop.set, context=process.context)

    async def _live(self, process: Process) -> None:
        """What `services/consumer/__main__.py` does."""
        zookeeper = process.zookeeper
        keeper = asyncio.create_task(zookeeper.keep(), name="zookeeper keeper")
        try:
            coordinator = ZooKeeperCoordinator(
                zookeeper,
                NAMES,
                GROUP,
                process.member_id,
                count=self.streams,
                address=f"http://{process.member_id}",
                is_fenced=self.delivery == "exactly_once",
            )
            await zookeeper.connected.wait()
            while not process.stop.is_set():
                try:
                    await coordinator.ensure_group(self.settings)
                    break
                except (Unavailable, NotFound):  # the latter when ZooKeeper is reset in this very moment
                    await asyncio.sleep(0.2)
            process.member = self._member(process, coordinator)
            await process.member.run(process.stop)
            await process.stop.wait()
        finally:
            keeper.cancel()
            zookeeper.end_session()

    def _member(self, process: Process, coordinator: ZooKeeperCoordinator) -> Member:
        to_log = self._wire(process.weathers["log"], KafkaUnavailable)
        process.wires.append(to_log)
        log = SimulatedStreamLog(
            self.broker,
            process.name,
            to_log,
            self.rng,
            self.context,
            partial(self.check_claim, process),
            self.bad,
        )
        context = GroupContext(
            group=GROUP,
            settings=self.settings,
            limits=StreamLimits(commit_s=self.commit_s, max_replay_fragments=self.max_replay_fragments),
            log=log,
            now_s=self.loop.time,
            wall_ms=lambda: EPOCH_MS + int(self.loop.now_s * 1000) + process.wall_offset_ms,
            uniform=self.rng.random,
        )
        to_peers = self._wire(process.weathers["peers"], PeerUnavailable)
        process.wires.append(to_peers)
        return Member(
            coordinator=coordinator,
            context=context,
            node=MemberNode(address=f"http://{process.member_id}", since=self.lives[process.member_id]),
            peers=SimulatedPeers(self, process.name, to_peers, self.rng),
            listeners=SimulatedListeners(self, process, self.rng),
            settings=replace(
                OWNERSHIP, rest_ms=int(self.rest_s * 1000), openings_at_once=self.openings_at_once
            ),
            pace=Pace(drain_s=self.drain_s),
            limits=HandoverLimits(min_lease_ms=300, hold_s=self.hold_s, max_body_bytes=self.max_body_bytes),
            emit=partial(self._note_event, process.name),
        )

    def _wire(self, weather: Weather, unavailable: Any, *, in_order: bool = False) -> Wire:
        return Wire(self.loop, self.rng, weather, unavailable, in_order=in_order)

    def _on_end(self, process: Process, task: asyncio.Task[None]) -> None:
        if self.processes.get(process.name) is not process:
            return  # it was killed
        del self.processes[process.name]
        self.firewalls.end(process)
        self.trace.note(process.name, "has left")
        if not task.cancelled() and (error := task.exception()) is not None:
            self.trace.note(process.name, "dies of", repr(error))
            self.wrong.append(f"{process.name} died of {causes_of(error)}")

    def process_at(self, address: str) -> Process | None:
        """The process that listens at an address now."""
        member_id = address.removeprefix("http://")
        return next((one for one in self.processes.values() if one.member_id == member_id), None)

    def _note_event(self, process: str, event: Event) -> None:
        self.events.append(event)
        fields = {name: getattr(event, name) for name in event.__struct_fields__}
        skipped = ("at", "group", "kind", "member")
        said = [f"{k} {v}" for k, v in fields.items() if k not in skipped and v not in (None, "")]
        self.trace.note(process, f"event {event.kind}", *said)
        if self.is_calm and event.kind == "handover" and not event.warm:
            self.wrong.append(f"{process} had to replay stream {event.stream} though nothing was lost")

    # fragments

    def append(self, stream: int, fields: dict[str, Any], at_ms: int | None = None) -> None:
        """Appends a fragment to a stream's log."""
        self.broker.append(stream, fields["key"].encode(), msgspec.json.encode(fields), at_ms)

    def append_marker(self, stream: int, time_ms: int | None) -> None:
        """Appends a marker, or a tick when there is no time."""
        self.broker.append(stream, None, encode_marker(time_ms))

    def pin(self, pins: dict[int, str]) -> None:
        """What an operator wants: which stream shall be whose."""
        self.trace.note("", "pins", pins)
        path, store = NAMES.pins(GROUP), self.ensemble.store
        data = msgspec.json.encode({str(stream): member for stream, member in pins.items()})
        store.apply([Set(path, data) if path in store.znodes else Create(path, data)], 0)

    def pause(self, *, is_on: bool) -> None:
        """An operator pauses the group, or resumes it."""
        path, store = NAMES.pause(GROUP), self.ensemble.store
        if is_on is (path in store.znodes) or NAMES.group(GROUP) not in store.znodes:
            return
        self.trace.note("", "pauses the group" if is_on else "resumes the group")
        store.apply([Create(path, b"{}") if is_on else Delete(path)], 0)

    @property
    def lost(self) -> list[int]:
        """The streams of which a part of the log is lost."""
        return [stream for stream in range(self.streams) if self.broker.stored(stream).whole is not None]

    def restore_logs(self) -> None:
        """What an operator does: restores the lost logs, and restarts the members that stopped there."""
        for stream in self.lost:
            self.trace.note("", "log is restored", stream)
            self.broker.restore(stream)
        for process in list(self.processes.values()):
            if process.member and any(worker.state == "rewind" for worker in process.member.workers):
                self.kill(process)
                self.start(process.member_id)

    # what is so

    def check_claim(self, process: Process, stream: int, epoch: int, travelled_s: float) -> None:
        """A commit is being sent, or arrives: ZooKeeper must not have given the stream to others by then.

        What has been on its way for longer than the lease's margin may come too late: Kafka's fence is for
        that. The member cannot know of a ZooKeeper session that was ended before its time, nor at once of a
        suspicion.
        """
        if travelled_s > MARGIN_S or self.holds(process, stream, epoch):
            return
        if process.name in self.ensemble.suspected:
            return
        own = [session for session, owner in self.ensemble.owners.items() if owner == process.name]
        ends = {self.ensemble.ended.get(session) for session in own}
        if "killed" in ends or (travelled_s and "closed" in ends):
            return
        how = "is sent" if not travelled_s else f"arrives after {travelled_s:.3f} s"
        self.trace.note(process.name, "commits unclaimed", stream, epoch, how)
        self.wrong.append(
            f"a commit of {process.name} {how} without the claim: stream {stream}, epoch {epoch}"
        )

    def holds(self, process: Process, stream: int, epoch: int) -> bool:
        """Whether the process has the claim of that epoch, as the ensemble knows it."""
        znode = self.ensemble.store.znodes.get(NAMES.claim(GROUP, stream))
        if znode is None or self.ensemble.owners[znode.ephemeral_of] != process.name:
            return False
        try:
            return msgspec.json.decode(znode.data, type=ClaimNode).epoch == epoch
        except ValueError:  # damaged: the session that it belongs to still counts
            return True
