"""The pictures of docs/console.md, from a Baton in use: `make pictures` takes them."""

from __future__ import annotations

import os
from collections.abc import Iterator

import httpx
import pytest

from agent.tests.pipeline import until
from tests.browser.baton import RunningBaton
from tests.browser.page import SIZES, Page

pytestmark = pytest.mark.skipif(not os.environ.get("PICTURES"), reason="`make pictures` takes them")
HEIGHTS = dict(SIZES)
VIEWS = {
    "stream-light-1440": "/console/streams/3",
    "movements-dark-1440": "/console/movements",
    "sessions-light-1440": "/console/sessions?find=visitor-3",
    "jobs-light-1440": "/console/jobs",
    "reports-dark-1440": "/console/reports",
    "queue-dark-1440": "/console/queues/mail",
    "drain-dark-1440": "/console/actions/drain?member=consumer-1",
    "ownership-dark-360": "/console/ownership",
}
BUSY, PINNED, MOVED = 5, 10, 7
MUCH = 10_000
"""Records of lag that show as a strong colour."""


@pytest.fixture(scope="module", autouse=True)
def in_use(baton: RunningBaton) -> Iterator[None]:
    """Fragments come in, and one stream is pinned."""
    with baton.load():
        baton.move(PINNED)
        baton.until_steady()
        yield


def take(page: Page, name: str) -> None:
    """Takes a picture, whose name says the theme and the width."""
    _, theme, width = name.rsplit("-", 2)
    page.wear(theme, int(width), HEIGHTS[int(width)])
    page.until("document.fonts.status === 'loaded'")
    page.until("document.querySelector('[data-live=state]').dataset.name === 'Live'")
    page.picture(name)


@pytest.mark.parametrize("name", VIEWS)
def test_a_view(page: Page, name: str) -> None:
    """One that needs nothing to happen."""
    page.go(VIEWS[name])
    take(page, name)


def test_a_stream_has_much_to_read_and_another_one_moves(page: Page, baton: RunningBaton) -> None:
    """Its bead has the colour of its lag; the one that moves has a ring and a tag."""
    with baton.burst(BUSY):
        page.go("/")
        until(lambda: baton.streams()["streams"][BUSY]["lag"] >= MUCH, baton.streams)
        page.until("document.querySelector('[data-series=lag] canvas')")
        take(page, "overview-dark-1440")
        take(page, "overview-light-2560")

        page.go("/console/ownership")
        page.wear("dark", 1440, 900)
        baton.move(MOVED)
        page.until("document.querySelector('.flag')")
        take(page, "ownership-dark-1440")


def test_a_drain_is_followed(page: Page, baton: RunningBaton) -> None:
    """What has moved, with its sessions and its pause."""
    page.go("/console/actions/drain?member=consumer-1")
    page.fill("input[name=reason]", "a new disk")
    page.click("button.primary")
    page.until("document.querySelector('.following')?.dataset.drawn.startsWith('done')")
    page.until("document.querySelectorAll('#moves .pause svg').length >= 3")
    take(page, "follow-dark-1440")
    baton.services["consumer-1"].end()
    baton.services["consumer-1"].start()


def test_a_large_map(map_page: Page, large: str) -> None:
    """That of a simulated cluster, while a member hands over its streams."""
    map_page.go("/console/ownership")
    map_page.wear("dark", 2560, 1440)
    wish = {"kind": "drain", "member": "edge-07"}
    httpx.post(f"{large}/operations", json=wish).raise_for_status()
    map_page.until("document.querySelector('.flag') && document.querySelector('.arrived')")
    take(map_page, "large-dark-2560")
