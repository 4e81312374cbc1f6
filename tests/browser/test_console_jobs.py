"""What runs and a lake let the console show: the verdict, a report with its tables, finished sessions."""

from __future__ import annotations

import re

import pytest

from agent.tests.pipeline import until
from bench.simulated_runs import HOURS
from tests.browser.baton import RunningBaton
from tests.browser.page import Page
from tests.browser.past_lake import EACH
from tests.browser.past_runs import LOST, SOUND, UNDER_WAY, UNSOUND

NO_FAULTS = ["0", "missing", "0", "overdue", "0", "extra", "0", "different"]


def test_the_verdict_of_the_last_audit_stands_large_over_the_jobs(page: Page) -> None:
    """Its four numbers beside it; an older audit that found something says what on its own page."""
    page.go("/console/jobs")
    assert page.text("h2.large") == "Sound. Exactly once, proven."
    assert page.text(".faults").split() == NO_FAULTS
    assert "recomputed 1,842,310 sessions from 22,107,940 fragments" in page.text(".verdict")
    size = "return parseFloat(getComputedStyle(document.querySelector(arguments[0])).fontSize)"
    assert [page.run(size, one) for one in ("h2.large", ".faults dd")] == [36, 48]

    page.go(f"/console/runs/{UNSOUND}")
    assert page.text("h2.large") == "Not sound: 3 sessions are missing."
    assert page.text("[aria-label='Examples of what differs'] tbody").count("not delivered") == 3
    page.go("/")
    assert page.run("return document.querySelector(arguments[0]).innerText", f"a[href$='{SOUND}']")


def test_a_run_shows_its_progress_its_error_and_the_end_of_its_log(page: Page) -> None:
    """The one under way has a bar; the one whose driver died says so in the list, and links to its log."""
    page.go("/console/jobs")
    bar = f"li[data-work='{UNDER_WAY}'] [role=progressbar]"
    assert page.run("return document.querySelector(arguments[0]).ariaValueNow", bar) == "66"
    assert "132 of 200 tasks, 4 active" in page.text(f"li[data-work='{UNDER_WAY}']")
    assert "DriverLost" in page.text(f"tr[data-work='{LOST}']")
    page.click(f"tr[data-work='{LOST}'] .prose a")
    page.until(f"location.pathname === '/console/runs/{LOST}' && document.querySelector('#log')")
    assert "failed after 9" in page.text(".lead")
    assert page.text("pre.log").rstrip().endswith("finished task 39")


def test_a_report_is_drawn_and_says_how_to_take_its_table_along(page: Page) -> None:
    """Four charts, a table of every hour, and the command that prints all of it."""
    page.go("/console/reports")
    bars = "return document.querySelectorAll('.charts section:first-child rect').length"
    assert page.run(bars) == HOURS
    assert page.run("return document.querySelectorAll('.charts rect.sofar').length") == 1
    assert page.run("return document.querySelectorAll('.charts polyline').length") == 3
    assert page.run("return document.querySelectorAll('[aria-label=\"By hour\"] tbody tr').length") == HOURS

    assert "baton sql " in page.text("main")


def test_the_finished_sessions_of_a_key_are_found_in_the_lake(page: Page) -> None:
    """Each leads to its own page with its fragments."""
    page.go("/console/sessions?find=visitor-3")
    rows = "[aria-label='Finished sessions'] tbody tr"
    assert page.run("return document.querySelectorAll(arguments[0]).length", rows) == EACH
    page.click(f"{rows} a")
    page.until("document.querySelector('.chain')?.innerText.startsWith('session ')")
    assert "key visitor-3" in page.text(".chain")
    assert '"key":"visitor-3"' in page.text("[aria-label=Fragments]")


@pytest.mark.usefixtures("spark_jars")
def test_what_the_jobs_of_spark_find_is_what_the_console_shows(new_page: Page, baton: RunningBaton) -> None:
    """The stored sessions in the report, the audit's verdict over them, and one of them by its key."""
    before = delivered(baton)
    with baton.load():
        until(lambda: delivered(baton) > before, lambda: baton.streams())
    found = {job: finished(new_page, job) for job in ("lake", "reports", "audit")}

    new_page.go("/console/jobs")
    assert new_page.text("h2.large") == "Sound. Exactly once, proven."
    assert new_page.text(".faults").split() == NO_FAULTS
    came = re.search(r"([\d,]+) sessions came; the table holds \1", found["lake"])
    assert came is not None, found
    assert f"sound: {came[1]} judged, no difference" in found["audit"]
    new_page.go("/console/reports?period=day")
    sessions = "return [...document.querySelectorAll(arguments[0])].map((cell) => cell.innerText)"
    days = new_page.run(sessions, "[aria-label='By day'] tbody td:nth-child(2)")
    assert sum(int(day.replace(",", "")) for day in days) == int(came[1].replace(",", ""))
    new_page.go("/console/sessions?find=load-0-0")
    new_page.click("[aria-label='Finished sessions'] tbody tr a")
    new_page.until("document.querySelector('.chain')?.innerText.startsWith('session ')")
    assert '"key":"load-0-0"' in new_page.text("[aria-label=Fragments]")


def delivered(baton: RunningBaton) -> int:
    """How many sessions all streams have delivered."""
    number: int = baton.streams()["totals"]["sessions"]
    return number


def finished(page: Page, job: str) -> str:
    """Runs a job by the console's form, and follows it to its end; what the list of runs says of it."""
    page.start_run(job)
    page.until("['succeeded', 'failed'].includes(document.querySelector('.following').dataset.drawn)")
    assert "succeeded" in page.text(".lead"), page.text("main")
    run = page.run("return location.pathname").rpartition("/")[2]
    page.go("/console/jobs")
    return page.text(f"tr[data-work='{run}']")
