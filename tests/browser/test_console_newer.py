"""The list "Show n newer": it keeps what happened while the page was being read, and misses nothing."""

from __future__ import annotations

from tests.browser.baton import RunningBaton
from tests.browser.page import Page

OWNERSHIP = "/console/ownership"
HEAR = """
    const hear = (kind, id) => document.querySelector("#feed").dispatchEvent(
      new CustomEvent("event", { detail: { data: JSON.stringify({ kind, stream: 1, epoch: 99 }), id } }));
    const later = () => { const then = performance.now(); while (performance.now() - then < 5); };
    const read = (askedAt) => document.dispatchEvent(new CustomEvent("baton:read", { detail: { askedAt } }));
    const isShown = () => !document.querySelector("[data-newer]").hidden;
"""
"""Speaks to the page as control and its own reading do, at moments that the test chooses."""


def test_a_handover_that_is_heard_while_the_page_is_read_stays_newer(page: Page) -> None:
    """Its claim came before and is in what was read, but the row says more now."""
    page.go(OWNERSHIP)
    shown = page.run(f"""{HEAR}
        hear("claim", "1000001"); later();
        const askedAt = performance.now(); later();
        hear("handover", "1000002"); later();
        read(askedAt);
        const during = isShown(); later();
        read(performance.now());
        return [during, isShown()];
    """)
    assert shown == [True, False]


def test_a_new_connection_goes_on_after_the_last_event(page: Page) -> None:
    """Also one that htmx does not make itself: its address carries the id of the last message."""
    page.go(OWNERSHIP)
    first = page.run("return document.querySelector('#feed').getAttribute('hx-sse:connect')")
    page.run("""
        const feed = document.querySelector("#feed");
        feed.addEventListener("reading", ({ detail }) => { window.last = detail.id; });
    """)
    page.until("window.last")
    page.run("""
        htmx.ajax = (method, place) => { window.asked ??= [place, window.last]; };
        document.querySelector("#feed").dispatchEvent(new CustomEvent("htmx:sse:close"));
    """)
    page.until("window.asked")
    asked, last = page.run("return window.asked")
    assert first.partition("after=")[2].isdecimal()
    assert asked.partition("after=")[2] == last


def test_a_paused_page_goes_on_from_its_strip(page: Page, baton: RunningBaton) -> None:
    """What waits is said there, so the way on is there too."""
    page.go(OWNERSHIP)
    page.press("p")
    target = baton.move(6)
    page.until("document.querySelector('#strip button:not([hidden])')?.checkVisibility()")
    page.click("#strip button")
    page.until("document.querySelector('[data-live=state]').dataset.name === 'Live'")
    page.until(f"document.querySelector('#b6').closest('[data-member]').dataset.member === '{target}'")
