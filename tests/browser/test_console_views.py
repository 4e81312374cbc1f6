"""Every view, at four sizes and in both themes: nothing sticks out, and axe finds nothing."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.browser.baton import STREAMS, TOKEN, RunningBaton
from tests.browser.page import Page
from tests.browser.past_lake import KEYS, session_ids
from tests.browser.past_runs import LOST, UNDER_WAY, UNSOUND

VIEWS = {
    "overview": "/",
    "ownership": "/console/ownership",
    "by-stream": "/console/ownership?by=streams",
    "stream": "/console/streams/3",
    "movements": "/console/movements",
    "sessions": "/console/sessions?find=visitor-3",
    "finished": f"/console/sessions?find={session_ids(KEYS[3], STREAMS)[0]}",
    "records": "/console/sessions?stream=3",
    "jobs": "/console/jobs",
    "run": f"/console/runs/{UNDER_WAY}",
    "failed-run": f"/console/runs/{LOST}",
    "unsound": f"/console/runs/{UNSOUND}",
    "run-a-job": "/console/actions/run?job=reports",
    "reports": "/console/reports",
    "groups": "/console/groups",
    "move": "/console/actions/move?stream=3",
    "pause": "/console/actions/pause",
    "rebalance": "/console/actions/rebalance",
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
        yield


@pytest.mark.parametrize("name", VIEWS)
def test_a_view_fits_every_screen_and_serves_everybody(page: Page, name: str) -> None:
    """Nothing is cut off from 360 to 2,560 px, and there is no fault of accessibility."""
    page.go(VIEWS[name])
    page.check_everywhere(name)


@pytest.mark.parametrize("feature", [("forced-colors", "active"), ("prefers-contrast", "more")])
def test_a_system_with_colours_of_its_own_shows_every_text(page: Page, feature: tuple[str, str]) -> None:
    """Outlines separate the beads, and every text stands out from its background."""
    page.go(VIEWS["ownership"])
    page.wear("dark", 1440, 900, more=dict([feature]))
    style = "getComputedStyle(document.querySelector('.bead'))"
    assert page.run(f"return {style}.borderTopStyle === 'solid' || {style}.outlineStyle === 'solid'")
    assert page.faults() == []
    assert page.faint() == []
    page.run(
        "document.querySelector('h1').style = 'forced-color-adjust: none; color: #777; background: #888'"
    )
    assert [text.split()[0] for text in page.faint()] == ["h1"]


def test_what_sticks_out_is_found(page: Page) -> None:
    """The check of the sizes can fail: by a box, or by words that are longer than their box."""
    page.go("/console/jobs")
    page.wear("dark", 720, 1024)
    add = "document.querySelector('main').insertAdjacentHTML('beforeend', arguments[0])"
    page.run(add, "<div class='made'>word </div>")
    page.run("document.querySelector('.made').style.whiteSpace = 'nowrap'")
    assert page.outside() == []
    page.run("document.querySelector('.made').textContent = 'word '.repeat(99)")
    assert [text.startswith("div.made from ") for text in page.outside()] == [True]
    page.run("document.querySelector('.made').className = 'made scroll'")
    page.run(add, "<svg class='made' width='900' height='9'></svg>")
    assert [text.partition(" ")[0] for text in page.outside()] == ["svg.made"]


@pytest.mark.parametrize(
    ("name", "path"), [("missing", "/console/streams/99"), ("mistake", "/console/ownership?colour=red")]
)
def test_a_page_that_cannot_be_shown_serves_everybody_too(page: Page, name: str, path: str) -> None:
    """It says why, and leads back."""
    page.visit(path)
    page.check_everywhere(name)
    page.click("main a")
    page.until("location.pathname === '/'")
    page.forget_complaints()  # of the status 404


def test_a_login_serves_everybody_and_leads_to_the_page(locked_page: Page) -> None:
    """Also after a wrong token."""
    locked_page.visit("/console/ownership")
    assert locked_page.run("return location.pathname") == "/login"
    locked_page.check_everywhere("login")

    locked_page.fill("input[name=token]", f"not-{TOKEN}")
    locked_page.click("button")
    locked_page.until("document.querySelector('[role=alert]')")
    locked_page.check_everywhere("login-refused")
    locked_page.forget_complaints()  # of the status 403

    locked_page.fill("input[name=token]", TOKEN)
    locked_page.click("button")
    locked_page.until("document.querySelector('[data-live=state]')?.dataset.name === 'Live'")
    assert locked_page.run("return location.pathname") == "/console/ownership"
