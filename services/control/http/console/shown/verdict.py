"""The last audit's verdict as the console says it: a headline, what it rests on, and its limits. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from services.control.core.runs.run import Run
from services.control.http.console.words import clock, count, listed, plural, span

DELIVERY: Final = {
    "exactly_once": "exactly once",
    "at_least_once": "at least once",
    "at_most_once": "at most once",
}
WHOLE: Final = "everything"
"""`part` of an audit that judged all that there is."""
OVERDUE: Final = "overdue"
"""Audits of earlier versions did not look for it."""
_SHOWN: Final = ("missing", OVERDUE, "extra", "different")
"""The differences that are shown if there are none, too."""
_FINDINGS: Final = {
    "missing": ("session is missing", "sessions are missing"),
    OVERDUE: ("session is overdue", "sessions are overdue"),
    "extra": ("session is extra", "sessions are extra"),
    "different": ("session is different", "sessions are different"),
    "duplicates": ("session came again", "sessions came again"),
    "misrouted": ("fragment is in a wrong stream", "fragments are in a wrong stream"),
    "split_keys": ("key is in several streams", "keys are in several streams"),
    "lake_missing": ("session is missing in the lake", "sessions are missing in the lake"),
    "lake_extra": ("session is extra in the lake", "sessions are extra in the lake"),
    "lake_different": ("session is different in the lake", "sessions are different in the lake"),
    "lake_duplicated": ("session is in the lake again", "sessions are in the lake again"),
    "lake_days": (
        "day of the lake is not as it was written",
        "days of the lake are not as they were written",
    ),
    "reports_different": ("sum of a report is wrong", "sums of reports are wrong"),
}
"""Numbers of an audit's result, as one and as many."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What an audit found. `is_sound` is None if it judged nothing.

    `delivery` is what the group promises, `took` how long the audit was. `numbers` pairs each count of
    differences with its name; `limits` are sentences about what was left out or trusted.
    """

    run: Run
    is_sound: bool | None
    title: str
    sentence: str
    delivery: str
    took: str
    scope: str
    numbers: Sequence[tuple[int, str]]
    limits: Sequence[str]
    examples: Sequence[Mapping[str, Any]]


def verdict_of(run: Run, result: Mapping[str, Any], now_ms: int) -> Verdict:
    """The verdict of an audit that has succeeded, from its result."""
    delivery = DELIVERY.get(result.get("delivery", ""), "")
    return Verdict(
        run=run,
        is_sound=is_sound(result),
        title=_title(result, delivery),
        sentence=_sentence(run, result, now_ms),
        delivery=delivery,
        took=span(run.ended_at - run.started_at) if run.ended_at is not None else "",
        scope=_scope(result),
        numbers=[(result.get(name, 0), name) for name in _SHOWN if name != OVERDUE or name in result],
        limits=_limits(result),
        examples=result.get("examples", ()),
    )


def is_sound(result: Mapping[str, Any]) -> bool | None:
    """Whether the audit found what the delivery promises; None if it judged nothing.

    >>> [is_sound({"verdict": word}) for word in ("exact", "within the promise of at_most_once", "differs")]
    [True, True, False]
    """
    word = result.get("verdict", "nothing judged")
    return None if word == "nothing judged" else word != "differs"


def findings_of(result: Mapping[str, Any]) -> str:
    """The differences in words; "" if there are none.

    >>> findings_of({"missing": 3, "extra": 0, "lake_missing": 1})
    '3 sessions are missing and 1 session is missing in the lake'
    """
    found = {name: result.get(name, 0) for name in _FINDINGS}
    return listed([plural(number, *_FINDINGS[name]) for name, number in found.items() if number])


def _title(result: Mapping[str, Any], delivery: str) -> str:
    sound, part = is_sound(result), result.get("part", WHOLE)
    if sound is None:
        return "Nothing was judged, so nothing is proven."
    if not sound:
        return f"Not sound: {findings_of(result)}."
    if result["verdict"] != "exact":
        return f"Sound, as {delivery} permits: {findings_of(result)}."
    return f"Sound. {delivery.capitalize()}, proven{' for a part' if part != WHOLE else ''}."


def _sentence(run: Run, result: Mapping[str, Any], now_ms: int) -> str:
    judged, fragments = result.get("judged", 0), result.get("fragments", 0)
    is_exact = result.get("verdict") == "exact"
    found = (
        "found every one delivered, once, byte for byte" if is_exact else "compared them with those delivered"
    )
    waiting = result.get("open", 0)
    due = " and not due" if OVERDUE in result else ""
    rest = f" {plural(waiting, 'is', 'are')} open{due}." if waiting else ""
    return (
        f"The audit of {clock(run.started_at, now_ms)} recomputed {plural(judged, 'session')} from "
        f"{plural(fragments, 'fragment')} in the log and {found}.{rest}"
    )


def _scope(result: Mapping[str, Any]) -> str:
    part = result.get("part", WHOLE)
    only = f"Only {part} was judged. " if part != WHOLE else ""
    left = result.get("not_judged", 0) + result.get("lake_not_judged", 0)
    judged = plural(left, "session was", "sessions were") if left else "Nothing was"
    cut = result.get("cut_streams", 0)
    return f"{only}{judged} left unjudged; retention has cut {plural(cut, 'stream') if cut else 'no stream'}."


def _limits(result: Mapping[str, Any]) -> list[str]:
    left_out = [f"Not judged: {row['what']}, because {row['why']}." for row in result.get("left_out", ())]
    trusted = "; ".join(f"{row['what']} ({row['why']})" for row in result.get("trusted", ()))
    return left_out + ([f"Taken on trust: {trusted}."] if trusted else [])


def result_words(run: Run, result: Mapping[str, Any] | None) -> str:
    """What a run has achieved, in a few words; "" if that is not known.

    >>> lake = Run(id="r", job="lake", group="g", parameters={}, state="succeeded", started_at=0, timeout_s=1)
    >>> result_words(lake, {"added": 18204, "sessions": 1842310})
    '18,204 sessions came; the table holds 1,842,310'
    """
    if not result:
        return ""
    match run.job:
        case "lake" if "sessions" in result:
            came = plural(result.get("added", 0), "session")
            lost = result.get("skipped", 0)
            rest = f"; {plural(lost, 'offset was', 'offsets were')} lost before" if lost else ""
            return f"{came} came; the table holds {count(result['sessions'])}{rest}"
        case "reports" if "sessions_version" in result:
            hours, items = len(result.get("hours", ())), len(result.get("items", ()))
            version = result["sessions_version"]
            return f"{plural(hours, 'hour')}, {plural(items, 'item')}, from version {version} of the table"
        case "audit" if "verdict" in result:
            sound = is_sound(result)
            judged = f"{count(result.get('judged', 0))} judged"
            if sound is None:
                return "nothing judged"
            return f"{'sound' if sound else 'not sound'}: {judged}, {findings_of(result) or 'no difference'}"
        case "maintain" if "tables" in result:
            return f"{plural(len(result['tables']), 'table')} maintained"
    return ""
