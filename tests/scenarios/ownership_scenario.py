"""A group for scenario files: members that look, decide, and carry out at once what they decided.

The core alone (`decide`, `Dampers`, the plan) over what would stand in ZooKeeper. Time stands still but for
`run`; members look in the order of their names, every half second. A handover's recipient claims at its
next look, as after a release.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import msgspec

from services.consumer.core.ownership.dampers import Dampers, OwnershipSettings
from services.consumer.core.ownership.decide import (
    Adopt,
    Claim,
    Drop,
    Effect,
    HandOver,
    Release,
    Running,
    decide,
)
from shared.model.cluster import ClaimNode, MemberNode, StreamNode, View
from tests.scenarios.datadriven import Command

LOOK_EVERY_MS = 500


@dataclass(slots=True)
class Process:
    """A member's process: what it remembers and runs; `is_hung`: it stands in ZooKeeper and does nothing."""

    dampers: Dampers
    joined_ms: int
    running: dict[int, int] = field(default_factory=dict)
    """Stream → the epoch that it runs in."""
    busy: set[int] = field(default_factory=set)
    is_slow: bool = False
    """Its streams are still being opened."""
    waiting: set[int] = field(default_factory=set)
    """Streams in `rewind`, or that fail again and again."""
    is_hung: bool = False


