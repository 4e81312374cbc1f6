"""The first page: a headline, the audit's word, and an hour of the most important numbers. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from services.control.core.history import Column, GroupHistory, Number, StreamHistory
from services.control.core.last_runs import LastAudit
from services.control.http.console.words import clock, count, per_second, plural, span


@dataclass(frozen=True, slots=True, kw_only=True)
class Tile:
    """A number with its hour. `fact` names what keeps it current; `range`: from the least to the most.

    `has_value`: the number of now stands above the hour.
    """

    label: str
    series: str
    range: str
    fact: str = ""
    value: str = ""
    unit: str = ""
    has_value: bool = True


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


def group_tiles(history: GroupHistory, facts: Mapping[str, str], lag_ms: Number) -> list[Tile]:
    """The tiles of the overview. `lag_ms`: the longest wait of all streams."""
    tiles = (
        ("rate", "Fragments in", "per second", "fragments_per_s", history.fragments_per_s),
        ("sessions_rate", "Sessions out", "per second", "sessions_per_s", history.sessions_per_s),
        ("open", "Open sessions", "", "open_sessions", history.open_sessions),
        ("lag", "Lag", f"records, {span(lag_ms)}" if lag_ms else "records", "lag", history.lag),
        ("unowned", "Unowned streams", "", "unowned", history.unowned),
    )
    of_group = [
        Tile(fact=fact, label=label, value=facts[fact], unit=unit, range=range_text(column), series=series)
        for fact, label, unit, series, column in tiles
    ]
    return [*of_group, _refused(history.refused_per_s), _lake(history.lake_behind_s)]


def _lake(behind_s: Column) -> Tile:
    """How far the lake is behind the delivered sessions."""
    now = _last(behind_s)
    return Tile(
        label="Lake behind",
        value="" if now is None else span(now * 1000) if now >= 1 else "0 s",
        range="",
        series="lake_behind_s",
    )


def _refused(by_reason: Mapping[str, Column]) -> Tile:
    now = {reason: _last(column) for reason, column in by_reason.items()}
    known = [rate for rate in now.values() if rate is not None]
    reasons = [f"{reason} {per_second(rate)}" for reason, rate in now.items() if rate]
    return Tile(
        fact="refused",
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

    >>> range_text([None, 184.2, 236.0]), range_text([None]), range_text([0, 0])
    ('184 to 236', '', '0')
    """
    known = [value for value in column if value is not None]
    if not known:
        return ""
    low, high = per_second(min(known)), per_second(max(known))
    return low if low == high else f"{low} to {high}"


def _last(column: Sequence[Number]) -> Number:
    return next((value for value in reversed(column) if value is not None), None)
