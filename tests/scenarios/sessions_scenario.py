"""One stream for scenario files: a log, what Kafka stores of it, and one owner after another.

The core alone (`Stream`), driven by hand. Times are small numbers of ms: sessions end after 100 ms without a
fragment, unless `settings` says otherwise.
"""

from __future__ import annotations

from typing import Any

import msgspec

from services.consumer.core.commits.checkpoint import folding_records, new_stream
from services.consumer.core.commits.commit import Commit
from services.consumer.core.commits.stream import Stream
from services.consumer.core.commits.turn import StreamLimits, Tick
from services.consumer.core.sessions.state import OpenSession
from services.consumer.core.slices import at_once
from shared.model.group import GroupSettings
from shared.model.head import Head
from shared.model.sessions import parse_session
from tests.reference import Rec
from tests.scenarios.datadriven import Command

DEFAULTS: dict[str, Any] = {
    "gap_ms": 100,
    "lateness_ms": 20,
    "idle_ms": 300,
    "future_ms": 50,
    "repeat_ms": 200,
}


class SessionsScenario:
    """A command `crash` calls `do_crash()`."""

    def __init__(self) -> None:
        self._settings = GroupSettings(**DEFAULTS)
        self._limits = StreamLimits()
        self._log: list[Rec] = []
        self._head: Head | None = None
        self._records: list[bytes] = []
        self._epoch = 1
        self._stream = self._load()

    def run(self, command: Command) -> str:
        """See ScenarioWorld."""
        return str(getattr(self, f"do_{command.name}")(*command.words, **command.options) or "")

    def do_settings(self, **settings: str) -> None:
        """A new stream with these group settings; `replay=8` bounds a replay to 8 fragments."""
        limits = StreamLimits(max_replay_fragments=int(settings.pop("replay", "100000")))
        self.__init__()  # type: ignore[misc]
        values: dict[str, Any] = {name: int(value) for name, value in settings.items()}
        self._settings, self._limits = GroupSettings(**(DEFAULTS | values)), limits
        self._stream = self._load()

    def do_at(self, a: str, key: str, *flags: str, t: str = "", **fields: str) -> None:
        """The broker appends a fragment of `key` at `a`; `t`: its event time; `end` among the flags ends."""
        value: dict[str, Any] = {"key": key} | fields
        if t:
            value["time"] = int(t)
        if "end" in flags:
            value["end"] = True
        self._append(a, key.encode(), msgspec.json.encode(value))

    def do_marker(self, a: str, t: str) -> None:
        """The broker appends a marker at `a`."""
        self._append(a, None, msgspec.json.encode({"time": int(t)}))

    def do_tick(self, a: str) -> None:
        """The broker appends a tick at `a`."""
        self._append(a, None, b"{}")

    def do_poison(self, a: str, *key: str) -> None:
        """The broker appends a record at `a` that cannot be read."""
        self._append(a, key[0].encode() if key else None, b"poison")

    def do_retain(self, start: str) -> None:
        """Retention removes all records below `start`."""
        self._log = [record for record in self._log if record.offset >= int(start)]

    def do_start(self) -> str:
        """The owner is gone; the next one starts with the log as it is."""
        self.do_crash()
        start = self._stream.start(self._log[0].offset, self._end)
        return f"starts {start}, {self._stream.cut} cut"

    def do_cut(self) -> str:
        """How many records retention removed before the owner read them."""
        return f"{self._stream.cut} cut"

    def do_lose_log(self, end: str) -> str:
        """The log is gone from `end` on, and the owner starts anew."""
        self.do_crash()
        return f"starts {self._stream.start(0, int(end))}"

    def do_fold(self) -> str:
        """The owner reads the log to its end, and decides nothing."""
        self._stream.fold(self._unread(), 0.0)
        return self._show_open()

    def do_turn(self, *flags: str, wall: str = "0", after_s: str = "0") -> str:
        """The owner reads the log to its end in one turn; `commit`: a commit is due and succeeds, `lost`: its
        outcome stays unknown. `wall`: the member's clock; `after_s`: seconds since it opened the stream.
        """
        commit_s = 0.0 if {"commit", "lost"} & {*flags} else None
        known = [*self._stream.pending]
        turn = self._stream.turn(self._unread(), now_s=float(after_s), wall_ms=int(wall), commit_s=commit_s)
        lines = [
            f"closed {_show(closed.session)}: {closed.reason}"
            for closed in self._stream.pending
            if closed not in known
        ]
        for effect in turn.effects:
            lines += self._perform(effect, is_lost="lost" in flags)
        return "\n".join([*lines, self._show_open()])

    def do_crash(self) -> str:
        """The owner is gone; the next one loads the stored checkpoint."""
        self._epoch += 1
        self._stream = self._load()
        return self._show_open()

    def do_covered(self) -> str:
        """The covered keys, and how many ids they remember."""
        return "\n".join(
            f"{key} through {entry.offset}, {len(entry.ids)} ids"
            for key, entry in self._stream.assembler.covered.entries.items()
        )

    def do_counts(self) -> str:
        """The totals that differ from zero."""
        counts = msgspec.structs.asdict(self._stream.counts)
        return " ".join(f"{name}={count}" for name, count in counts.items() if count)

    def _show_open(self) -> str:
        state = self._stream.assembler
        replay = f", replaying until {state.replay_until}" if state.is_replaying else ""
        lines = [f"at {state.position}{replay}, W {state.w}, A {state.a}"]
        return "\n".join([*lines, *(f"  open {_show(session)}" for session in state.open.values())])

    def _append(self, a: str, key: bytes | None, value: bytes) -> None:
        self._log.append(Rec(self._end, int(a), key, value))

    @property
    def _end(self) -> int:
        return self._log[-1].offset + 1 if self._log else 0

    def _unread(self) -> list[Rec]:
        return [record for record in self._log if record.offset >= self._stream.position]

    def _perform(self, effect: Commit | Tick, *, is_lost: bool) -> list[str]:
        if isinstance(effect, Tick):
            return ["append a tick"]
        delivered = [parse_session(value) for _, value in effect.sessions]
        lines = [f"commit {effect.head.seq}: position {effect.head.position}, safe {effect.head.safe_offset}"]
        lines += [f"  deliver {s.key} {s.first_offset}…{s.last_offset} {s.reason}" for s in delivered]
        if is_lost:
            return [*lines, "  outcome unknown"]
        offsets = range(len(self._records), len(self._records) + len(effect.records))
        self._records += effect.records
        below = self._stream.committed(effect, offsets, 0.0)
        self._head = self._stream.head
        return [*lines, *([f"  trim below {below}"] if below else [])]

    def _load(self) -> Stream:
        checkpoint = new_stream()
        if self._head is not None:
            head = self._head
            kept = list(enumerate(self._records))[head.checkpoint_from : head.newest + 1]
            checkpoint = at_once(folding_records(head, kept, self._settings.repeat_ms))
        return Stream(
            group="g",
            stream=0,
            epoch=self._epoch,
            settings=self._settings,
            limits=self._limits,
            checkpoint=checkpoint,
            now_s=0.0,
        )


def _show(session: OpenSession) -> str:
    parked = f", {session.parked} parked" if session.parked else ""
    return f"{session.key} {session.first_offset}…{session.last_offset} ({len(session.data)}{parked})"
