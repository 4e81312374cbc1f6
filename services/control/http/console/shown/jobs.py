"""Jobs, their runs and schedules as the console shows them. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from services.control.core.runs.jobs import JOBS, Job
from services.control.core.runs.run import Run, RunSummary
from services.control.core.runs.schedules import ScheduleRow
from services.control.http.console.shown.verdict import is_sound, result_words
from services.control.http.console.words import clock, count, plural, span

ResultOf = Callable[[str], Any]
"""The result of a run by its id; None while it has none."""
BAD_STATES: Final = frozenset({"failed"})


@dataclass(frozen=True, slots=True, kw_only=True)
class RunLine:
    """A run as a row of a table. `share`: percent of its tasks, None before Spark has counted them."""

    run: RunSummary
    started: str
    took: str
    tasks: str
    share: float | None
    progress: str
    outcome: str

    @property
    def has_ended(self) -> bool:
        """Whether the run is final."""
        return self.run.ended_at is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobLine:
    """A job, its newest run, and when a schedule starts it next ("" if none does).

    `word`: how the run went; "" without one.
    """

    job: Job
    last: RunLine | None
    word: str
    last_words: str
    next_words: str


def run_line(run: Run, now_ms: int, result: Mapping[str, Any] | None = None) -> RunLine:
    """The run as a row."""
    tasks = run.progress
    return RunLine(
        run=run,
        started=clock(run.started_at, now_ms),
        took=span((run.ended_at or now_ms) - run.started_at),
        tasks=f"{count(tasks.completed)} / {count(tasks.tasks)}" if tasks.tasks else "",
        share=share_of(run),
        progress=progress_words(run, now_ms),
        outcome=result_words(run, result),
    )


def share_of(run: RunSummary) -> float | None:
    """How many of its tasks are done, in percent; None before Spark has counted any."""
    tasks = run.progress
    return round(min(100.0, 100 * tasks.completed / tasks.tasks), 1) if tasks.tasks else None


def progress_words(run: RunSummary, now_ms: int) -> str:
    """How far a run is, in words."""
    tasks = run.progress
    if run.ended_at is not None:
        return f"{run.state} after {span(run.ended_at - run.started_at)}"
    so_far = f"{max(0, now_ms - run.started_at) // 1000} s so far"
    if not tasks.tasks:
        return f"{'waits for Spark' if run.state == 'starting' else 'no tasks yet'}; {so_far}"
    return (
        f"{count(tasks.completed)} of {plural(tasks.tasks, 'task')}, {count(tasks.active)} active, "
        f"{count(tasks.failed)} failed; {so_far}"
    )


def job_lines(
    runs: Sequence[Run], schedules: Iterable[ScheduleRow], group: str, now_ms: int, result_of: ResultOf
) -> list[JobLine]:
    """What can be run, with the newest run of each in the group. `runs`: those of the group, newest first."""
    own = [row for row in schedules if row.group == group]
    lines = []
    for job in JOBS.values():
        last = next((run for run in runs if run.job == job.name), None)
        rows = [row for row in own if job.name in row.jobs]
        lines.append(
            JobLine(
                job=job,
                last=run_line(last, now_ms) if last else None,
                word=outcome_word(last, result_of) if last else "",
                last_words=last_words(last, now_ms, result_of) if last else "never run in this group",
                next_words="; ".join(schedule_words(row, now_ms) for row in rows),
            )
        )
    return lines


def last_words(run: Run, now_ms: int, result_of: ResultOf) -> str:
    """How a job's newest run went, in a few words."""
    if run.ended_at is None:
        return progress_words(run, now_ms)
    word = outcome_word(run, result_of)
    why = f": {run.error.condition}" if run.error is not None and run.state == "failed" else ""
    return f"{word} at {clock(run.started_at, now_ms)}, {span(run.ended_at - run.started_at)}{why}"


def outcome_word(run: Run, result_of: ResultOf) -> str:
    """The state of a run; of an audit that has succeeded, what it found."""
    if run.job != "audit" or run.state != "succeeded":
        return run.state
    found = is_sound(result_of(run.id) or {})
    return "judged nothing" if found is None else "sound" if found else "not sound"


def schedule_words(row: ScheduleRow, now_ms: int) -> str:
    """When a schedule comes next, in a few words."""
    when = "due now" if row.next_at <= now_ms else f"next at {clock(row.next_at, now_ms)}"
    return f"{when}, every {every(row.every_s)}"


def every(every_s: int) -> str:
    """A period in the unit in which people set it.

    >>> [every(s) for s in (900, 3600, 21600, 86400, 90, 60)]
    ['15 min', 'hour', '6 hours', 'day', '90 s', 'minute']
    """
    for unit_s, one, many in ((86_400, "day", "days"), (3_600, "hour", "hours"), (60, "minute", "min")):
        if every_s % unit_s == 0:
            return one if every_s == unit_s else f"{every_s // unit_s} {many}"
    return f"{every_s} s"
