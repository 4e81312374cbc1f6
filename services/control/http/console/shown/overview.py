"""The first page: a headline, the audit's word, and an hour of the most important numbers. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from services.control.core.events.movements import MovementCounts
from services.control.core.history.group_history import GroupHistory, StreamHistory
from services.control.core.history.hour import Column, Number
from services.control.core.runs.last_runs import LastAudit
from services.control.http.console.words import clock, count, per_second, plural, span


@dataclass(frozen=True, slots=True, kw_only=True)
class Tile:
    """A number with its hour. `fact` names what keeps it current; `range`: from the least to the most.

    `has_value`: the number of now stands above the hour. `unit_ms`: the unit of a series of durations, else
    None.
    """

    label: str
    series: str
    range: str
    fact: str = ""
    value: str = ""
    unit: str = ""
    has_value: bool = True
    unit_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditWord:
    """What the last audit says: a link's text, and what follows it."""

    link: str = ""
    rest: str
    is_bad: bool = False


def audit_word(audit: LastAudit | None, now_ms: int) -> AuditWord:
    """Only an audit proves anything; without one, nothing is claimed."""
    if audit is None:
        return AuditWord(rest="No audit has run yet.")
    at = clock(audit.at, now_ms)
    if audit.is_sound is None:
        return AuditWord(link=f"Audited at {at}", rest=": nothing could be judged.")
    if audit.is_sound:
        judged = plural(audit.judged, "session")
        return AuditWord(link=f"Proven at {at}", rest=f": {judged} recomputed from the log, no difference.")
    found = [f"{count(number)} {kind.replace('_', ' ')}" for kind, number in audit.differences.items()]
    return AuditWord(link=f"Not sound at {at}", rest=f": {', '.join(found)}.", is_bad=True)


def moved_words(counts: MovementCounts) -> str:
    """The remembered handovers and take-overs in a few words; "" without any."""
    parts = []
    if counts.handovers:
        parts += [plural(counts.handovers, "handover")]
        parts += ["all warm" if counts.warm == counts.handovers else f"{count(counts.warm)} warm"]
        if (median_ms := counts.handover_pauses.median_ms) is not None:
            parts += [f"median pause {span(median_ms)}"]
    if counts.taken_over:
        parts += [f"{count(counts.taken_over)} taken over"]
    return ", ".join(parts)


def group_tiles(history: GroupHistory, facts: Mapping[str, str]) -> list[Tile]:
    """The tiles of the overview."""
    of_group = (
        _tile("Fragments in", "fragments_per_s", history.fragments_per_s, "per second", facts, "rate"),
        _tile("Sessions out", "sessions_per_s", history.sessions_per_s, "per second", facts, "sessions_rate"),
        _tile("Open sessions", "open_sessions", history.open_sessions, "", facts, "open"),
        _tile("Lag", "lag", history.lag, "records", facts, "lag"),
    )
    unowned = _tile("Unowned streams", "unowned", history.unowned, "", facts, "unowned")
    wait = _duration("Longest wait", "lag_ms", history.lag_ms, 1, fact="wait", value=facts["wait"])
    behind_s = _last(history.lake_behind_s)
    behind = "" if behind_s is None else span(behind_s * 1000) if behind_s >= 1 else "0 s"
    lake = _duration("Lake behind", "lake_behind_s", history.lake_behind_s, 1000, value=behind)
    return [*of_group, wait, unowned, _refused(history.refused_per_s), lake]


def _tile(label: str, series: str, column: Column, unit: str, facts: Mapping[str, str], fact: str) -> Tile:
    return Tile(label=label, series=series, range=range_text(column), unit=unit, fact=fact, value=facts[fact])


def _duration(label: str, series: str, column: Column, unit_ms: int, *, fact: str = "", value: str) -> Tile:
    most = max((number for number in column if number is not None), default=None)
    range_ = f"at most {span(most * unit_ms)}" if most else ""
    return Tile(label=label, series=series, range=range_, unit_ms=unit_ms, fact=fact, value=value)


def _refused(by_reason: Mapping[str, Column]) -> Tile:
    now = {reason: _last(column) for reason, column in by_reason.items()}
    known = [rate for rate in now.values() if rate is not None]
    reasons = [f"{reason} {per_second(rate)}" for reason, rate in now.items() if rate]
    return Tile(
        label="Refused",
        value=per_second(sum(known) if known else None),
        unit="per second",
        range=", ".join(reasons),
        series="refused_per_s",
    )


def stream_tiles(history: StreamHistory) -> list[Tile]:
    """The charts of a stream's page."""
    columns = (
        ("Lag, records", "lag", history.lag),
        ("Fragments in, per second", "rate", history.rate),
        ("Open sessions", "open_sessions", history.open_sessions),
    )
    return [
        Tile(label=label, range=range_text(column), series=series, has_value=False)
        for label, series, column in columns
    ]


def range_text(column: Sequence[Number]) -> str:
    """From the least to the most of the hour; "" if nothing is known.

    >>> range_text([None, 18.2, 236.0]), range_text([None]), range_text([21, 21])
    ('18.2 to 236', '', '21')
    """
    known = [value for value in column if value is not None]
    if not known:
        return ""
    low, high = (count(one) if one == int(one) else per_second(one) for one in (min(known), max(known)))
    return low if low == high else f"{low} to {high}"


def _last(column: Sequence[Number]) -> Number:
    return next((value for value in reversed(column) if value is not None), None)
