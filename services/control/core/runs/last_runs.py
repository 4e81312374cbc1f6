"""What the last runs of the jobs say: the last audit's verdict, and which jobs failed last.

Pure. Used for `GET /problems`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta

from services.control.core.runs.run import Run
from services.control.core.runs.schedules import is_quiet

AUDIT: Final = "audit"
DIFFERENCES: Final = (
    *("missing", "overdue", "duplicates", "extra", "different", "misrouted", "split_keys"),
    *("lake_missing", "lake_extra", "lake_different", "lake_duplicated", "lake_days"),
    "reports_different",
)
"""The numbers of an audit's result that say what is wrong."""


class LastAudit(msgspec.Struct, frozen=True, kw_only=True):
    """The last audit of a group that has ended with a verdict."""

    run: str
    at: Annotated[int, Meta(description="when it ended, ms UTC")]
    verdict: Annotated[str, Meta(description="in the words of the audit")]
    is_sound: Annotated[
        bool | None, Meta(description="whether all is as the delivery promises; null: nothing was judged")
    ]
    judged: Annotated[int, Meta(description="sessions")]
    part: Annotated[str, Meta(description="what it was limited to, or `everything`")]
    differences: Annotated[dict[str, int], Meta(description="by kind, those that were found")]


def last_audit_run(runs: Iterable[Run], group: str) -> Run | None:
    """The newest audit of the group that has succeeded; `runs`: newest first."""
    of_group = (run for run in runs if (run.job, run.group) == (AUDIT, group))
    return next((run for run in of_group if run.state == "succeeded"), None)


def last_audit(run: Run, result: Mapping[str, Any]) -> LastAudit:
    """What the result of the run says."""
    verdict = str(result.get("verdict", ""))
    is_sound = None if verdict in ("", "nothing judged") else verdict != "differs"
    return LastAudit(
        run=run.id,
        at=run.ended_at or run.started_at,
        verdict=verdict,
        is_sound=is_sound,
        judged=_count(result.get("judged")),
        part=str(result.get("part", "everything")),
        differences={name: n for name in DIFFERENCES if (n := _count(result.get(name)))},
    )


def failed_last(runs: Iterable[Run], group: str) -> list[Run]:
    """The last run of each job of the group, where it failed; `runs`: newest first."""
    newest: dict[str, Run] = {}
    for run in runs:
        if run.group == group and run.state in ("succeeded", "failed") and not is_quiet(run):
            newest.setdefault(run.job, run)
    return [run for run in newest.values() if run.state == "failed"]


def _count(value: object) -> int:
    return value if isinstance(value, int) else 0
