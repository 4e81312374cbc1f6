"""What the console shows of one group at one moment, and the sentences that say it. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from services.control.core.problems.problems import ProblemRow
from services.control.core.queues import QueueRow
from services.control.core.report.report import longest_lag_ms, sum_of
from services.control.core.report.rows import MemberRow, PlanRow, StreamRow
from services.control.http.console.shown.queues import queues_drawn, queues_sentence
from services.control.http.console.words import count, digest_of, listed, per_second, plural, size, span

BAD = frozenset({"STOP", "STALL", "REWIND"})
RANK = {"REWIND": 0, None: 1, "STALL": 2, "STOP": 3, "WARN": 4, "OK": 5}
"""Worst first; None: no leader of the log answers."""
_NUMBERS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")


@dataclass(frozen=True, kw_only=True)
class Scene:
    """One group. `rows` are all of its streams, row n is stream n; `members` are those of the group.

    `stale_ms`: age of the oldest reading behind it. `problems`: what is wrong in it, the worst first.
    `queues`: all queues, which belong to no group.
    """

    group: str
    rows: Sequence[StreamRow]
    members: Sequence[MemberRow]
    plan: PlanRow
    now_ms: int
    stale_ms: int
    problems: Sequence[ProblemRow] = ()
    queues: Sequence[QueueRow] = ()

    @property
    def unowned(self) -> list[int]:
        """The streams without an owner."""
        return [row.stream for row in self.rows if row.owner is None]

    @cached_property
    def owned(self) -> Mapping[str, Sequence[StreamRow]]:
        """The streams of each member, also of those that own nothing."""
        found: dict[str, list[StreamRow]] = {member.id: [] for member in self.members}
        for row in self.rows:
            if row.owner is not None:
                found.setdefault(row.owner, []).append(row)
        return found


def facts(scene: Scene) -> dict[str, str]:
    """The numbers that every page may show, as texts by name."""
    lag, wait_ms = sum_of(row.lag for row in scene.rows), longest_lag_ms(scene.rows)
    sessions = sum_of(row.rates.sessions_per_s if row.rates else None for row in scene.members)
    return {
        "streams": count(len(scene.rows)),
        "members": count(len(scene.members)),
        "lag": count(lag),
        "wait": "0 s" if wait_ms == 0 else span(wait_ms),
        "rate": per_second(sum_of(row.rate for row in scene.rows)),
        "sessions_rate": per_second(sessions),
        "open": count(sum_of(row.open_sessions for row in scene.rows)),
        "unowned": count(len(scene.unowned)),
        "worst": min((row.status for row in scene.rows), key=RANK.__getitem__, default="OK") or "unknown",
        "owned": owned_sentence(scene),
        "headline": headline(scene),
        "problems": digest_of(*(problem.what for problem in scene.problems)),
        "queues": queues_drawn(scene.queues, scene.now_ms),
        "all_queues": queues_sentence(scene.queues),
    }


def headline(scene: Scene) -> str:
    """Who owns the streams, and how much needs a look."""
    if not scene.rows:
        return "There are no streams yet."
    unowned, streams = len(scene.unowned), plural(len(scene.rows), "stream")
    owned = f"All {streams} are owned." if len(scene.rows) > 1 else "The stream is owned."
    if unowned:
        owned = f"{unowned} of {streams} {'is' if unowned == 1 else 'are'} unowned."
    if not scene.problems:
        return owned
    many = len(scene.problems)
    things = _NUMBERS[many] if many < len(_NUMBERS) else str(many)
    return f"{owned} {things.capitalize()} {'thing needs' if many == 1 else 'things need'} a look."


def owned_sentence(scene: Scene) -> str:
    """Who owns what, in a sentence or two."""
    if not scene.rows:
        return "There are no streams yet."
    streams = plural(len(scene.rows), "stream")
    if not scene.members:
        return f"{plural(len(scene.rows), 'stream waits', 'streams wait')} for a member."
    parts = [f"{streams} on {plural(len(scene.members), 'member')}."]
    more = [_unowned(scene), *_states(scene)]
    shares = sorted((len(rows) for rows in scene.owned.values()), reverse=True)
    if len(shares) <= 5 and not any(more):
        planned = scene.plan.computed_by is not None and not scene.plan.moves
        parts.append(f"Shares are {listed(list(map(str, shares)))}{', as planned' * planned}.")
    if any(more):
        parts.append(f"{', '.join(filter(None, more))}.")
    if scene.plan.pins:
        parts.append(f"{plural(len(scene.plan.pins), 'stream is', 'streams are')} pinned.")
    return " ".join(parts)


def _unowned(scene: Scene) -> str:
    found = scene.unowned
    return f"{plural(len(found), 'stream is', 'streams are')} unowned" if found else ""


def _states(scene: Scene) -> list[str]:
    owned = scene.owned
    draining = sum(member.state == "draining" for member in scene.members)
    silent = sum(not member.answers for member in scene.members)
    idle = sum(not owned[member.id] and member.state == "active" for member in scene.members)
    return [
        plural(draining, "member drains", "members drain") if draining else "",
        f"{idle} {'owns' if idle == 1 else 'own'} nothing" if idle else "",
        f"{silent} {'does' if silent == 1 else 'do'} not answer" if silent else "",
    ]


STREAM_CELLS = (
    *("owner", "status", "state", "lag", "rate", "open", "bytes", "replay", "epoch", "moved", "pause"),
    *("read", "behind"),
)


def stream_cells(row: StreamRow, clock: Mapping[int, str] | None = None) -> tuple[str, ...]:
    """The texts of a stream's row in a table, as STREAM_CELLS names them; `moved` is left to the page."""
    handover = row.last_handover
    return (
        row.owner or "nobody",
        row.status or "",
        row.state,
        count(row.lag),
        per_second(row.rate),
        count(row.open_sessions),
        size(row.state_bytes),
        count(replay_of(row)),
        str(row.epoch),
        (clock or {}).get(row.stream, ""),
        span(handover.pause_ms) if handover else "",
        per_second(row.read_rate),
        behind_of(row),
    )


