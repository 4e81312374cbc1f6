"""The parameters of the job `reports`, checked and typed: what to report, of which sessions, in which zone.

Pure. Control checks a user's parameters with it before it starts a run, and the job reads its plan from them.
"""

from __future__ import annotations

import datetime
import re
import zoneinfo
from collections.abc import Mapping
from typing import Any

import msgspec

from services.control.core.runs.jobs import JSON_PATH, JSON_PATHS, REPORT_NAME
from shared.errors import InvalidInput

PERIODS = ("hour", "day", "week")
MOST_TOP = 1000
"""Spark cuts a top list in every task only up to this length (`windowGroupLimitThreshold`)."""
MOST_PATHS = 10
QUARTER_MS = 15 * 60_000
"""The state counts sessions in quarters of an hour: every zone's offset today is a multiple of it."""
BLOCK_MS = 4 * 24 * 3_600_000
"""For ranges it also has sums of such blocks: longer ones have fewer rows, shorter ones fit more ranges."""
LATEST_MS = 253_370_764_800_000
"""9999-01-01. Clients may send any time of the year 9999, and in eastern zones some are of the next one."""
DEFAULTS: Mapping[str, Any] = {
    "item_path": "$.data.path",
    "top": 20,
    "zone": "UTC",
    "period": "hour,day",
    "cut_query": "no",
    "report": "default",
}


class ItemRules(msgspec.Struct, frozen=True, kw_only=True):
    """How an item is rewritten before it is counted: first the query string goes, then each pair applies.

    `pairs`: regular expression (of Java) and replacement, in which `$1` is a group.
    """

    cut_query: bool = False
    pairs: tuple[tuple[str, str], ...] = ()

    @property
    def text(self) -> str:
        """Names the rules in the tables; "" for none."""
        return " ".join([*(["?"] if self.cut_query else []), *(f"{a}=>{b}" for a, b in self.pairs)])


class ReportPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What to report. `start_ms` and `end_ms` (UTC, half-open) are None where the user sets no bound."""

    report: str
    zone: str
    periods: tuple[str, ...]
    start_ms: int | None
    end_ms: int | None
    paths: tuple[str, ...]
    rules: ItemRules
    top: int


def parse_plan(parameters: Mapping[str, Any]) -> ReportPlan:
    """The plan. Raises InvalidInput with every fault.

    >>> plan = parse_plan({"from": "2026-03-29", "zone": "Europe/Berlin", "period": "week"})
    >>> plan.start_ms, plan.end_ms, plan.periods, plan.paths
    (1774738800000, None, ('week',), ('$.data.path',))
    """
    plan, faults = _read(parameters)
    if faults:
        raise InvalidInput("; ".join(f"{name} {fault}" for name, fault in faults))
    return plan


def plan_faults(parameters: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Each parameter's name with what is wrong with it."""
    return _read(parameters)[1]


def split_paths(paths: str) -> tuple[str, ...]:
    """The JSON paths of a list, each once; a quoted field may hold commas.

    >>> split_paths("$.data.path, $['a,b'][0],$.data.path")
    ('$.data.path', "$['a,b'][0]")
    """
    return tuple(dict.fromkeys(found.group() for found in re.finditer(JSON_PATH, paths)))


