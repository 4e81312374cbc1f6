"""The views Jobs and Reports, and the pages of runs: what they say of each state, and what their forms do."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import httpx
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.control.console.jobs import every, progress_words, share_of
from services.control.console.verdict import findings_of, result_words, verdict_of
from services.control.core.runs import Progress, Run, RunError, RunState
from services.control.core.schedules import Schedule
from tests.unit.control.pages import browser_of, page_at, posted
from tests.unit.control.sources import small_baton
from tests.unit.control.test_app import InMemoryRunner, app_of

NOW_MS = 7_200_000
EVIL = "<script>alert('x')</script>"
EXACT: dict[str, Any] = {
    "verdict": "exact",
    "part": "everything",
    "delivery": "exactly_once",
    "judged": 1200,
    "fragments": 9000,
    "open": 3,
}
DIFFERS = EXACT | {
    "verdict": "differs",
    "missing": 3,
    "extra": 1,
    "examples": [{"kind": "missing", "id": "s1", "stream": 7, "key": EVIL, "detail": "offsets 1 … 2"}],
}


@dataclass
class Runs(InMemoryRunner):
    """A runner with results."""

    results: dict[str, Any] = field(default_factory=dict)

    def result_of(self, run_id: str) -> Any:
        return self.results.get(run_id)

    def add(
        self, job: str, state: RunState, result: Any = None, *, group: str = "default", **more: Any
    ) -> str:
        """Adds a run, the newest."""
        run = Run(
            id=f"r{len(self.known)}",
            job=job,
            group=group,
            parameters=more.pop("parameters", {}),
            state="running",
            started_at=NOW_MS - 60_000,
            timeout_s=60,
            progress=more.pop("progress", Progress(tasks=8, completed=2, active=1)),
        )
        is_over = state in ("succeeded", "failed", "cancelled")
        self.known[run.id] = run.ended(state, NOW_MS - 30_000, more.get("error")) if is_over else run
        self.results[run.id] = result
        return run.id


@dataclass
class Desk:
    """A browser at control, and the runs that it shows."""

    runs: Runs
    http: httpx.AsyncClient


@pytest.fixture
async def desk() -> AsyncIterator[Desk]:
    runs = Runs()
    schedules = [Schedule(jobs=("lake", "reports"), every_s=900)]
    app = await app_of(small_baton(), runs, schedules=schedules)
    async with browser_of(app) as http:
        yield Desk(runs, http)


def a_run(job: str, state: RunState = "succeeded", progress: Progress | None = None) -> Run:
    """A run that began in 1970."""
    return Run(
        id="a",
        job=job,
        group="g",
        parameters={},
        state=state,
        started_at=0,
        timeout_s=1,
        progress=progress or Progress(),
    )


@pytest.mark.parametrize(
    ("result", "title"),
    [
        (EXACT, "Sound. Exactly once, proven."),
        (EXACT | {"part": "streams 0-5"}, "Sound. Exactly once, proven for a part."),
        (EXACT | {"delivery": "at_least_once"}, "Sound. At least once, proven."),
        (
            EXACT
            | {"verdict": "within the promise of at_most_once", "delivery": "at_most_once", "missing": 1},
            "Sound, as at most once permits: 1 session is missing.",
        ),
        (EXACT | {"verdict": "differs", "missing": 3}, "Not sound: 3 sessions are missing."),
        (DIFFERS, "Not sound: 3 sessions are missing and 1 session is extra."),
        (
            EXACT | {"verdict": "differs", "lake_duplicated": 2},
            "Not sound: 2 sessions are in the lake again.",
        ),
        (EXACT | {"verdict": "nothing judged"}, "Nothing was judged, so nothing is proven."),
    ],
)
def test_the_headline_claims_what_was_proven_and_no_more(result: dict[str, Any], title: str) -> None:
    """Only a whole exact audit proves the group's delivery; a difference is named with its number."""
    assert verdict_of(a_run("audit"), result, 0).title == title


def test_what_was_not_judged_is_said_beside_the_verdict() -> None:
    """Sessions that could not be judged, cut streams, and each reason."""
    left = [{"what": "lake", "why": "there is no table"}]
    limits = {"not_judged": 4, "lake_not_judged": 1, "cut_streams": 2, "left_out": left, "part": "streams 3"}
    verdict = verdict_of(a_run("audit"), EXACT | limits, 0)

    assert verdict.scope == (
        "Only streams 3 was judged. 5 sessions were left unjudged; retention has cut 2 streams."
    )
    assert verdict.limits == ["Not judged: lake, because there is no table."]


@given(st.dictionaries(st.sampled_from(["missing", "extra", "lake_missing", "judged"]), st.integers(0, 5)))
def test_every_difference_is_named_and_nothing_else(numbers: dict[str, int]) -> None:
    """A number above 0 appears in the words; what is 0, and what is no difference, does not."""
    words = findings_of(numbers)
    expected = [number for name, number in numbers.items() if name != "judged" and number]

    assert sorted(map(int, re.findall(r"\d+", words))) == sorted(expected)


