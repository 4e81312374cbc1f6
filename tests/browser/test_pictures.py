"""The pictures of docs/console.md that need more than a view at a time: `make pictures` takes them."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from agent.tests.pipeline import until
from tests.browser.baton import RunningBaton
from tests.browser.page import Page

pytestmark = pytest.mark.skipif(not os.environ.get("PICTURES"), reason="`make pictures` takes them")
BUSY, PINNED, MOVED = 5, 10, 7


@pytest.fixture(scope="module", autouse=True)
def in_use(baton: RunningBaton) -> Iterator[None]:
    """Fragments come in, one stream is pinned, and another one gets more than its owner can read."""
    with baton.load():
        baton.move(PINNED)
        baton.until_steady()
        with baton.burst(BUSY):
            until(lambda: status_of(baton, BUSY) == "WARN", baton.streams)
            yield


def status_of(baton: RunningBaton, stream: int) -> str:
    """How the stream is doing, in Burrow's words."""
    status: str = baton.streams()["streams"][stream]["status"]
    return status


def test_a_stream_falls_behind(page: Page) -> None:
    """The first page says so, and the hour of the lag is drawn as a warning."""
    page.go("/")
    page.wear("dark", 1440, 900)
    page.until("document.querySelector('.problems')?.innerText.includes('falls behind')")
    page.until("document.querySelector('[data-series=lag] canvas')")
    page.picture("overview-dark-1440")
    page.wear("light", 2560, 1440)
    page.picture("overview-light-2560")


def test_a_stream_moves(page: Page, baton: RunningBaton) -> None:
    """Its bead is ringed, and the tag says for how long it stood still."""
    page.go("/console/ownership")
    page.wear("dark", 1440, 900)
    baton.move(MOVED)
    page.until("document.querySelector('.flag')")
    page.until("document.getAnimations().every((one) => one.playState !== 'running' || one.animationName)")
    page.picture("ownership-dark-1440")


def test_a_drain_is_followed(page: Page, baton: RunningBaton) -> None:
    """What has moved, with its sessions and its pause."""
    page.go("/console/actions/drain?member=consumer-1")
    page.fill("input[name=reason]", "a new disk")
    page.wear("dark", 1440, 900)
    page.click("button.primary")
    page.until("location.pathname.startsWith('/console/operations/')")
    page.until("document.querySelectorAll('#moves .pause svg').length >= 2")
    page.picture("follow-dark-1440")
    page.until("document.querySelector('.following').dataset.drawn.startsWith('done')")
    page.picture("followed-dark-1440")
    baton.services["consumer-1"].end()
    baton.services["consumer-1"].start()
