"""Decides which runs to start on a schedule, such as `lake,reports every 15m; audit every 6h`.

A job may have parameters: `reports(zone=Europe/Berlin report=berlin)`. A value with spaces, parentheses or a
`;` stands in single quotes: `reports(item_rules='/user/[0-9]+=>/user/N ^(/p)[0-2]$=>$1low')`.

Pure. Everything is derived from the runs that control keeps on disk, so a restart of control neither loses
nor repeats a start. Time is divided into slots as long as the schedule's period, counted from 1970-01-01
00:00 UTC: `every 1d` starts at midnight. Each slot has one round, which runs the jobs in order, each after
the one before it has succeeded. Slots that begin during a round are skipped, so rounds never overlap. A
failed run is retried after a pause that doubles, until the next slot begins. `live/runs/scheduler.py` starts
the runs.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from services.control.core.runs.jobs import Job, ParametersInvalid, parse_parameters
from services.control.core.runs.run import Run, ScheduledFor
from shared.errors import InvalidInput
from shared.model.names import DEFAULT_GROUP, is_group_name

_RULE = re.compile(
    r"(?P<jobs>\S.*?)\s+every\s+(?P<number>[0-9]{1,6})(?P<unit>[smhd])(\s+in\s+(?P<group>\S+))?"
)
_PARAMETERS = r"(?:'[^']*'|[^()'])*"
"""What stands between parentheses. Here and below, what is quoted counts as one, whatever it contains."""
_STEP = re.compile(rf"(?P<job>[^\s()=]+)(\((?P<parameters>{_PARAMETERS})\))?")
_RULES = re.compile(r"(?:'[^']*'|[^;])+")
_STEPS = re.compile(rf"(?:^|,)((?:\({_PARAMETERS}\)|[^,])*)")
_PAIRS = re.compile(r"(?:'[^']*'|[^\s'])+")
_SECONDS: Mapping[str, int] = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
SHORTEST_S: Final = 10
LONGEST_S: Final = 366 * 86_400
HOW: Final = (
    "expected `job,job(name=value name='a value') every 15m` (s, m, h or d), "
    "and ` in GROUP` for a group other than default"
)
QUIET: Final = frozenset({"RunUnderWay"})
"""Conditions that do not count as failures: another driver runs the same job."""

ScheduleState = Literal["waiting", "running", "retrying", "failed", "cancelled"]


class SchedulesInvalid(InvalidInput):
    """The text is not a list of schedules; `faults` has a sentence for each fault."""

    def __init__(self, faults: Sequence[str]) -> None:
        self.faults = list(faults)
        super().__init__("; ".join(faults))


class Schedule(msgspec.Struct, frozen=True, kw_only=True):
    """Jobs that run one after another in each slot of `every_s`; each with its parameters, as `read_step`."""

    jobs: tuple[str, ...]
    every_s: int
    group: str = DEFAULT_GROUP

    @property
    def name(self) -> str:
        """Identifies the schedule, even after its period has changed.

        >>> Schedule(jobs=("lake", "reports"), every_s=900).name
        'lake,reports'
        """
        return ",".join(self.jobs) + ("" if self.group == DEFAULT_GROUP else f" in {self.group}")


class Start(msgspec.Struct, frozen=True, kw_only=True):
    """A run to start now."""

    job: str
    group: str
    scheduled: ScheduledFor
    parameters: dict[str, object] = {}


class ScheduleRow(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule and its state, as the API shows it."""

    name: str
    jobs: tuple[str, ...]
    group: str
    every_s: int
    state: Annotated[
        ScheduleState, Meta(description="of its last round; `waiting`: it succeeded, or there is none yet")
    ]
    next_at: Annotated[int, Meta(description="when the next run starts at the earliest (ms UTC)")]
    run: Annotated[str | None, Meta(description="its last run")]
    succeeded_at: Annotated[
        int | None, Meta(description="when the last job of its last good round ended (ms UTC)")
    ]
    failures: Annotated[
        int, Meta(description="rounds that have failed since it, or since another control took one")
    ]