class OwnershipScenario:
    """A command `join b` calls `do_join("b")`."""

    def __init__(self) -> None:
        self._settings = OwnershipSettings()
        self._count = 0
        self._now_ms = 0
        self._nodes: dict[int, StreamNode] = {}
        self._claims: dict[int, ClaimNode] = {}
        self._members: dict[str, MemberNode] = {}
        self._processes: dict[str, Process] = {}
        self._pins: dict[int, str] = {}

    def run(self, command: Command) -> str:
        """See ScenarioWorld."""
        return str(getattr(self, f"do_{command.name}")(*command.words, **command.options) or "")

    def do_group(self, count: str, **settings: str) -> None:
        """Everything anew: a group of `count` streams; `settings` are fields of OwnershipSettings."""
        self.__init__()  # type: ignore[misc]
        self._count = int(count)
        self._settings = OwnershipSettings(**{name: int(value) for name, value in settings.items()})

    def do_settings(self, name: str, **settings: str) -> None:
        """A member's settings change."""
        dampers = self._processes[name].dampers
        dampers.settings = replace(dampers.settings, **{name: int(n) for name, n in settings.items()})

    def do_join(self, *names: str, at: str = "") -> None:
        """Members join; `at`: the address, by default the name."""
        for name in names:
            self._members[name] = MemberNode(address=at or name)
            self._processes[name] = Process(Dampers(name, self._settings), self._now_ms)

    def do_rejoin(self, name: str) -> None:
        """The member's ZooKeeper session ends, and it joins again at once; it still runs what it ran."""
        self.do_unregister(name)
        self._members[name] = MemberNode(address=name)
        self._processes[name].joined_ms = self._now_ms

    def do_unregister(self, name: str) -> None:
        """The member's node and claims are gone."""
        del self._members[name]
        self._claims = {n: claim for n, claim in self._claims.items() if claim.member != name}

    def do_crash(self, *names: str) -> None:
        """Members end, and their ZooKeeper sessions with them."""
        for name in names:
            self.do_unregister(name)
            del self._processes[name]

    def do_flap(self, name: str, times: str) -> None:
        """The member crashes and comes back so many times; the others see each."""
        for _ in range(int(times)):
            self.do_crash(name)
            self.do_look()
            self.do_join(name)
            self.do_look()

    def do_hang(self, name: str) -> None:
        """The member does nothing more, and stays registered."""
        self._processes[name].is_hung = True

    def do_wake(self, name: str) -> None:
        """The member works again."""
        self._processes[name].is_hung = False

    def do_drain(self, *names: str) -> None:
        """Members begin to leave."""
        for name in names:
            self._members[name] = msgspec.structs.replace(self._members[name], state="draining")

    def do_pin(self, stream: str, member: str) -> None:
        """An operator pins a stream."""
        self._pins[int(stream)] = member

    def do_unpin(self) -> None:
        """An operator takes all pins away."""
        self._pins.clear()

    def do_slow(self, name: str) -> None:
        """The member's streams are being opened, and stay so."""
        self._processes[name].is_slow = True

    def do_opened(self, name: str) -> None:
        """All of the member's streams are open."""
        self._processes[name].is_slow = False

    def do_stuck(self, name: str, *streams: str) -> None:
        """These streams of the member wait: in `rewind`, or to be opened once more."""
        self._processes[name].waiting = {int(stream) for stream in streams}

    def do_busy(self, name: str, *streams: str) -> None:
        """Effects for these streams are under way; none: for no stream."""
        self._processes[name].busy = {int(stream) for stream in streams}

    def do_lose(self, name: str, stream: str, to: str = "", epoch: str = "") -> None:
        """The claim of a stream that the member runs is gone, or another member's, or of another epoch."""
        claim = self._claims.pop(int(stream))
        if to or epoch:
            self._claims[int(stream)] = ClaimNode(member=to or name, epoch=int(epoch or claim.epoch + 1))

    def do_forget(self, name: str, stream: str) -> None:
        """The member no longer runs a stream that it holds the claim of."""
        del self._processes[name].running[int(stream)]

    def do_refused(self, donor: str, target: str, stream: str = "0") -> None:
        """The target refuses what the donor offers."""
        dampers = self._processes[donor].dampers
        dampers.note_failed_handover(int(stream), target, self._now_ms, silent=False)

    def do_silent(self, donor: str, target: str, stream: str = "0") -> None:
        """The target does not answer the donor."""
        dampers = self._processes[donor].dampers
        dampers.note_failed_handover(int(stream), target, self._now_ms, silent=True)

    def do_large(self, donor: str, *streams: str) -> None:
        """The donor finds these streams too large to copy."""
        for stream in streams:
            failed_moves = self._processes[donor].dampers.failed_moves
            failed_moves.note(int(stream), self._now_ms, is_lasting=True)

    def do_look(self, *names: str) -> str:
        """These members (by default all) look once, now."""
        return "\n".join(line for name in names or sorted(self._processes) for line in self._look(name))

    def do_decide(self, name: str) -> str:
        """What the member would do now, without doing it."""
        return "\n".join(f"{name}: {_words(effect)}" for effect in self._effects(name)) or "nothing"

    def do_wait(self, duration: str) -> None:
        """Time passes, and no member looks."""
        self._now_ms += _ms(duration)

    def do_run(self, duration: str) -> str:
        """Time passes, and all look every half second; each effect with its moment."""
        end_ms, lines = self._now_ms + _ms(duration), []
        while self._now_ms < end_ms:
            self._now_ms = min(end_ms, self._now_ms + LOOK_EVERY_MS)
            for name in sorted(self._processes):
                lines += [f"{self._now_ms / 1000:g}s {line}" for line in self._look(name)]
        return "\n".join(lines) or "nothing"

    def do_owners(self) -> str:
        """Member → its streams; `-`: the streams without an owner."""
        rows = {name: [n for n, c in self._claims.items() if c.member == name] for name in self._members}
        rows["-"] = [n for n in range(self._count) if n not in self._claims]
        return "\n".join(
            f"{name}: {' '.join(map(str, sorted(streams)))}".rstrip()
            for name, streams in sorted(rows.items())
        )

    def do_waits(self, name: str) -> str:
        """What the member would wait for, and until when."""
        dampers = self._processes[name].dampers
        held = {f"stream {n}": at for n, at in sorted(dampers._streams.items())}
        held |= {f"member {other}": at for other, at in sorted(dampers._members.items())}
        lines = [f"{what} until {at / 1000:g}s" for what, at in held.items() if at > self._now_ms]
        return "\n".join(lines) or "nothing"

    def _view(self) -> View:
        unowned = {n: node for n, node in self._nodes.items() if n not in self._claims}
        return View(
            count=self._count,
            members=dict(self._members),
            claims=dict(self._claims),
            nodes=unowned,
            pins=dict(self._pins),
        )

    def _effects(self, name: str) -> list[Effect]:
        process, view = self._processes[name], self._view()
        process.dampers.observe(view, self._now_ms, self._now_ms - process.joined_ms)
        running = {
            n: Running(
                epoch=epoch,
                is_ready=not process.is_slow and n not in process.waiting,
                is_opening=process.is_slow and n not in process.waiting,
            )
            for n, epoch in process.running.items()
        }
        return decide(view, running, process.dampers, busy=process.busy)

    def _look(self, name: str) -> list[str]:
        if self._processes[name].is_hung:
            return []
        effects = self._effects(name)
        for effect in effects:
            self._carry_out(name, effect)
        if not effects and name in self._members and self._members[name].state == "draining":
            self.do_crash(name)
            return [f"{name}: leave"]
        return [f"{name}: {_words(effect)}" for effect in effects]

    def _carry_out(self, name: str, effect: Effect) -> None:
        stream, running = effect.stream, self._processes[name].running
        node = self._nodes.get(stream, StreamNode())
        match effect:
            case Claim():
                assert stream not in self._claims
                running[stream] = node.epoch + 1
                self._claims[stream] = ClaimNode(member=name, epoch=node.epoch + 1)
                self._nodes[stream] = StreamNode(epoch=node.epoch + 1, owner=name)
            case Adopt(epoch=epoch):
                running[stream] = epoch
            case Drop():
                del running[stream]
            case HandOver(target=target, epoch=epoch) | Release(target=target, epoch=epoch):
                running.pop(stream, None)
                del self._claims[stream]
                self._nodes[stream] = StreamNode(epoch=epoch, owner=name, seq=1, target=target)


def _ms(duration: str) -> int:
    return int(float(duration.removesuffix("s")) * 1000)


def _words(effect: Effect) -> str:
    match effect:
        case HandOver(stream=stream, target=target, why=why, or_release=or_release):
            return f"hand over {stream} to {target}{' or release it' if or_release else ''} ({why})"
        case Release(stream=stream, target=target, why=why):
            return f"release {stream} to {target or 'nobody'} ({why})"
        case Adopt(stream=stream, epoch=epoch):
            return f"adopt {stream} in epoch {epoch}"
        case Claim(stream=stream, why=why) | Drop(stream=stream, why=why):
            return f"{type(effect).__name__.lower()} {stream} ({why})"