@given(st.integers(0, 10_000), st.integers(0, 10_000), st.integers(0, 90_000))
def test_progress_is_a_share_of_known_tasks(completed: int, tasks: int, age_ms: int) -> None:
    """Unknown before Spark has counted tasks, never above 100, and in words otherwise."""
    run = a_run("lake", "running", Progress(tasks=tasks, completed=completed))
    share = share_of(run)

    assert (share is None) == (tasks == 0)
    assert share is None or 0 <= share <= 100
    assert progress_words(run, age_ms).endswith(f"{age_ms // 1000} s so far")


@pytest.mark.parametrize("result", [None, {}, {"answer": 42}])
def test_an_unknown_result_is_left_empty(result: dict[str, Any] | None) -> None:
    """Runs of earlier versions may have other results."""
    for job in ("lake", "reports", "audit", "maintain", "gone"):
        assert result_words(a_run(job), result) == ""


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


async def test_without_an_audit_nothing_is_claimed(desk: Desk) -> None:
    """The page says what would prove it, and how to start the first run."""
    page = await page_at(desk.http, "/console/jobs")

    assert page.status == 200
    assert "Nothing is proven yet." in page.text
    assert "No job has run in this group yet." in page.text


async def test_the_last_audit_that_ended_well_decides(desk: Desk) -> None:
    """A later audit that failed leaves its verdict, and is mentioned."""
    sound = desk.runs.add("audit", "succeeded", EXACT)
    failed = desk.runs.add("audit", "failed", error=RunError(condition="RunTimeout", message="too long"))
    page = await page_at(desk.http, "/console/jobs")

    assert "Sound. Exactly once, proven." in page.text
    assert "A later audit ended" in page.text
    assert {f"/console/runs/{sound}", f"/console/runs/{failed}"} <= {*page.values("a", "href")}


async def test_differences_come_with_examples_and_everything_is_escaped(desk: Desk) -> None:
    """Keys are what clients send: they stand on the page as text."""
    desk.runs.add("audit", "succeeded", DIFFERS)
    page = await page_at(desk.http, "/console/jobs")

    assert "Not sound: 3 sessions are missing and 1 session is extra." in page.text
    assert EVIL in page.text
    assert "alert('x')" not in page.html
    assert [script for script in page.elements["script"] if "src" not in script] == []
    assert page.values("div", "style") == []


async def test_jobs_show_their_last_run_and_when_they_come_next(desk: Desk) -> None:
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


async def test_runs_of_other_groups_stay_out(desk: Desk) -> None:
    """The page is about its group."""
    desk.runs.add("audit", "succeeded", EXACT, group="fraud")
    page = await page_at(desk.http, "/console/jobs")

    assert "Nothing is proven yet." in page.text
    assert page.values("tr", "data-work") == []


async def test_older_runs_are_on_further_pages(desk: Desk) -> None:
    """Newest first; the pages add up to all of them, and only the first one follows new runs."""
    runs = [desk.runs.add("lake", "succeeded", {"sessions": n}) for n in range(25)]
    pages = [await page_at(desk.http, f"/console/jobs?offset={offset}") for offset in (0, 20)]

    assert [run for page in pages for run in page.values("tr", "data-work")] == runs[::-1]
    assert [page.values("div", "data-works") for page in pages] == [["run"], [""]]


async def test_a_run_can_be_watched_and_cancelled(desk: Desk) -> None:
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


async def test_an_unknown_run_is_not_found(desk: Desk) -> None:
    """As in the API."""
    assert (await page_at(desk.http, "/console/runs/none")).status == 404
    assert (await posted(desk.http, "/console/runs/none/cancel"))[1].status == 404
    assert (await page_at(desk.http, "/console/actions/run?job=none")).status == 404


async def test_a_job_runs_with_the_parameters_of_its_form(desk: Desk) -> None:
    """Empty fields keep their defaults; integers arrive as integers; the answer leads to the run."""
    place, answer = await posted(
        desk.http,
        "/console/jobs/reports/runs",
        **{"group": "default", "p.top": "5", "p.zone": " ", "p.from": ""},
    )

    assert (answer.status, place) == (303, "/console/runs/r0")
    assert desk.runs.submissions[0].parameters["top"] == 5
    assert desk.runs.submissions[0].parameters["zone"] == "UTC"


async def test_faults_stand_beside_their_fields(desk: Desk) -> None:
    """Nothing starts, and what was typed stays, as text."""
    place, page = await posted(desk.http, "/console/jobs/reports/runs", **{"p.top": EVIL, "p.report": "A B"})

    assert (place, page.status, desk.runs.submissions) == ("", 422, [])
    assert "2 parameters have faults. Nothing was started." in page.text
    assert "top must be an integer" in page.text
    fields = {one["name"]: one for one in page.elements["input"] if "name" in one}
    assert (fields["p.top"]["value"], fields["p.top"]["aria-invalid"]) == (EVIL, "true")
    assert "aria-invalid" not in fields["p.zone"]


