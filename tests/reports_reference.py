"""The reports in plain Python, from their definitions in docs/lake.md: what Spark's are compared with.

A session is a dict: key, reason, first_time and last_time (ms), fragments, bytes, data (JSON texts).
"""

from __future__ import annotations

import itertools
import json
import math
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, date, datetime, time, timedelta
from typing import Any
from zoneinfo import ZoneInfo

QUARTER = timedelta(minutes=15)
Row = dict[str, Any]
Rows = list[Row]


def quarter_of(session: Row) -> datetime:
    """The quarter of an hour (UTC) in which it began."""
    return datetime.fromtimestamp(session["first_time"] // 900_000 * 900, UTC)


def period_start(at: datetime, period: str, zone: ZoneInfo, range_start: datetime) -> datetime:
    """The start of the period in which a quarter of an hour lies."""
    if period == "range":
        return range_start
    local = at.astimezone(zone)
    if period == "hour":
        return at - timedelta(minutes=local.minute, seconds=local.second)
    day = local.date() - timedelta(days=local.weekday() if period == "week" else 0)
    return datetime.combine(day, time(), zone).astimezone(UTC)


def rank_of(values: Iterable[int], percent: int) -> int:
    """The least value that so many percent of the values do not exceed."""
    ordered = sorted(values)
    return ordered[math.ceil(percent * len(ordered) / 100) - 1]


class Reference:
    """The reports of these sessions (of one group) in a range (half-open, UTC)."""

    def __init__(
        self, sessions: Rows, *, zone: str, periods: Sequence[str], start: datetime, end: datetime, top: int
    ) -> None:
        self._zone = ZoneInfo(zone)
        self._all = sessions
        self._within = [one for one in sessions if start <= quarter_of(one) < end]
        self._start = start
        self._top = top
        self._grouped: dict[tuple[str, datetime], Rows] = defaultdict(list)
        for session in self._within:
            for period in ("range", *periods):
                where = period_start(quarter_of(session), period, self._zone, start)
                self._grouped[period, where].append(session)
        self._first: dict[str, datetime] = {}
        for session in sessions:
            at = quarter_of(session)
            self._first[session["key"]] = min(at, self._first.get(session["key"], at))

    def periods(self) -> Rows:
        """The rows of `reports/periods`."""
        rows = []
        for (period, start), sessions in self._grouped.items():
            durations = [one["last_time"] - one["first_time"] for one in sessions]
            lengths = [one["fragments"] for one in sessions]
            by_key: Counter[str] = Counter()
            began: dict[str, datetime] = {}
            for one in sessions:
                by_key[one["key"]] += one["fragments"]
                began[one["key"]] = min(quarter_of(one), began.get(one["key"], quarter_of(one)))
            heaviest = sorted(by_key.values(), reverse=True)
            new = sum(began[key] == self._first[key] for key in began)
            bounces = lengths.count(1)
            row = {"period": period, "start": start, "sessions": len(sessions), "fragments": sum(lengths)}
            row |= {"bytes": sum(one["bytes"] for one in sessions), "bounces": bounces}
            row |= {"bounce_rate": bounces / len(sessions), "rank_error": 0.0}
            row |= {"duration_ms_mean": sum(durations) / len(sessions)}
            row |= {"length_mean": sum(lengths) / len(sessions)}
            row |= {f"duration_ms_p{p}": rank_of(durations, p) for p in (50, 90, 99)}
            row |= {f"length_p{p}": rank_of(lengths, p) for p in (50, 90, 99)}
            for reason in ("end", "gap", "limit"):
                row[f"ended_{reason}"] = sum(one["reason"] == reason for one in sessions)
            row |= {"keys_new": new, "keys_returning": len(began) - new}
            row |= {f"share_top{n}": sum(heaviest[:n]) / sum(lengths) for n in (1, 10, 100)}
            local = start.astimezone(self._zone)
            rows.append(row | {"zone": self._zone.key, "local_start": f"{local:%Y-%m-%d %H:%M}"})
        return rows

    def items(self, path: str, rewrite: Callable[[str], str]) -> Rows:
        """The rows of `reports/items` for a path of fields."""
        rows = []
        for (period, start), sessions in self._grouped.items():
            counts: dict[str, Counter[str]] = {name: Counter() for name in ("any", "entry", "exit")}
            distinct: Counter[str] = Counter()
            for one in sessions:
                items = items_of(one, path, rewrite)
                counts["any"].update(items)
                distinct.update(set(items))
                counts["entry"].update(items[:1])
                counts["exit"].update(items[-1:])
            for position, counted in counts.items():
                for place, (item, count) in enumerate(self._best(counted), 1):
                    row = {"path": path, "period": period, "start": start, "position": position}
                    row |= {"item": item, "count": count, "place": place}
                    rows.append(row | {"sessions": distinct[item] if position == "any" else count})
        return rows

    def transitions(self, path: str, rewrite: Callable[[str], str]) -> Rows:
        """The rows of `reports/transitions` for a path of fields."""
        rows = []
        for (period, start), sessions in self._grouped.items():
            pairs: Counter[tuple[str, str]] = Counter()
            for one in sessions:
                items = items_of(one, path, rewrite)
                pairs.update(itertools.pairwise(items))
            for place, ((item, following), count) in enumerate(self._best(pairs), 1):
                row = {"path": path, "period": period, "start": start, "item": item, "next": following}
                rows.append(row | {"count": count, "place": place})
        return rows

    def retention(self) -> Rows:
        """The rows of `reports/retention`."""
        cohorts: dict[date, set[str]] = defaultdict(set)
        seen: dict[tuple[date, int], set[str]] = defaultdict(set)
        for one in self._within:
            first = self._first[one["key"]]
            if first >= self._start:
                first_day, day = (at.astimezone(self._zone).date() for at in (first, quarter_of(one)))
                cohorts[first_day].add(one["key"])
                seen[first_day, (day - first_day).days].add(one["key"])
        return [
            {"first_day": day, "days_later": later, "keys": len(cohorts[day]), "returned": len(keys)}
            | {"share": len(keys) / len(cohorts[day])}
            for (day, later), keys in seen.items()
        ]

    def keys(self) -> Rows:
        """The rows of `reports/keys`."""
        totals: dict[str, Row] = {}
        for one in self._within:
            row = {"key": one["key"], "sessions": 0, "fragments": 0, "bytes": 0}
            row = totals.setdefault(one["key"], row | {"first_start": self._first[one["key"]]})
            row["sessions"] += 1
            row["fragments"] += one["fragments"]
            row["bytes"] += one["bytes"]
        return list(totals.values())

    def _best(self, counts: Counter[Any]) -> list[tuple[Any, int]]:
        return sorted(counts.items(), key=lambda one: (-one[1], one[0]))[: self._top]


def items_of(session: Row, path: str, rewrite: Callable[[str], str]) -> list[str]:
    """The items of a session in order; fragments without one are skipped."""
    found = []
    for text in session["data"]:
        value = json.loads(text)
        for field in re.findall(r"\.(\w+)", path):
            value = value.get(field) if isinstance(value, dict) else None
        if value is not None:
            found.append(rewrite(value))
    return found