def read_step(text: str) -> tuple[str, dict[str, object]]:
    """A job and its parameters; whole numbers become integers, unless they are quoted. Raises ValueError.

    >>> read_step("reports(zone=Europe/Berlin top=5 item_rules='/a=>/b (c)=>d')")
    ('reports', {'zone': 'Europe/Berlin', 'top': 5, 'item_rules': '/a=>/b (c)=>d'})
    """
    match = _STEP.fullmatch(text)
    if match is None:
        raise ValueError(HOW)
    parameters: dict[str, object] = {}
    for pair in _PAIRS.findall(match["parameters"] or ""):
        name, equals, value = pair.partition("=")
        if not equals:
            raise ValueError(f"{pair!r} is not name=value")
        parameters[name] = int(value) if re.fullmatch("-?[0-9]+", value) else value.replace("'", "")
    return match["job"], parameters


def parse_schedules(text: str, jobs: Mapping[str, Job]) -> tuple[Schedule, ...]:
    """The schedules in the text; none in "". Raises SchedulesInvalid, which lists every fault.

    >>> from services.control.core.runs.jobs import JOBS
    >>> [one.every_s for one in parse_schedules("lake every 15m; audit every 6h", JOBS)]
    [900, 21600]
    """
    found: list[Schedule] = []
    faults: list[str] = []
    for rule in filter(None, (part.strip() for part in _RULES.findall(text))):
        match = _RULE.fullmatch(rule)
        if match is None:
            faults.append(f"{rule!r}: {HOW}")
            continue
        schedule = Schedule(
            jobs=tuple(step.strip() for step in _STEPS.findall(match["jobs"])),
            every_s=int(match["number"]) * _SECONDS[match["unit"]],
            group=match["group"] or DEFAULT_GROUP,
        )
        faults += [f"{rule!r}: {fault}" for fault in _faults_of(schedule, jobs)]
        if any(schedule.name == other.name for other in found):
            faults.append(f"{rule!r}: {schedule.name} is scheduled twice")
        found.append(schedule)
    if faults:
        raise SchedulesInvalid(faults)
    return tuple(found)


def groups_with(schedules: Iterable[Schedule], job: str) -> frozenset[str]:
    """The groups in which a schedule runs the job.

    >>> lake = Schedule(jobs=("lake(accept_loss=1)", "reports"), every_s=900, group="fraud")
    >>> groups_with([lake], "lake"), groups_with([lake], "audit")
    (frozenset({'fraud'}), frozenset())
    """
    return frozenset(one.group for one in schedules if job in {read_step(step)[0] for step in one.jobs})


def _faults_of(schedule: Schedule, jobs: Mapping[str, Job]) -> list[str]:
    faults = [fault for step in dict.fromkeys(schedule.jobs) for fault in _faults_of_step(step, jobs)]
    if len(set(schedule.jobs)) < len(schedule.jobs):
        faults.append("a job is named twice")
    if not SHORTEST_S <= schedule.every_s <= LONGEST_S:
        faults.append(f"the period must be {SHORTEST_S} s … {LONGEST_S // 86_400} d")
    if not is_group_name(schedule.group):
        faults.append(f"{schedule.group!r} is not a valid name of a group")
    return faults


def _faults_of_step(step: str, jobs: Mapping[str, Job]) -> list[str]:
    try:
        job, parameters = read_step(step)
    except ValueError as error:
        return [str(error)]
    if job not in jobs:
        return [f"there is no job {job!r}"]
    try:
        parse_parameters(jobs[job], parameters)
    except ParametersInvalid as error:
        return [f"{name!r} of {job} {fault}" for name, fault in error.faults]
    return []


class Retry(msgspec.Struct, frozen=True, kw_only=True):
    """How often a failed run is retried within its round, and the first pause; each further one doubles."""

    most: int
    pause_s: float

    def pause_ms(self, attempt: int) -> int:
        """The pause after this attempt, counted from 0."""
        return int(self.pause_s * 1000 * 2.0 ** min(attempt, 16))


class _Round(msgspec.Struct, frozen=True, kw_only=True):
    """What to do next for a schedule: which run to start and when, or nothing while one is under way."""

    state: ScheduleState
    at_ms: int
    start: Start | None
    last: Run | None


def due(schedules: Iterable[Schedule], runs: Iterable[Run], now_ms: int, retry: Retry) -> list[Start]:
    """The runs to start now, at most one of each schedule."""
    known = list(runs)
    rounds = [_round(schedule, _of(schedule, known), now_ms, retry) for schedule in schedules]
    return [one.start for one in rounds if one.start is not None and one.at_ms <= now_ms]