async def test_a_second_run_of_a_job_is_refused_in_words(desk: Desk) -> None:
    """With the status of the API, and a way back."""
    desk.runs.add("lake", "running")
    place, page = await posted(desk.http, "/console/jobs/lake/runs", group="default")

    assert (place, page.status) == ("", 409)
    assert "lake was not started." in page.text
    assert "/console/jobs?group=default" in page.values("a", "href")


async def test_the_form_shows_the_same_run_as_calls(desk: Desk) -> None:
    """What the query fills in, quoted for a shell."""
    page = await page_at(desk.http, "/console/actions/run?job=lake&p.accept_loss=1")

    assert "baton run lake -p accept_loss=1 --wait" in page.text
    assert """-d '{"accept_loss": 1}'""" in page.text
    assert page.form("/console/jobs/lake/runs") == {"group": "default", "job": "lake"}


def an_hour(start: str, sessions: int) -> dict[str, Any]:
    """A row of a report."""
    counts = {"sessions": sessions, "fragments": sessions * 9, "keys_new": 1, "keys_returning": 2}
    ends = {"ended_end": sessions, "ended_gap": 0, "ended_limit": 0}
    return counts | ends | {"start": start} | {f"duration_ms_p{p}": p * 1000 for p in (50, 90, 99)}


REPORT: dict[str, Any] = {
    "report": "march",
    "sessions_version": 61,
    "zone": "UTC",
    "item_paths": ["$.data.path"],
    "hours": [an_hour("1970-01-01T00:00:00Z", 700), an_hour("1970-01-01T01:00:00Z", 40)],
    "days": [an_hour("1970-01-01T00:00:00Z", 740)],
    "items": [{"item": EVIL, "count": 9}, {"item": "/", "count": 3}],
    "entries": [{"item": "/first", "count": 1}],
    "exits": [],
}


async def test_without_a_report_the_page_says_how_to_get_one(desk: Desk) -> None:
    """A run that failed is no report."""
    desk.runs.add("reports", "failed")
    page = await page_at(desk.http, "/console/reports")

    assert "There is no report of this group yet." in page.text
    assert "baton run lake reports --wait" in page.text


async def test_the_newest_report_is_charts_and_a_table(desk: Desk) -> None:
    """Every chart says in words what it shows; the hour that is not over is marked."""
    desk.runs.add("reports", "succeeded", REPORT, parameters={"report": "march"})
    page = await page_at(desk.http, "/console/reports")
    charts = [one["aria-label"] for one in page.elements["svg"] if one.get("class") == "plot"]

    assert charts == [
        "Sessions per hour, 2 hours: at most 700, 00:00; last 40, which is not over.",
        "How long sessions lasted, last: p50 50.0 s, p90 90.0 s, p99 99.0 s.",
        "What ended the sessions: its end fragment 100.0 %, silence 0.0 %, a limit 0.0 %.",
    ]
    assert page.values("rect", "class").count("sofar") == 1
    assert "1 Jan 01:00 so far 40 360" in page.text
    assert EVIL in page.text
    assert "alert('x')" not in page.html


async def test_a_report_leads_to_its_whole_table(desk: Desk) -> None:
    """As CSV and as Parquet, of this report alone; and to the form that makes it again."""
    desk.runs.add("reports", "succeeded", REPORT, parameters={"report": "march", "top": 5})
    links = (await page_at(desk.http, "/console/reports?period=day")).values("a", "href")
    tables = [httpx.URL(link) for link in links if link.startswith("/tables/")]
    again = next(httpx.URL(link) for link in links if link.startswith("/console/actions/run"))

    assert [url.params["format"] for url in tables] == ["csv", "parquet"]
    assert {(url.path, url.params["report"], url.params["period"]) for url in tables} == {
        ("/tables/reports/periods", "march", "day")
    }
    assert (again.params["job"], again.params["p.top"]) == ("reports", "5")


async def test_items_may_be_those_of_a_place_in_the_session(desk: Desk) -> None:
    """Anywhere, first or last; an empty list says so."""
    desk.runs.add("reports", "succeeded", REPORT)
    first = await page_at(desk.http, "/console/reports?items=first")
    last = await page_at(desk.http, "/console/reports?items=last")

    assert "/first" in first.text
    assert "No fragment has such an item." in last.text
    assert (await page_at(desk.http, "/console/reports?items=x")).status == 422


async def test_results_of_runs_are_json(desk: Desk) -> None:
    """The run's page shows the whole result as it is."""
    run = desk.runs.add("lake", "succeeded", {"sessions": 7, "table": EVIL})
    page = await page_at(desk.http, f"/console/runs/{run}")

    assert msgspec.json.format(msgspec.json.encode({"sessions": 7})).decode()[1:-1].strip() in page.text
    assert "alert('x')" not in page.html
