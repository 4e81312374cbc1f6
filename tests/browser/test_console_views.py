"""Every view, at four sizes and in both themes: nothing sticks out, and axe finds nothing.

PICTURES="lake audit" first runs these jobs, so that the pictures have something to show of them.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.browser.baton import TOKEN, RunningBaton
from tests.browser.page import SIZES, THEMES, Page

VIEWS = {
    "overview": "/",
    "ownership": "/console/ownership",
    "by-stream": "/console/ownership?by=streams",
    "stream": "/console/streams/3",
    "movements": "/console/movements",
    "sessions": "/console/sessions?find=visitor-3",
    "records": "/console/sessions?stream=3",
    "jobs": "/console/jobs",
    "run-a-job": "/console/actions/run?job=reports",
    "reports": "/console/reports",
    "drain": "/console/actions/drain?member=consumer-1",
    "operations": "/console/operations",
    "queues": "/console/queues",
    "queue": "/console/queues/mail",
    "purge": "/console/queues/mail/purge",
}


@pytest.fixture(scope="module", autouse=True)
def in_use(baton: RunningBaton) -> Iterator[None]:
    """Fragments come in while the views are looked at."""
    with baton.load():
        if os.environ.get("PICTURES"):
            baton.until_steady()
            for job in os.environ["PICTURES"].split():
                baton.run(job)
        yield


def check_everywhere(page: Page, name: str) -> None:
    """The shown page fits every screen, and axe finds nothing; keeps pictures."""
    for width, height in SIZES:
        for theme in THEMES:
            page.wear(theme, width, height)
            assert page.width() <= width, (width, theme)
            assert page.faults() == [], (width, theme)
            page.picture(f"{name}-{theme}-{width}")


@pytest.mark.parametrize("name", VIEWS)
def test_a_view_fits_every_screen_and_serves_everybody(page: Page, name: str) -> None:
    """No sideways scrolling of the whole page from 360 to 2,560 px; no fault of accessibility."""
    page.go(VIEWS[name])
    check_everywhere(page, name)


@pytest.mark.parametrize(
    ("name", "path"), [("missing", "/console/streams/99"), ("mistake", "/console/ownership?colour=red")]
)
def test_a_page_that_cannot_be_shown_serves_everybody_too(page: Page, name: str, path: str) -> None:
    """It says why, and leads back."""
    page.visit(path)
    check_everywhere(page, name)
    page.click("main a")
    page.until("location.pathname === '/'")
    page.forget_complaints()  # of the status 404


def test_a_login_serves_everybody_and_leads_to_the_page(locked_page: Page) -> None:
    """Also after a wrong token."""
    locked_page.visit("/console/ownership")
    assert locked_page.run("return location.pathname") == "/login"
    check_everywhere(locked_page, "login")

    locked_page.fill("input[name=token]", f"not-{TOKEN}")
    locked_page.click("button")
    locked_page.until("document.querySelector('[role=alert]')")
    check_everywhere(locked_page, "login-refused")
    locked_page.forget_complaints()  # of the status 403

    locked_page.fill("input[name=token]", TOKEN)
    locked_page.click("button")
    locked_page.until("document.querySelector('[data-live=state]')?.dataset.name === 'Live'")
    assert locked_page.run("return location.pathname") == "/console/ownership"