def rows_of(
    schedules: Iterable[Schedule], runs: Iterable[Run], now_ms: int, retry: Retry
) -> list[ScheduleRow]:
    """The schedules as the API shows them."""
    known = list(runs)
    rows = []
    for schedule in schedules:
        own = _of(schedule, known)
        now = _round(schedule, own, now_ms, retry)
        good = [run for run in own if run.state == "succeeded" and _step(run) == len(schedule.jobs) - 1]
        succeeded_at = max((run.ended_at or 0 for run in good), default=None)
        # of a round that another control took, that one says how it went
        since = max((_slot(run) for run in own if run in good or is_quiet(run)), default=-1)
        failed = {_slot(run) for run in own if run.state == "failed" and not is_quiet(run)}
        rows.append(
            ScheduleRow(
                name=schedule.name,
                jobs=tuple(read_step(step)[0] for step in schedule.jobs),
                group=schedule.group,
                every_s=schedule.every_s,
                state=now.state,
                next_at=now.at_ms,
                run=now.last.id if now.last else None,
                succeeded_at=succeeded_at,
                failures=sum(slot > since for slot in failed),
            )
        )
    return rows


def is_quiet(run: Run) -> bool:
    """Whether the run failed only because another driver was running the same job."""
    return run.error is not None and run.error.condition in QUIET


def needed(schedules: Iterable[Schedule], runs: Iterable[Run]) -> set[str]:
    """The runs that the schedules still depend on: those of each one's last round, and its last good run."""
    known = list(runs)
    kept: set[str] = set()
    for schedule in schedules:
        own = _of(schedule, known)
        if own:
            kept |= {run.id for run in own if _slot(run) == _slot(own[-1])}
        good = [run for run in own if run.state == "succeeded" and _step(run) == len(schedule.jobs) - 1]
        kept |= {run.id for run in good[-1:]}
    return kept


def _of(schedule: Schedule, runs: Sequence[Run]) -> list[Run]:
    """The schedule's own runs, oldest first."""
    own = [run for run in runs if run.scheduled is not None and run.scheduled.schedule == schedule.name]
    return sorted(own, key=lambda run: (_slot(run), _step(run), _attempt(run)))


def _round(schedule: Schedule, own: Sequence[Run], now_ms: int, retry: Retry) -> _Round:
    period_ms = schedule.every_s * 1000
    slot = now_ms // period_ms * period_ms
    last = own[-1] if own else None
    if last is None:
        return _Round(state="waiting", at_ms=slot, start=_start(schedule, slot, 0, 0), last=None)
    if not last.has_ended:
        return _Round(state="running", at_ms=max(now_ms, _slot(last) + period_ms), start=None, last=last)
    step, attempt, ended_at = _step(last), _attempt(last), last.ended_at or last.started_at
    if last.state == "succeeded" and step + 1 < len(schedule.jobs):
        following = _start(schedule, _slot(last), step + 1, 0)
        return _Round(state="running", at_ms=now_ms, start=following, last=last)
    has_next = slot > _slot(last)
    state: ScheduleState = "waiting"
    if last.state == "cancelled":
        state = "cancelled"
    elif last.state == "failed" and not is_quiet(last):
        state = "failed"
        if attempt < retry.most and not has_next:
            again = _start(schedule, _slot(last), step, attempt + 1)
            at_ms = ended_at + retry.pause_ms(attempt)
            if at_ms < _slot(last) + period_ms:
                return _Round(state="retrying", at_ms=at_ms, start=again, last=last)
    # a clock that was set back must not start a slot again
    at_ms = slot if has_next else _slot(last) + period_ms
    return _Round(state=state, at_ms=at_ms, start=_start(schedule, max(at_ms, slot), 0, 0), last=last)


def _start(schedule: Schedule, slot: int, step: int, attempt: int) -> Start:
    scheduled = ScheduledFor(schedule=schedule.name, slot=slot, step=step, attempt=attempt)
    job, parameters = read_step(schedule.jobs[step])
    return Start(job=job, group=schedule.group, scheduled=scheduled, parameters=parameters)


def _slot(run: Run) -> int:
    return run.scheduled.slot if run.scheduled else 0


def _step(run: Run) -> int:
    return run.scheduled.step if run.scheduled else 0


def _attempt(run: Run) -> int:
    return run.scheduled.attempt if run.scheduled else 0