def replay_of(row: StreamRow) -> int | None:
    """How many records a new owner without this memory would read again; None if that is not known."""
    if row.position is None or row.safe_offset is None:
        return None
    return max(0, row.position - row.safe_offset)


def behind_of(row: StreamRow) -> str:
    """For how long the oldest record waits that is not accounted for; "" if that is not known."""
    return "0 s" if row.lag_ms == 0 else span(row.lag_ms)


MEMBER_CELLS = ("share", "rate", "sessions", "open", "lag", "lease", "state", "lease left, in percent")


def member_cells(member: MemberRow, rows: Sequence[StreamRow]) -> tuple[str, ...]:
    """The texts of a member's row, as MEMBER_CELLS names them."""
    answers, rates = member.answers, member.rates
    return (
        count(len(rows)),
        per_second(rates.fragments_per_s) if rates else "",
        per_second(rates.sessions_per_s) if rates else "",
        count(sum_of(row.open_sessions for row in rows)) if answers else "",
        count(sum_of(row.lag for row in rows)),
        span(member.lease_ms) if answers else "",
        "silent" if not answers else "" if member.state == "active" else member.state,
        _percent(member.lease_ms, member.lease_length_ms) if answers else "",
    )


def _percent(part: float | None, whole: float | None) -> str:
    return str(min(100, round(100 * part / whole))) if part is not None and whole else ""


def worst_first(rows: Sequence[StreamRow]) -> list[StreamRow]:
    """The streams, those that need a look first."""

    def place(row: StreamRow) -> tuple[bool, int, int, int]:
        return row.owner is not None, RANK[row.status], -(row.lag or 0), row.stream

    return sorted(rows, key=place)