def _read(parameters: Mapping[str, Any]) -> tuple[ReportPlan, list[tuple[str, str]]]:
    given = dict(DEFAULTS) | {name: value for name, value in parameters.items() if value is not None}
    known = {*DEFAULTS, "from", "to", "item_paths", "item_rules"}
    faults = [(name, "is not a parameter of this job") for name in sorted(given.keys() - known)]
    for name in sorted(known & given.keys() - {"top"}):
        if not isinstance(given[name], str):
            faults.append((name, "must be a string"))
            given[name] = DEFAULTS.get(name, "")
    if type(given["top"]) is not int or not 1 <= given["top"] <= MOST_TOP:
        faults.append(("top", f"must be an integer, 1 … {MOST_TOP}"))
        given["top"] = 1
    if not re.fullmatch(REPORT_NAME, given["report"]):
        faults.append(
            ("report", "must be a name of small letters, digits and hyphens, at most 40 characters")
        )
    zone = zone_named(given["zone"])
    if zone is None:
        faults.append(("zone", f"{given['zone']!r} is not the name of a time zone like Europe/Berlin"))
    periods = tuple(dict.fromkeys(re.split(", ?", given["period"])))
    if not set(periods) <= set(PERIODS):
        faults.append(("period", f"must be one or several of {', '.join(PERIODS)}, with commas between them"))
    paths = _paths(given, faults)
    rules = _rules(given, faults)
    start_ms, end_ms = (_bound(given, name, zone or datetime.UTC, faults) for name in ("from", "to"))
    if start_ms is not None and end_ms is not None and start_ms >= end_ms:
        faults.append(("to", "must be later than `from`"))
    plan = ReportPlan(
        report=given["report"],
        zone=given["zone"],
        periods=periods,
        start_ms=start_ms,
        end_ms=end_ms,
        paths=paths,
        rules=rules,
        top=given["top"],
    )
    return plan, faults


def _paths(given: Mapping[str, Any], faults: list[tuple[str, str]]) -> tuple[str, ...]:
    name, pattern = ("item_paths", JSON_PATHS) if "item_paths" in given else ("item_path", JSON_PATH)
    if not re.fullmatch(pattern, given[name]):
        several = ", or several with commas between them" if name == "item_paths" else ""
        faults.append((name, f"must be a JSON path like $.data.path{several}"))
    paths = split_paths(given[name])
    if len(paths) > MOST_PATHS:
        faults.append((name, f"must name at most {MOST_PATHS} paths"))
    return paths


def _rules(given: Mapping[str, Any], faults: list[tuple[str, str]]) -> ItemRules:
    if given["cut_query"] not in ("yes", "no"):
        faults.append(("cut_query", "must be yes or no"))
    pairs = []
    for text in given.get("item_rules", "").split():
        pattern, arrow, replacement = text.partition("=>")
        if not arrow or not pattern:
            faults.append(("item_rules", f"{text!r} is not PATTERN=>REPLACEMENT"))
            continue
        try:
            re.compile(pattern)
        except re.error as error:
            faults.append(("item_rules", f"{pattern!r} is not a regular expression: {error}"))
            continue
        pairs.append((pattern, replacement))
    return ItemRules(cut_query=given["cut_query"] == "yes", pairs=tuple(pairs))


def zone_named(name: str) -> datetime.tzinfo | None:
    """The zone of the IANA name, or None if there is none."""
    if name == "UTC":
        return datetime.UTC
    try:
        return zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        return None


def _bound(
    given: Mapping[str, Any], name: str, zone: datetime.tzinfo, faults: list[tuple[str, str]]
) -> int | None:
    """The time in ms UTC: of a date, its midnight in the zone."""
    text = given.get(name)
    if not text:
        return None
    is_date = re.fullmatch(r"\d{4}-\d\d-\d\d", text) is not None
    try:
        at = datetime.datetime.fromisoformat(text)
    except ValueError:
        faults.append((name, f"{text!r} is neither a date like 2026-01-31 nor a time like {EXAMPLE}"))
        return None
    if is_date:
        at = at.replace(tzinfo=zone)
    elif at.tzinfo is None:
        faults.append((name, f"{text!r} has no offset: write a time like {EXAMPLE}"))
        return None
    at_ms = round((at - EPOCH) / datetime.timedelta(milliseconds=1))
    if not 0 <= at_ms <= LATEST_MS:
        faults.append((name, "must lie in the years 1970 … 9998"))
    if at_ms % QUARTER_MS:
        faults.append((name, "must be on a quarter of an hour"))
    return at_ms


EXAMPLE = "2026-01-31T12:00:00Z"
EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
