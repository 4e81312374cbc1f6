"""Schedules: what is due follows from the runs alone, so restarts neither lose nor double a start."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import httpx
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.control.core.runs.jobs import JOBS
from services.control.core.runs.run import Run, RunError, ScheduledFor, Submission
from services.control.core.runs.schedules import (
    Retry,
    Schedule,
    SchedulesInvalid,
    Start,
    due,
    needed,
    parse_schedules,
    read_step,
    rows_of,
)
from services.control.http.api.access.tokens import parse_token
from services.control.live.acts.actions import Actions
from services.control.live.feed.feed import EventFeed
from services.control.live.metrics import registry_for
from services.control.live.runs.scheduler import Scheduler
from services.control.settings import ControlSettings
from shared.errors import InvalidInput, SettingsInvalid
from shared.model.events import Event
from shared.model.group import GroupSettings
from shared.service.settings import load
from tests.effort import effort
from tests.unit.control.adapters.runs.test_runner import Bench
from tests.unit.control.http.test_app import InMemoryRunner, app_of
from tests.unit.control.sources import small_baton

NO_ACTIONS = Actions(lambda _: None)
MINUTE = 60_000
CHAIN = Schedule(jobs=("lake", "reports"), every_s=900)
RETRY = Retry(most=2, pause_s=60)
SLOT = 1_700_000_100_000 // (15 * MINUTE) * 15 * MINUTE


def run_of(
    job: str,
    state: str = "succeeded",
    *,
    at: int,
    step: int = 0,
    attempt: int = 0,
    slot: int = SLOT,
    condition: str = "X",
    schedule: str = "lake,reports",
) -> Run:
    """A run of a schedule that began at `at` and took a minute."""
    run = Run(
        id=f"{at}-{job}",
        job=job,
        group="default",
        parameters={},
        state="starting",
        started_at=at,
        timeout_s=60,
        scheduled=ScheduledFor(schedule=schedule, slot=slot, step=step, attempt=attempt),
    )
    error = RunError(condition=condition, message="") if state == "failed" else None
    return run if state == "starting" else run.ended(state, at + MINUTE, error)  # type: ignore[arg-type]


def due_at(now: int, *runs: Run, schedule: Schedule = CHAIN) -> list[tuple[str, int, int]]:
    """What is due: job, slot and attempt."""
    return [(one.job, one.scheduled.slot, one.scheduled.attempt) for one in due([schedule], runs, now, RETRY)]


def test_a_round_begins_in_each_slot() -> None:
    """Also the first one of all, at once; never twice in a slot, and not when the clock is set back."""
    done = [run_of("lake", at=SLOT), run_of("reports", at=SLOT + MINUTE, step=1)]

    assert due_at(SLOT + 7 * MINUTE) == [("lake", SLOT, 0)]
    assert due_at(SLOT + 14 * MINUTE, *done) == []
    assert due_at(SLOT + 15 * MINUTE, *done) == [("lake", SLOT + 15 * MINUTE, 0)]
    assert due_at(SLOT - 40 * MINUTE, *done) == []


def test_a_step_starts_when_the_one_before_has_succeeded() -> None:
    """And not before it has ended, nor after a failure."""
    assert due_at(SLOT + 2 * MINUTE, run_of("lake", "starting", at=SLOT)) == []
    assert due_at(SLOT + 2 * MINUTE, run_of("lake", at=SLOT)) == [("reports", SLOT, 0)]
    assert due_at(SLOT + MINUTE, run_of("lake", "failed", at=SLOT)) == []


def test_rounds_do_not_overlap() -> None:
    """Slots that pass during a long round are left out; the next round is that of the present slot."""
    late = SLOT + 50 * MINUTE
    long = run_of("lake", "starting", at=SLOT)
    done = run_of("reports", at=late - MINUTE, step=1)

    assert due_at(late, long) == []
    assert due_at(late, run_of("lake", at=SLOT), done) == [("lake", SLOT + 45 * MINUTE, 0)]


def test_a_failed_run_is_repeated_after_a_pause_that_doubles() -> None:
    """As often as set, and not into the next slot; the same step, not the whole chain."""
    first = run_of("lake", at=SLOT)
    failed = run_of("reports", "failed", at=SLOT + MINUTE, step=1)
    again = run_of("reports", "failed", at=SLOT + 3 * MINUTE, step=1, attempt=1)
    last = run_of("reports", "failed", at=SLOT + 6 * MINUTE, step=1, attempt=2)

    assert due_at(SLOT + 3 * MINUTE - 1, first, failed) == []
    assert due_at(SLOT + 3 * MINUTE, first, failed) == [("reports", SLOT, 1)]
    assert due_at(SLOT + 6 * MINUTE - 1, first, failed, again) == []
    assert due_at(SLOT + 6 * MINUTE, first, failed, again) == [("reports", SLOT, 2)]
    assert due_at(SLOT + 14 * MINUTE, first, failed, again, last) == []
    assert due_at(SLOT + 15 * MINUTE, first, failed, again, last) == [("lake", SLOT + 15 * MINUTE, 0)]


def test_what_another_control_does_is_no_failure() -> None:
    """Its run holds the lock: no repetition, no failing schedule; nor is a cancelled run repeated.

    How often rounds failed before is over too: whoever took one counts the failures from there.
    """
    failed = run_of("lake", "failed", at=SLOT - 15 * MINUTE, slot=SLOT - 15 * MINUTE, attempt=2)
    refused = run_of("lake", "failed", at=SLOT, condition="RunUnderWay")
    (before,) = rows_of([CHAIN], [failed], SLOT - 5 * MINUTE, RETRY)
    (row,) = rows_of([CHAIN], [failed, refused], SLOT + 5 * MINUTE, RETRY)

    assert due_at(SLOT + 14 * MINUTE, refused) == []
    assert (before.state, before.failures) == ("failed", 1)
    assert (row.state, row.failures, row.next_at) == ("waiting", 0, SLOT + 15 * MINUTE)
    assert due_at(SLOT + 14 * MINUTE, run_of("lake", "cancelled", at=SLOT)) == []


def test_a_row_says_how_a_schedule_goes() -> None:
    """Its state, when it goes on, when it succeeded last, and how many rounds have failed since."""
    good = [run_of("lake", at=SLOT), run_of("reports", at=SLOT + MINUTE, step=1)]
    bad = [run_of("lake", "failed", at=SLOT + k * 15 * MINUTE, slot=SLOT + k * 15 * MINUTE) for k in (1, 2)]
    now = SLOT + 31 * MINUTE + 1000
    (row,) = rows_of([CHAIN], [*good, *bad], now, RETRY)

    assert (row.name, row.group, row.state, row.failures) == ("lake,reports", "default", "retrying", 2)
    assert (row.succeeded_at, row.next_at, row.run) == (SLOT + 2 * MINUTE, SLOT + 32 * MINUTE, bad[1].id)


def test_the_runs_that_decide_are_needed() -> None:
    """Those of the last round and of the last good one: retention must not make a start happen again."""
    old = [run_of("lake", at=SLOT - 15 * MINUTE, slot=SLOT - 15 * MINUTE)]
    good = [run_of("lake", at=SLOT), run_of("reports", at=SLOT + MINUTE, step=1)]
    bad = [run_of("lake", "failed", at=SLOT + 15 * MINUTE, slot=SLOT + 15 * MINUTE)]

    assert needed([CHAIN], [*old, *good, *bad]) == {good[1].id, bad[0].id}


@settings(max_examples=effort(150), deadline=None)
@given(seed=st.integers(0, 2**32), period_m=st.integers(1, 30), chain=st.integers(1, 3))
def test_hours_of_schedules_keep_the_rules(seed: int, period_m: int, chain: int) -> None:
    """Each slot at most once, steps in order, no overlap; and a slot that finds no run under way is used.

    The runs pass through their JSON at every look, as if control restarted each time.
    """
    rng = random.Random(seed)
    period = period_m * MINUTE
    schedule = Schedule(jobs=("lake", "reports", "audit")[:chain], every_s=period_m * 60)
    records: list[bytes] = []
    started: list[tuple[int, Start]] = []
    ends_at = 0
    now = SLOT + rng.randrange(period)
    for _ in range(300):
        now += rng.choice([1000, 20_000, 5 * MINUTE])
        runs = [msgspec.json.decode(raw, type=Run) for raw in records]
        if runs and not runs[-1].has_ended and now >= ends_at:
            state = rng.choice(["succeeded", "succeeded", "failed", "cancelled"])
            condition = rng.choice(["X", "RunUnderWay"])
            error = RunError(condition=condition, message="") if state == "failed" else None
            runs[-1] = runs[-1].ended(state, ends_at, error)  # type: ignore[arg-type]
            records[-1] = msgspec.json.encode(runs[-1])
        starts = due([schedule], runs, now, RETRY)
        is_busy = bool(runs) and not runs[-1].has_ended
        has_slot = not started or now // period * period > started[-1][1].scheduled.slot
        assert len(starts) <= (0 if is_busy else 1)
        assert not (has_slot and not is_busy and not starts)
        for start in starts:
            started.append((now, start))
            run = run_of(start.job, "starting", at=now)
            records.append(msgspec.json.encode(msgspec.structs.replace(run, scheduled=start.scheduled)))
            ends_at = now + rng.choice([1000, 3 * MINUTE, 40 * MINUTE])

    keys = [(one.scheduled.slot, one.scheduled.step, one.scheduled.attempt) for _, one in started]
    assert keys == sorted(set(keys))
    for at, one in started:
        assert one.job == schedule.jobs[one.scheduled.step]
        if one.scheduled.step == one.scheduled.attempt == 0:
            assert one.scheduled.slot == at // period * period


def test_schedules_are_read_strictly() -> None:
    """Every fault is listed, with what was expected."""
    found = parse_schedules(" lake, reports every 15m ;audit every 6h in fraud;", JOBS)
    assert [(one.name, one.every_s) for one in found] == [("lake,reports", 900), ("audit in fraud", 21_600)]
    (berlin,) = parse_schedules(
        "reports, reports(zone=Europe/Berlin period=hour,day top=5 report=b) every 1h", JOBS
    )
    assert berlin.jobs == ("reports", "reports(zone=Europe/Berlin period=hour,day top=5 report=b)")
    rules = "/user/[0-9]+=>/user/N ^(/p)[0-2];$=>$1,low"
    (mapped,) = parse_schedules(f"lake,reports(item_rules='{rules}' zone='UTC' top=5) every 1h", JOBS)
    (_, parameters) = read_step(mapped.jobs[1])
    assert (mapped.jobs[0], parameters) == ("lake", {"item_rules": rules, "zone": "UTC", "top": 5})
    assert parse_schedules("", JOBS) == ()
    with pytest.raises(SchedulesInvalid) as caught:
        parse_schedules(
            "lake; lake every 5; nope every 1h; lake,lake every 1h; audit every 1s; "
            "audit every 2h; audit every 1h; lake every 1h in A!; lake(x=1) every 2h; lake(x) every 3h; "
            "maintain(keep_days=0) every 1h; lake(a=1 every 4h; audit,,reports every 1h; lake(a='1) every 5h",
            JOBS,
        )
    text = "\n".join(caught.value.faults)
    for part in (
        "'lake': expected",
        "every 5'",
        "no job 'nope'",
        "named twice",
        "10 s",
        "scheduled twice",
        "'A!'",
        "'x' of lake is not a parameter",
        "'x' is not name=value",
        "'keep_days' of maintain must be",
        "'lake(a=1 every 4h': expected",
        "'audit,,reports every 1h': expected",
        '5h": expected',
    ):
        assert part in text


class Clock:
    """A time that tests set."""

    def __init__(self) -> None:
        self.ms = SLOT

    def __call__(self) -> int:
        return self.ms


async def scheduler_on(
    schedules: Sequence[Schedule], *, is_read: bool = True, events: list[Event] | None = None
) -> tuple[Scheduler, InMemoryRunner, Clock]:
    """A scheduler on a small Baton and a runner of runs that do nothing."""
    sources, runner, clock = small_baton(), InMemoryRunner(), Clock()
    view = sources.view()
    if is_read:
        await view.step()
    actions = Actions((events if events is not None else []).append)
    return Scheduler(schedules, runner, view, actions, RETRY, now_ms=clock), runner, clock


async def test_the_scheduler_starts_what_is_due_with_the_groups_settings() -> None:
    """With its parameters and the job's defaults, marked with its schedule; and nothing twice."""
    weekly = Schedule(jobs=("maintain(keep_days=3)",), every_s=7 * 86_400)
    scheduler, runner, _ = await scheduler_on([CHAIN, weekly])
    await scheduler.step()
    await scheduler.step()

    submission, upkeep = runner.submissions
    assert (upkeep.job, upkeep.parameters) == ("maintain", {"keep_days": 3})
    assert (submission.job, submission.group) == ("lake", "default")
    assert submission.parameters == {"accept_loss": 0, "recount": 0}
    assert submission.scheduled == ScheduledFor(schedule="lake,reports", slot=SLOT, step=0, attempt=0)


