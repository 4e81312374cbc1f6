"""What goes wrong in a run, and when: everything is drawn from the run's seed.

Each run draws its kinds of faults and their rate; a run with few kinds explores each more deeply than one
with all of them. In the end everything heals: connections work again, frozen processes go on, and there is at
least one member.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping, Sequence
from typing import Any

from shared.model.head import Head
from tests.simulation.large_streams import MAX_BODY_BYTES, LargeStreams, are_drawn
from tests.simulation.process import Process
from tests.simulation.regrown_logs import RegrownLogs
from tests.simulation.standstills import Standstills
from tests.simulation.wire import Weather
from tests.simulation.world import EPOCH_MS, World
from tests.simulation.zookeeper import TIMEOUT_S

MEMBER_IDS = "abcdef"
MOST_MEMBERS = 4
KINDS = (
    "crash",
    "crash_and_come_back",
    "join",
    "leave",
    "move",
    "freeze",
    "cut_zookeeper",
    "cut_log",
    "cut_peers",
    "bad_zookeeper",
    "late_zookeeper",
    "bad_log",
    "bad_peers",
    "garble",
    "kill_zookeeper_session",
    "jump_clock",
    "stop_zookeeper",
    "end_all_zookeeper_sessions",
    "reset_zookeeper",
    "damage_znode",
    "regrow_log",
    "drain_late",
    "lose_log",
    "expire_while_claiming",
    "fail_after_opening",
    "burst",
    "refuse",
    "pause",
    "undrain",
)
"""Methods of `Schedule`; some stand in `standstills.py`."""
RARE_KINDS = ("grow_streams", "regrow_in_parts")
"""The first is drawn apart (`large_streams.are_drawn`), the second is only named."""
CALM = frozenset({"move", "join", "leave", "jump_clock", "burst", "pause"})
"""Kinds in which nothing is lost: then every handover is warm."""


class Schedule(Standstills):
    """Fragments and faults for `faulty_s` seconds of virtual time; `kinds`: only these, if any are named."""

    def __init__(self, world: World, rng: random.Random, kinds: Sequence[str] = ()) -> None:
        super().__init__(world, rng)
        self.faulty_s = rng.uniform(3.0, 9.0)
        self.between_s = rng.choice([0.15, 0.3, 0.7])
        self.keys = [f"k{n}" for n in range(rng.choice([1, 2, 4]))]
        self.event_ms = EPOCH_MS
        self.pins: dict[int, str] = {}
        self._was_reset = False
        self.regrown_logs = RegrownLogs(world, rng, self._fragment)
        self.large_streams = LargeStreams(world, rng)
        drawn = [kind for kind in KINDS if rng.random() < 0.3] or [rng.choice(KINDS)]
        drawn += ["grow_streams"] * are_drawn(world.seed)
        if "grow_streams" in (kinds or drawn):
            world.max_body_bytes = MAX_BODY_BYTES
        self.kinds = [getattr(self, kind) for kind in kinds or drawn]
        if "drain_late" in (kinds or drawn):
            world.drain_s = rng.choice([0.03, 0.2, 1.0])
        world.is_calm = CALM.issuperset(kinds or drawn)

    async def run(self) -> None:
        """Fragments and faults, then the healing."""
        world, loop = self.world, self.world.loop
        for name in MEMBER_IDS[: self.rng.choice([1, 2, 2, 3])]:
            world.start(name)
        feeding = loop.create_task(self._feed())
        await asyncio.sleep(self.rng.choice([0.0, 1.5]))
        while loop.now_s < self.faulty_s:
            await asyncio.sleep(self.rng.expovariate(1 / self.between_s))
            self.rng.choice(self.kinds)()
        feeding.cancel()
        self.heal()

    def heal(self) -> None:
        """From now on everything works."""
        world = self.world
        world.trace.note("", "all is healed")
        world.ensemble.come_back()
        world.bad.clear()
        if self.pins:
            world.pin({})
        world.pause(is_on=False)
        world.ensemble.repair()
        world.firewalls.refused.clear()
        for process in world.processes.values():
            self._clear(process)
            world.loop.thaw(process.name)
        if all(one.is_leaving for one in world.processes.values()):
            world.start("z")

    # fragments

    async def _feed(self) -> None:
        rng, world = self.rng, self.world
        pause_s = rng.choice([0.05, 0.2, 0.4])
        while True:
            await asyncio.sleep(rng.expovariate(1 / pause_s))
            world.broker_offset_ms = rng.choice([0, 0, 0, 0, -30])
            stream, kind = rng.randrange(world.streams), rng.random()
            if stream in world.lost:
                continue
            self.event_ms = max(self.event_ms, world.wall_ms() + rng.choice([0, -300, -900]))
            if kind < 0.02:
                world.append_marker(stream, None)
            elif kind < 0.05:
                world.append_marker(stream, self.event_ms + rng.randint(-4000, 100))
            elif kind < 0.06:
                world.broker.append(stream, rng.choice([b"k0", None]), b"poison")
            else:
                world.append(stream, self._fragment())

    def _fragment(self) -> dict[str, Any]:
        rng = self.rng
        fields: dict[str, Any] = {"key": rng.choice(self.keys)}
        if rng.random() < 0.7:
            fields["time"] = self.event_ms + rng.choice([0, 0, -10, -400, -3500, 600, 2000])
        if rng.random() < 0.5:
            fields["id"] = f"i{rng.randint(0, 9)}"
        if rng.random() < 0.15:
            fields["end"] = True
        if rng.random() < 0.2:
            fields["data"] = "x" * rng.randint(0, 150)
        return fields

    def burst(self) -> None:
        """Many sessions that one record closes, a marker or the first one after a silence; keys go on."""
        rng, world, stream = self.rng, self.world, self.rng.randrange(self.world.streams)
        keys = [f"b{n}" for n in range(rng.choice([5, 15, 40]))]
        for key in keys:
            world.append(stream, {"key": key, "time": self.event_ms})
        if rng.random() < 0.8:
            world.append_marker(stream, self.event_ms + rng.choice([0, 50]))
        for key in rng.sample(keys, len(keys) // 2):
            world.append(stream, {"key": key, "time": self.event_ms + 60, "end": rng.random() < 0.5})

    # faults

    def crash(self) -> None:
        """kill -9; the ZooKeeper session lives on until its time-out."""
        if (process := self._someone()) is not None:
            self.world.kill(process)

    def crash_and_come_back(self) -> None:
        """kill -9, and a new process of the same id soon after."""
        if (process := self._someone()) is not None:
            self.world.kill(process)
            self._later(self.rng.uniform(0.0, TIMEOUT_S), lambda: self._start(process.member_id))

    def join(self) -> None:
        """One more member."""
        self._start(self.rng.choice(MEMBER_IDS))

    def leave(self) -> None:
        """A member leaves in order."""
        if (process := self._someone()) is not None and not process.is_leaving:
            self.world.leave(process)

    def move(self) -> None:
        """An operator pins streams to members, or takes the pins away."""
        living = sorted(one.member_id for one in self.world.processes.values())
        if living and self.rng.random() < 0.8:
            for _ in range(self.rng.choice([1, 2])):
                self.pins[self.rng.randrange(self.world.streams)] = self.rng.choice(living)
        else:
            self.pins.clear()
        self.world.pin(self.pins)

    def freeze(self) -> None:
        """SIGSTOP, often beyond the lease, and SIGCONT."""
        if (process := self._someone()) is not None and not self.world.loop.is_frozen(process.name):
            seconds = self.rng.choice([0.3, 1.0, TIMEOUT_S, 2 * TIMEOUT_S]) * self.rng.uniform(0.5, 1.2)
            self.world.trace.note(process.name, "is frozen", f"for {seconds:.2f} s")
            self.world.loop.freeze(process.name)
            self._later(seconds, lambda: self._thaw(process))

    def cut_zookeeper(self) -> None:
        """A member and ZooKeeper, in one direction or both."""
        self._cut("zookeeper")

    def cut_log(self) -> None:
        """A member and Kafka, in one direction or both."""
        self._cut("log")

    def cut_peers(self) -> None:
        """A member's calls to others, in one direction or both."""
        self._cut("peers")

    def bad_zookeeper(self) -> None:
        """Single messages between a member and ZooKeeper get lost, late, slow."""
        self._disturb("zookeeper")

    def late_zookeeper(self) -> None:
        """Half of what a member sends to ZooKeeper takes effect when it no longer counts on it."""
        if (process := self._someone()) is not None:
            process.weathers["zookeeper"].late = 0.5
            self._for_a_while(process, "zookeeper", "is late", self.rng.uniform(0.2, 2.0))

    def bad_log(self) -> None:
        """Single messages between a member and Kafka get lost, late, slow: commits, too."""
        self._disturb("log")

    def bad_peers(self) -> None:
        """Single messages of a handover get lost, late, slow, repeated."""
        self._disturb("peers")

    def garble(self) -> None:
        """What a member hands over arrives with an error in it."""
        if (process := self._someone()) is not None:
            process.weathers["peers"].garbled = 0.5
            self._for_a_while(process, "peers", "is garbled", self.rng.uniform(0.2, 4.0))

    def kill_zookeeper_session(self) -> None:
        """ZooKeeper ends a session before its time; its client learns of it later."""
        if (process := self._someone()) is not None and (session := process.zookeeper.session) is not None:
            self.world.ensemble.end(session.id, "killed")

    def refuse(self) -> None:
        """A living member's port refuses some or all for a while: those that watch it suspect it wrongly."""
        process, rng = self._someone(), self.rng
        if process is not None:
            some = [member for member in (*MEMBER_IDS, "z") if rng.random() < 0.5]
            members = frozenset(some if rng.random() < 0.5 else (*MEMBER_IDS, "z"))
            seconds = rng.choice([0.1, 1.0, 5.0]) * rng.uniform(0.5, 1.2)
            self.world.trace.note(process.name, "refuses", *sorted(members), f"for {seconds:.2f} s")
            self.world.firewalls.refuse(process, members)
            self._later(seconds, lambda: self._accept(process))

    def jump_clock(self) -> None:
        """A member's clock on the wall jumps."""
        if (process := self._someone()) is not None:
            process.wall_offset_ms += self.rng.choice([-20_000, -500, 500, 20_000])
            self.world.trace.note(process.name, "clock jumps", process.wall_offset_ms)

    def stop_zookeeper(self) -> None:
        """No server of ZooKeeper answers anybody for a while."""
        ensemble = self.world.ensemble
        if not ensemble.is_down:
            seconds = self.rng.uniform(0.5, 2 * TIMEOUT_S)
            self.world.trace.note("", "zookeeper is down", f"for {seconds:.2f} s")
            ensemble.is_down = True
            self._later(seconds, self._start_zookeeper)

    def _cut(self, end: str) -> None:
        if (process := self._someone()) is None:
            return
        weather, rng = process.weathers[end], self.rng
        requests, answers = rng.choice([(True, True), (True, False), (False, True)])
        weather.cut_requests |= requests
        weather.cut_answers |= answers
        what = " and ".join(["requests"] * requests + ["answers"] * answers)
        seconds = rng.choice([0.3, 1.5, 2 * TIMEOUT_S]) * rng.random()
        self._for_a_while(process, end, "is cut", seconds, what)

    def _disturb(self, end: str) -> None:
        if (process := self._someone()) is None:
            return
        weather, rng = process.weathers[end], self.rng
        for kind in ("slow", "lost_request", "lost_answer", "late"):
            setattr(weather, kind, rng.choice([0.0, 0.0, 0.1, 0.4]))
        if end == "peers":
            weather.repeated = rng.choice([0.0, 0.3])
        self._for_a_while(process, end, "has bad weather", rng.uniform(0.2, 4.0), weather)

    def _for_a_while(self, process: Process, end: str, what: str, seconds: float, *details: object) -> None:
        self.world.trace.note(process.name, what, end, f"for {seconds:.2f} s", *map(str, details))
        self._later(seconds, lambda: self._mend(process, process.weathers[end], end))

    def end_all_zookeeper_sessions(self) -> None:
        """As after an outage of ZooKeeper that outlasts every session."""
        for session in sorted(self.world.ensemble.store.sessions):
            self.world.ensemble.end(session, "killed")

    def reset_zookeeper(self) -> None:
        """ZooKeeper loses all data: an operator's mistake, made once at most."""
        if self.rng.random() < 0.2 and not self._was_reset:
            self.pins.clear()
            self.world.ensemble.reset()
            self._was_reset = True

    def damage_znode(self) -> None:
        """An operator or a bug overwrites some znode with what nobody can read."""
        paths = self.world.ensemble.damageable()
        if paths:
            self.world.ensemble.damage(self.rng.choice(paths), self.rng.choice([b"", b"{", b"\xff", b"7"]))

    def regrow_log(self) -> None:
        """A log loses its end and grows past it again; a moment later an operator looks."""
        if self.world.lost:
            return
        self.regrown_logs.regrow()
        self._later(self.rng.uniform(0.5, 6.0), self.regrown_logs.start_over)

    def regrow_in_parts(self) -> None:
        """A log loses its end from a marker on while what it closes is committed in parts; it grows again."""
        self.burst()
        self._await_parts({})

    def _await_parts(self, heads: Mapping[int, Head]) -> None:
        if self.world.lost or self.world.loop.now_s > self.faulty_s:
            return
        if (found := self.regrown_logs.find_parts(heads)) is not None:
            self.regrown_logs.regrow(found)
            self._later(self.rng.uniform(0.5, 6.0), self.regrown_logs.start_over)
            return
        stored = map(self.world.broker.stored, range(self.world.streams))
        present = {n: one.head for n, one in enumerate(stored) if one.head is not None}
        self._later(0.001, lambda: self._await_parts(present))

    def grow_streams(self) -> None:
        """From now on two streams are too large to copy."""
        self.large_streams.grow()

    # and their ends

    def _start(self, member_id: str) -> None:
        living = self.world.processes.values()
        if len(living) < MOST_MEMBERS and all(one.member_id != member_id for one in living):
            self.world.start(member_id)

    def _thaw(self, process: Process) -> None:
        if self.world.loop.is_frozen(process.name):
            self.world.trace.note(process.name, "goes on")
            self.world.loop.thaw(process.name)

    def _accept(self, process: Process) -> None:
        self.world.firewalls.refused.pop(process.name, None)

    def _mend(self, process: Process, weather: Weather, end: str) -> None:
        self.world.trace.note(process.name, "is mended", end)
        weather.clear()

    def _clear(self, process: Process) -> None:
        for weather in process.weathers.values():
            weather.clear()

    def _start_zookeeper(self) -> None:
        if self.world.ensemble.is_down:
            self.world.trace.note("", "zookeeper is back")
            self.world.ensemble.come_back()
