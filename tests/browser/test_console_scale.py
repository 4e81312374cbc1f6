"""1,000 streams on 50 members in the browser: the map fits every screen, and moves are seen, one or many.

Control is the real one over a simulated cluster that changes 200 streams a second and moves one every 2 s.
"""

from __future__ import annotations

import httpx
import pytest
from selenium.webdriver.common.keys import Keys

from agent.tests.pipeline import until
from bench.console import MEMBERS, STREAMS
from tests.browser.baton import ANSWER_S
from tests.browser.page import SIZES, Page

OWNERSHIP = "/console/ownership"
needs_time = pytest.mark.soak
"""What is seen for four seconds is missed by a browser that gets no processor for as long."""
SHOWN_MS = 4000
WATCH = """
    window.drawn = [];
    window.lasted = [];
    const born = new Map();
    new MutationObserver((changes) => {
      for (const { addedNodes, removedNodes } of changes) {
        for (const one of addedNodes) { drawn.push(one.className); born.set(one, performance.now()); }
        for (const one of removedNodes) if (born.has(one)) lasted.push(performance.now() - born.get(one));
      }
    }).observe(document.querySelector(".mapbox"), { childList: true });
    window.glided = [];
    const animate = Element.prototype.animate;
    Element.prototype.animate = function (frames, how) {
      glided.push([this.className.split(" ")[0], how.duration, Object.keys(frames[0])[0]]);
      return animate.call(this, frames, how);
    };
"""
"""Keeps what is drawn over the map, for how many ms, and what is animated: kind, length in ms, property."""
UNNAMED = """
    const rows = [...document.querySelectorAll(".pushed .row")];
    const topOf = (row) => row.getBoundingClientRect().top;
    const highest = Math.min(...rows.map(topOf));
    return rows.filter((row) => topOf(row) < highest + 5 && !row.matches(".heads")).length;
"""
"""How many columns of the map begin without heads."""
COUNT = "return document.querySelectorAll(arguments[0]).length"


def drain(control: str, member: str) -> None:
    """Starts to drain a member; control may be too busy at first."""
    wish, answers = {"kind": "drain", "member": member}, list[httpx.Response]()

    def is_accepted() -> bool:
        answers.append(httpx.post(f"{control}/operations", json=wish, timeout=ANSWER_S))
        return answers[-1].is_success

    until(is_accepted, lambda: answers[-1].text)


def test_a_map_of_a_thousand_streams_fits_every_screen(map_page: Page) -> None:
    """All beads are there. axe takes long, so it looks at the smallest size and at the largest one."""
    map_page.go(OWNERSHIP)
    assert map_page.run(COUNT, ".pushed .bead") == STREAMS
    assert map_page.run(COUNT, ".pushed .row[data-member]:not(.nobody)") == MEMBERS
    for width, height in SIZES:
        theme = "light" if width < 1000 else "dark"
        map_page.wear(theme, width, height)
        assert map_page.outside() == [], width
        assert map_page.run(UNNAMED) == 0, width
        if (width, height) in (SIZES[0], SIZES[-1]):
            assert map_page.faults() == [], width
        map_page.picture(f"large-{theme}-{width}")


def test_arrows_reach_the_next_member_wherever_it_stands(map_page: Page) -> None:
    """Also beyond the heads of the next column."""
    map_page.go(OWNERSHIP)
    last = "document.querySelector('.block').lastElementChild"
    first = "document.querySelectorAll('.block')[1].querySelector('[data-member]')"
    map_page.run(f"{last}.querySelector('.bead').focus()")
    map_page.press(Keys.ARROW_DOWN)
    assert map_page.run(f"return {first}.contains(document.activeElement)")
    map_page.press(Keys.ARROW_UP)
    assert map_page.run(f"return {last}.contains(document.activeElement)")


@needs_time
def test_a_move_on_a_large_map_is_seen_moving(map_page: Page) -> None:
    """It slides, its neighbours close up, and what was drawn for it is gone after four seconds."""
    map_page.go(OWNERSHIP)
    map_page.run(WATCH)
    map_page.until("['ghost', 'trail', 'flag'].every((one) => drawn.includes(one))")
    map_page.until("seen.said.some((text) => /^Streams? .* moved, longest pause \\d+ ms$/.test(text))")
    assert ["trail", 520, "transform"] in map_page.run("return glided")
    # the last bead of two rows has no neighbours that close up; a later move will have some
    count = "glided.filter((one) => one.join() === '%s,520,transform').length"
    map_page.until(f"{count % 'bead'} > {count % 'trail'}")
    map_page.until("lasted.length")
    assert min(map_page.run("return lasted")) >= SHOWN_MS


@needs_time
def test_a_move_is_seen_by_those_who_want_no_motion(map_page: Page) -> None:
    """It has its ring, the place that it left, and its tag; nothing is animated."""
    map_page.go(OWNERSHIP)
    map_page.wear("dark", 1440, 900, calm=True)
    map_page.run(WATCH)
    map_page.until("drawn.includes('ghost') && drawn.includes('flag') && document.querySelector('.arrived')")
    assert "trail" not in map_page.run("return drawn")
    assert map_page.run("return [glided.length, document.getAnimations().length]") == [0, 0]


@needs_time
def test_many_moves_at_once_fade_with_one_tag_for_each_donor(map_page: Page, large: str) -> None:
    """A draining member hands over its streams; no bead slides, and the tag says how many and how long."""
    map_page.go(OWNERSHIP)
    map_page.run(WATCH)
    drain(large, "edge-07")
    tags = "[...document.querySelectorAll('.flag')].map((flag) => flag.textContent)"
    tag = f"{tags}.find((text) => /^\\d\\d streams, up to \\d+ ms$/.test(text))"
    arrived = "document.querySelectorAll('.bead.arrived').length >= 15"
    faded = "window.glided?.some((one) => one.join() === 'bead,520,opacity')"
    # at one moment: the page is drawn anew once the member has left
    map_page.until(f"{tag} && {arrived} && {faded}")