async def test_what_a_schedule_starts_is_an_event() -> None:
    """Who did what: the schedule, in words that no token can have as its name."""
    events: list[Event] = []
    scheduler, runner, _ = await scheduler_on([CHAIN], events=events)
    await scheduler.step()
    await scheduler.step()

    (event,), (run,) = events, runner.runs()
    assert (event.kind, event.who, event.what) == ("action", "schedule lake,reports", "run lake")
    assert (event.group, event.run) == ("default", run.id)
    with pytest.raises(InvalidInput):
        parse_token(f"0123456789abcdef admin name={event.who}", 1)


async def test_a_run_that_cannot_start_is_tried_again_and_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Before the cluster is read, or of a group that is not there yet; a user's own run is no fault."""
    unread, _, clock = await scheduler_on([CHAIN], is_read=False)
    unknown, runner, _ = await scheduler_on([Schedule(jobs=("lake",), every_s=900, group="fraud"), CHAIN])
    for _ in range(3):
        await unread.step()
        await unknown.step()
        clock.ms += 61_000

    said = [record.message for record in caplog.records]
    assert said == ["scheduled run not started"] * 2
    assert [one.group for one in runner.submissions] == ["default"]
    # the user's run of the same job is under way: the scheduled one waits without a word
    other, runner, _ = await scheduler_on([CHAIN])
    await runner.start(
        Submission(job="lake", group="default", parameters={}, settings=GroupSettings(), streams=4)
    )
    await other.step()
    assert len(runner.submissions) == 1
    assert len(caplog.records) == 2


