"""The dumb twin: the rules of `docs/protocol.md` as one eager fold, as slow and plain as possible.

It closes a session the moment it may be closed, remembers whole ids instead of hashes, and recomputes what
it needs from lists. The assembler (lazy, incremental, restored from checkpoints) must agree with it.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from shared.model.group import GroupSettings
from shared.model.sessions import Session

REMEMBERED_IDS = 2_500
"""How many ids of its closed sessions a key remembers."""


@dataclass(frozen=True)
class Rec:
    """A record of a log; satisfies the assembler's `Record`."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes


@dataclass
class RefSession:
    """A session of the eager fold."""

    key: str
    offsets: list[int] = field(default_factory=list)
    values: list[bytes] = field(default_factory=list)
    times: list[int] = field(default_factory=list)
    opened_at: int = 0
    w: int = -1
    last_a: int = -1
    ids: list[str] = field(default_factory=list)
    reason: str = "open"

    def row(self) -> tuple[Any, ...]:
        """The fields in which every way to fold must agree."""
        return (
            self.key,
            self.offsets[0],
            self.offsets[-1],
            min(self.times),
            max(self.times),
            self.opened_at,
            self.reason,
            tuple(self.values),
        )


def delivered_row(session: Session) -> tuple[Any, ...]:
    """A delivered session in the form of `RefSession.row`."""
    return (
        session.key,
        session.first_offset,
        session.last_offset,
        session.first_time,
        session.last_time,
        session.opened_at,
        session.reason,
        tuple(bytes(fragment) for fragment in session.data),
    )


def fold_eagerly(
    log: list[Rec], s: GroupSettings, covered: Mapping[str, int] | None = None
) -> tuple[list[RefSession], list[RefSession]]:
    """(closed, still open) sessions of the log.

    `covered`: key → the last offset of a session of another group, whose records only move W and A.
    """
    covered = covered or {}
    a_max = w_max = -1
    open_: dict[str, RefSession] = {}
    closed: list[RefSession] = []
    count: Counter[str] = Counter()
    ids: dict[tuple[str, str], tuple[int, int]] = {}
    """Key and id → the id's number among the key's, and A of its session; chaos runs have many."""

    def close(session: RefSession, reason: str) -> None:
        session.reason = reason
        closed.append(open_.pop(session.key))
        for name in session.ids:
            count[session.key] += 1
            ids[session.key, name] = count[session.key], session.last_a

    def is_remembered(key: str, name: str) -> bool:
        number, last_a = ids.get((key, name), (0, -1))
        return number > max(0, count[key] - REMEMBERED_IDS) and a_max <= last_a + s.repeat_ms

    def is_silent(session: RefSession) -> bool:
        return w_max - session.w > s.gap_ms + s.lateness_ms or a_max - session.last_a > s.idle_ms

    for rec in log:
        a_max = max(a_max, rec.timestamp)
        try:
            fields = json.loads(rec.value)
        except ValueError:
            fields = None
        if rec.key is None:
            if isinstance(fields, dict) and "time" in fields:
                for session in list(open_.values()):
                    if max(session.times) <= fields["time"]:
                        close(session, "gap")
        elif isinstance(fields, dict) and "key" in fields:
            key, time = fields["key"], fields.get("time", rec.timestamp)
            t = min(time, rec.timestamp + s.future_ms)
            current = open_.get(key)
            if current and (t - max(current.times) > s.gap_ms or is_silent(current)):
                close(current, "gap")
                current = None
            name = fields.get("id")
            is_repeat = name is not None and (
                is_remembered(key, name) or (current is not None and name in current.ids)
            )
            if is_repeat or rec.offset <= covered.get(key, -1):
                w_max = max(w_max, t)
            else:
                if current:
                    times = [*current.times, t]
                    if (
                        len(current.values) + 1 > s.max_session_fragments
                        or sum(map(len, current.values)) + len(rec.value) > s.max_session_bytes
                        or max(times) - min(times) > s.max_session_span_ms
                    ):
                        close(current, "limit")
                        current = None
                if not current:
                    current = open_[key] = RefSession(key, opened_at=rec.timestamp)
                current.offsets.append(rec.offset)
                current.values.append(rec.value)
                current.times.append(t)
                if name is not None:
                    current.ids.append(name)
                w_max = max(w_max, t)
                current.w = w_max
                current.last_a = a_max
                if fields.get("end"):
                    close(current, "end")
        for session in list(open_.values()):
            if is_silent(session):
                close(session, "gap")
    return closed, list(open_.values())
