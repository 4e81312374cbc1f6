"""Situations in which streams used to stand still: claimed, but not read, or never claimed at all.

Methods that `schedule.py` draws like its other kinds of faults.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from tests.simulation.process import Process
from tests.simulation.world import World

POLL_S = 0.003
WATCH_S = 0.5
"""Long enough to reconnect, join and claim."""


class Standstills:
    """The base of `Schedule`: a world, a source of randomness, and these kinds of faults."""

    def __init__(self, world: World, rng: random.Random) -> None:
        self.world = world
        self.rng = rng
        self._watched: list[Process] = []

    def drain_late(self) -> None:
        """A member is drained, in less time than that takes; its process lives on."""
        process = self._someone()
        if process is not None and not process.is_leaving:
            self.world.drain(process)

    def undrain(self) -> None:
        """A member that was asked to drain is asked to take streams again; it may have left meanwhile."""
        draining = [
            one
            for one in self.world.processes.values()
            if one.member is not None and one.member.departure.is_wanted and not one.member.departure.is_final
        ]
        if draining:
            self.world.undrain(self.rng.choice(draining))
        else:
            self.drain_late()

    def pause(self) -> None:
        """An operator pauses the group for a while."""
        self.world.pause(is_on=True)
        seconds = self.rng.choice([0.1, 1.0, 5.0]) * self.rng.uniform(0.5, 1.2)
        self._later(seconds, lambda: self.world.pause(is_on=False))

    def lose_log(self) -> None:
        """Some logs, but not all, end below the committed position; their owners open them anew."""
        world, rng = self.world, self.rng
        stream = rng.randrange(world.streams)
        stored = world.broker.stored(stream)
        if stored.head is None or stored.head.position <= stored.first or stored.whole is not None:
            return
        if len(world.lost) + 1 < world.streams and not world.regrown:
            first = rng.randrange(stored.first, stored.head.position)
            world.trace.note("", "log is lost", stream, f"from {first} on")
            world.broker.lose_from(stream, first)
            for process in world.processes.values():
                session, member = process.zookeeper.session, process.member
                runs = [worker.stream for worker in member.workers] if member is not None else []
                if session is not None and stream in runs:
                    world.ensemble.end(session.id, "killed")

    def expire_while_claiming(self) -> None:
        """A ZooKeeper session ends, and so does the next one, while its member claims its streams again."""
        process = self._someone()
        if process is None or process.zookeeper.session is None or process in self._watched:
            return
        self._watched.append(process)
        session = process.zookeeper.session.id
        self.world.ensemble.end(session, "killed")
        process.zookeeper.lose_link()
        self._expire_claiming(process, session, self.world.loop.now_s + WATCH_S)

    def _expire_claiming(self, process: Process, before: int, until_s: float) -> None:
        session, member = process.zookeeper.session, process.member
        busy = sorted(member.effect_runner.busy) if member is not None else []
        if session is not None and session.id != before and len(busy) > 1:
            self.world.trace.note(process.name, "claims", busy)
            self.world.ensemble.end(session.id, "killed")
            process.zookeeper.lose_link()
        elif self.world.loop.now_s < until_s:
            self._later(POLL_S, lambda: self._expire_claiming(process, before, until_s))
            return
        self._watched.remove(process)

    def fail_after_opening(self) -> None:
        """From the next record on, a stream opens and then fails: a bad checksum, or a record too large."""
        stream = self.rng.randrange(self.world.streams)
        if stream not in self.world.bad:
            what, offset = self.rng.choice(["fetch", "commit"]), self.world.broker.stored(stream).end
            self.world.trace.note("", "turns bad", stream, what, offset)
            self.world.bad[stream] = what, offset

    def _someone(self) -> Process | None:
        processes = list(self.world.processes.values())
        return self.rng.choice(processes) if processes else None

    def _later(self, seconds: float, do: Callable[[], None]) -> None:
        self.world.loop.call_later(seconds, do, context=self.world.context)