async def test_a_restarted_control_goes_on_with_its_schedules(tmp_path: Path) -> None:
    """On real records: nothing starts twice in a slot, and the next slot starts; a cancelled run stays so."""
    bench = Bench(tmp_path / "runs")
    view, clock = small_baton().view(), Clock()
    await view.step()
    schedule = Schedule(jobs=("reports",), every_s=900)

    def control() -> Scheduler:
        return Scheduler([schedule], bench.runner, view, NO_ACTIONS, RETRY, now_ms=clock)

    await control().step()
    (run,) = bench.runner.runs()
    bench.again()
    await control().step()
    assert [one.id for one in bench.runner.runs()] == [run.id]

    await bench.runner.cancel(run.id)
    bench.again()
    clock.ms += 14 * MINUTE
    await control().step()
    assert len(bench.runner.runs()) == 1
    clock.ms += MINUTE
    await control().step()
    assert [one.scheduled.slot for one in bench.runner.runs() if one.scheduled] == [SLOT + 15 * MINUTE, SLOT]
    for runner in bench.runners:
        await runner.stop()


async def test_control_shows_its_schedules() -> None:
    """In the order of the setting; `/metrics` has what an alarm needs."""
    audit = Schedule(jobs=("audit(sample=0.1)",), every_s=3600, group="fraud")
    runner = InMemoryRunner()
    good = [run_of("lake", at=SLOT), run_of("reports", at=SLOT + MINUTE, step=1)]
    bad = run_of("lake", "failed", at=SLOT + 15 * MINUTE, slot=SLOT + 15 * MINUTE)
    runner.known = {run.id: run for run in (*good, bad)}
    view = small_baton().view()
    scheduler = Scheduler([audit, CHAIN], runner, view, NO_ACTIONS, RETRY, now_ms=lambda: SLOT)
    registry = registry_for(small_baton().view(), runner, EventFeed(), schedules=scheduler.rows)

    assert [row.name for row in scheduler.rows()] == ["audit(sample=0.1) in fraud", "lake,reports"]
    of_chain = {"schedule": "lake,reports"}
    assert registry.get_sample_value("baton_schedule_failures", of_chain) == 1
    success = registry.get_sample_value("baton_schedule_success_timestamp_seconds", of_chain)
    assert success == (SLOT + 2 * MINUTE) / 1000
    of_audit = {"schedule": "audit(sample=0.1) in fraud"}
    assert registry.get_sample_value("baton_schedule_period_seconds", of_audit) == 3600
    app = await app_of(small_baton(), runner, schedules=[audit, CHAIN])
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://control") as http:
        rows = (await http.get("/schedules")).json()["schedules"]
    assert [(row["name"], row["every_s"], row["failures"]) for row in rows] == [
        ("audit(sample=0.1) in fraud", 3600, 0),
        ("lake,reports", 900, 1),
    ]
    assert rows[1]["run"] == bad.id


def test_a_control_with_faulty_schedules_does_not_start() -> None:
    """Every fault by the setting's name."""
    with pytest.raises(SettingsInvalid) as caught:
        load(ControlSettings, {"BATON_SCHEDULES": "nope every 1h; lake every 1y"})

    assert [fault.partition(":")[0] for fault in caught.value.faults] == ["BATON_SCHEDULES"] * 2
