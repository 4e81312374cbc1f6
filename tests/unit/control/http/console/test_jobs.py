"""The view Jobs and the pages of runs: what they say of each state, and what their forms do."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.control.core.runs.run import Progress, RunError
from services.control.http.console.shown.jobs import every, progress_words, share_of
from tests.unit.control.http.console.browser import page_at, posted
from tests.unit.control.http.console.runs_desk import DIFFERS, EVIL, EXACT, RunsDesk, a_run, runs_desk


@pytest.fixture
async def desk() -> AsyncIterator[RunsDesk]:
    desk = await runs_desk()
    async with desk.http:
        yield desk


@given(st.integers(0, 10_000), st.integers(0, 10_000), st.integers(0, 90_000))
def test_progress_is_a_share_of_known_tasks(completed: int, tasks: int, age_ms: int) -> None:
    """Unknown before Spark has counted tasks, never above 100, and in words otherwise."""
    run = a_run("lake", "running", Progress(tasks=tasks, completed=completed))
    share = share_of(run)

    assert (share is None) == (tasks == 0)
    assert share is None or 0 <= share <= 100
    assert progress_words(run, age_ms).endswith(f"{age_ms // 1000} s so far")


def test_periods_are_said_in_the_unit_in_which_they_were_set() -> None:
    """Whole minutes, hours and days; anything else in seconds."""
    assert [every(s) for s in (10, 60, 900, 3600, 86_400, 3_601)] == [
        "10 s",
        "minute",
        "15 min",
        "hour",
        "day",
        "3601 s",
    ]


async def test_without_an_audit_nothing_is_claimed(desk: RunsDesk) -> None:
    """The page says what would prove it, and how to start the first run."""
    page = await page_at(desk.http, "/console/jobs")

    assert page.status == 200
    assert "Nothing is proven yet." in page.text
    assert "No job has run in this group yet." in page.text


async def test_the_overview_shows_the_newest_run_of_each_job(desk: RunsDesk) -> None:
    """With what an audit has found, and how far a run is that is under way; a message redraws them."""
    desk.runs.add("lake", "failed", error=RunError(condition="Lost", message="its driver is gone"))
    audit = desk.runs.add("audit", "succeeded", DIFFERS)
    lake = desk.runs.add("lake", "running")
    page = await page_at(desk.http, "/")

    shown = [one["data-work"] for one in page.elements["li"] if "data-work" in one]
    assert shown == [lake, audit]
    assert "2 of 8 tasks" in page.text
    assert "not sound" in page.text
    assert "run" in page.values("section", "data-works")


async def test_the_last_audit_that_ended_well_decides(desk: RunsDesk) -> None:
    """A later audit that failed leaves its verdict, and is mentioned."""
    sound = desk.runs.add("audit", "succeeded", EXACT)
    failed = desk.runs.add("audit", "failed", error=RunError(condition="RunTimeout", message="too long"))
    page = await page_at(desk.http, "/console/jobs")

    assert "Sound. Exactly once, proven." in page.text
    assert "A later audit ended" in page.text
    assert {f"/console/runs/{sound}", f"/console/runs/{failed}"} <= {*page.values("a", "href")}


async def test_differences_come_with_examples_and_everything_is_escaped(desk: RunsDesk) -> None:
    """Keys are what clients send: they stand on the page as text."""
    desk.runs.add("audit", "succeeded", DIFFERS)
    page = await page_at(desk.http, "/console/jobs")

    assert "Not sound: 3 sessions are missing and 1 session is extra." in page.text
    assert EVIL in page.text
    assert "alert('x')" not in page.html
    assert [script for script in page.elements["script"] if "src" not in script] == []
    assert page.values("div", "style") == []


async def test_jobs_show_their_last_run_and_when_they_come_next(desk: RunsDesk) -> None:
    """What has failed with its condition, what is under way with a bar, what is scheduled with its time."""
    desk.runs.add("reports", "failed", error=RunError(condition="DriverLost", message="the driver is gone"))
    running = desk.runs.add("lake", "running")
    page = await page_at(desk.http, "/console/jobs")

    assert "failed at 1 Jan 01:59, 30.0 s: DriverLost" in page.text
    assert "DriverLost : the driver is gone" in page.text
    assert "2 of 8 tasks, 1 active, 0 failed; " in page.text
    assert page.values("div", "aria-valuenow") == ["25"]
    assert running in page.values("li", "data-work")
    assert "every 15 min" in page.text


async def test_runs_of_other_groups_stay_out(desk: RunsDesk) -> None:
    """The page is about its group."""
    desk.runs.add("audit", "succeeded", EXACT, group="fraud")
    page = await page_at(desk.http, "/console/jobs")

    assert "Nothing is proven yet." in page.text
    assert page.values("tr", "data-work") == []


async def test_older_runs_are_on_further_pages(desk: RunsDesk) -> None:
    """Newest first; the pages add up to all of them, and only the first one follows new runs."""
    runs = [desk.runs.add("lake", "succeeded", {"sessions": n}) for n in range(25)]
    pages = [await page_at(desk.http, f"/console/jobs?offset={offset}") for offset in (0, 20)]

    assert [run for page in pages for run in page.values("tr", "data-work")] == runs[::-1]
    assert [page.values("div", "data-works") for page in pages] == [["run"], [""]]


async def test_a_run_can_be_watched_and_cancelled(desk: RunsDesk) -> None:
    """Its page has the log and a form that cancels it; afterwards the form is gone."""
    run = desk.runs.add("lake", "running", parameters={"accept_loss": 1})
    before = await page_at(desk.http, f"/console/runs/{run}")
    place, _ = await posted(desk.http, f"/console/runs/{run}/cancel")
    after = await page_at(desk.http, place)

    assert before.form(f"/console/runs/{run}/cancel") is not None
    assert f"a line of {run}" in before.text
    assert "accept_loss 1" in before.text
    assert desk.runs.known[run].state == "cancelled"
    assert "cancelled" in after.text
    assert after.form(f"/console/runs/{run}/cancel") is None


async def test_who_ran_and_cancelled_what_is_an_event(desk: RunsDesk) -> None:
    """With the reason; a run that has ended already is not cancelled again."""
    place, _ = await posted(desk.http, "/console/jobs/lake/runs", reason="before the report")
    page = await page_at(desk.http, place)
    for _ in range(2):
        await posted(desk.http, f"{place}/cancel", reason="too slow")

    assert [(event.what, event.why) for event in desk.events] == [
        ("run lake", "before the report"),
        ("cancel lake", "too slow"),
    ]
    assert "requested by anybody: before the report" in page.text


async def test_an_unknown_run_is_not_found(desk: RunsDesk) -> None:
    """As in the API."""
    assert (await page_at(desk.http, "/console/runs/none")).status == 404
    assert (await posted(desk.http, "/console/runs/none/cancel"))[1].status == 404
    assert (await page_at(desk.http, "/console/actions/run?job=none")).status == 404


async def test_a_job_runs_with_the_parameters_of_its_form(desk: RunsDesk) -> None:
    """Empty fields keep their defaults; integers arrive as integers; the answer leads to the run."""
    place, answer = await posted(
        desk.http,
        "/console/jobs/reports/runs",
        **{"group": "default", "p.top": "5", "p.zone": " ", "p.from": ""},
    )

    assert (answer.status, place) == (303, "/console/runs/r0")
    assert desk.runs.submissions[0].parameters["top"] == 5
    assert desk.runs.submissions[0].parameters["zone"] == "UTC"


async def test_faults_stand_beside_their_fields(desk: RunsDesk) -> None:
    """Nothing starts, and what was typed stays, as text."""
    place, page = await posted(desk.http, "/console/jobs/reports/runs", **{"p.top": EVIL, "p.report": "A B"})

    assert (place, page.status, desk.runs.submissions) == ("", 422, [])
    assert "2 parameters have faults. Nothing was started." in page.text
    assert "top must be an integer" in page.text
    fields = {one["name"]: one for one in page.elements["input"] if "name" in one}
    assert (fields["p.top"]["value"], fields["p.top"]["aria-invalid"]) == (EVIL, "true")
    assert "aria-invalid" not in fields["p.zone"]


async def test_a_second_run_of_a_job_is_refused_in_words(desk: RunsDesk) -> None:
    """With the status of the API, and a way back."""
    desk.runs.add("lake", "running")
    place, page = await posted(desk.http, "/console/jobs/lake/runs", group="default")

    assert (place, page.status) == ("", 409)
    assert "lake was not started." in page.text
    assert {"/console/jobs?group=default", "/console/runs/r0"} <= {*page.values("a", "href")}


async def test_the_form_shows_the_same_run_as_calls(desk: RunsDesk) -> None:
    """What the query fills in, quoted for a shell."""
    page = await page_at(desk.http, "/console/actions/run?job=lake&p.accept_loss=1")

    assert "baton run lake -p accept_loss=1 --wait" in page.text
    assert """-d '{"accept_loss": 1}'""" in page.text
    form = page.form("/console/jobs/lake/runs")
    assert form is not None
    assert len(form.pop("key")) == 16
    assert form == {"group": "default", "job": "lake"}


async def test_a_form_that_is_sent_twice_starts_one_run(desk: RunsDesk) -> None:
    """A double click leads to the run twice; another form is another request."""
    pages = [await page_at(desk.http, "/console/actions/run?job=lake") for _ in range(2)]
    first, second = (page.form("/console/jobs/lake/runs") for page in pages)
    assert first is not None
    assert second is not None
    send = functools.partial(posted, desk.http, "/console/jobs/lake/runs")
    answers = await asyncio.gather(*(send(**first) for _ in range(3)))
    refused_at, refusal = await send(**second)

    assert [place for place, _ in answers] == ["/console/runs/r0"] * 3
    assert len(desk.runs.known) == len(desk.events) == 1
    assert (refused_at, refusal.status) == ("", 409)


async def test_results_of_runs_are_json(desk: RunsDesk) -> None:
    """The run's page shows the whole result as it is."""
    run = desk.runs.add("lake", "succeeded", {"sessions": 7, "table": EVIL})
    page = await page_at(desk.http, f"/console/runs/{run}")

    assert msgspec.json.format(msgspec.json.encode({"sessions": 7})).decode()[1:-1].strip() in page.text
    assert "alert('x')" not in page.html
