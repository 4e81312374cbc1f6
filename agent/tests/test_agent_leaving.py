"""The agent in pages that are hidden, closed and left: each fragment once, and no session ends by it."""

from __future__ import annotations

import json
from collections import Counter

import pytest

from agent.tests.chromium import Browser
from agent.tests.pipeline import Pipeline
from agent.tests.site import Answered, Site
from agent.tests.visits import NEVER_MS, PUSH, TEN_MINUTES_LATER, assert_each_once, data_of


def test_a_page_that_is_hidden_sends_what_waits_at_once(
    browser: Browser, site: Site, pipeline: Pipeline, key: str
) -> None:
    """By beacon, long before its batch is due; seen again and hidden again, it goes on; nothing is an END."""
    tab = browser.open(site.page(key=key, batch_ms=NEVER_MS))
    tab.until_loaded()
    tab.run(PUSH, 0, 10)
    browser.blank.show()
    pipeline.until_stored(key, 10)
    tab.run(PUSH, 10, 15)
    browser.blank.show()
    pipeline.until_stored(key, 15)
    sent = tab.run("return told.filter(one => one[0] === 'sent').map(one => one[2])")
    tab.run("baton.flush()")
    tab.until_empty()

    assert sent.count("beacon") == 15
    assert_each_once(pipeline.sessions(key), 15)


def test_a_page_that_only_hears_that_it_goes_says_farewell_too(
    browser: Browser, site: Site, pipeline: Pipeline, key: str
) -> None:
    """Not every browser hides a page before it leaves it; one that comes back from the cache goes on."""
    tab = browser.open(site.page(key=key, batch_ms=NEVER_MS))
    tab.until_loaded()
    tab.run(PUSH, 0, 5)
    tab.run("dispatchEvent(new PageTransitionEvent('pagehide', {persisted: true}))")
    pipeline.until_stored(key, 5)
    tab.run("dispatchEvent(new PageTransitionEvent('pageshow', {persisted: true}))")
    tab.run(PUSH, 5, 10)
    tab.run("baton.flush()")
    tab.until_empty()

    assert tab.run("return told.find(one => one[0] === 'sent')[2]") == "beacon"
    assert_each_once(pipeline.sessions(key), 10)


def test_a_farewell_is_said_once(browser: Browser, site: Site, pipeline: Pipeline, key: str) -> None:
    """A page that goes is also hidden: what a plain request holds already is not sent twice."""
    tab = browser.open(site.page(key=key, batch_ms=NEVER_MS))
    tab.until_loaded()
    tab.run(PUSH, 0, 10)
    tab.run(
        "navigator.sendBeacon = () => false;"
        "for (let n = 0; n < 2; n++) dispatchEvent(new PageTransitionEvent('pagehide'));"
    )
    tab.until_empty()

    assert len(site.posts) == 1
    assert_each_once(pipeline.sessions(key), 10)


def test_a_page_that_is_closed_sends_what_waits_and_the_next_one_makes_sure(
    browser: Browser, site: Site, pipeline: Pipeline, key: str
) -> None:
    """Nobody hears a beacon's answer: the next page sends it again, and no session has it twice."""
    address = site.page(key=key, batch_ms=100)
    tab = browser.open(site.page("/first", key=key, batch_ms=NEVER_MS))
    tab.until_loaded()
    tab.run(PUSH, 0, 20)
    tab.close()
    pipeline.until_stored(key, 20)
    again = browser.open(address)
    again.until_loaded()
    again.until_empty()

    assert sorted(Counter(site.ids()).values()) == [2] * 20
    assert again.run("return [baton.counts.acknowledged, Object.keys(localStorage).length]") == [20, 1]
    assert_each_once(pipeline.sessions(key), 20)


def test_a_link_to_the_next_page_loses_nothing(
    browser: Browser, site: Site, pipeline: Pipeline, key: str
) -> None:
    """Page after page, each left right after it has pushed, and back again through the browser's cache."""
    for number in range(5):
        last = f"addEventListener('pagehide', () => baton.push({{n: {number + 5}}}));"
        script = f"baton.push({{n: {number}}}); {last}"
        site.page(f"/{number}", script=script, key=key, batch_ms=NEVER_MS)
    tab = browser.open(f"{site.url}/0")
    for number in range(5):
        tab.go(f"{site.url}/{number}")
        tab.until_loaded()
    tab.go(site.page("/last", key=key, batch_ms=100))
    tab.until_empty()
    tab.back()
    tab.run("return 1")
    tab.go(f"{site.url}/last")
    tab.until_empty()
    found = Counter(
        one["n"] for data in data_of(pipeline.sessions(key)) for one in data if isinstance(one, dict)
    )

    # a page that is loaded twice pushes twice: the first, and the one that was gone back to
    assert set(found) == set(range(10))
    ids = [json.loads(bytes(one))["id"] for session in pipeline.sessions(key) for one in session.data]
    assert len(ids) == len(set(ids))


def test_closed_offline_and_visited_again(browser: Browser, site: Site, pipeline: Pipeline, key: str) -> None:
    """The browser takes beacons that cannot go: the fragments stay, however late the next visit is."""
    address = site.page(key=key, batch_ms=NEVER_MS)
    tab = browser.open(address)
    tab.until_loaded()
    browser.offline()
    tab.run(PUSH, 0, 10)
    tab.close()
    browser.online()
    again = browser.open(site.page("/again", script="Date.now = () => 1e13;", key=key, batch_ms=100))
    again.until_loaded()
    again.until_empty()

    assert_each_once(pipeline.sessions(key), 10)


def test_500_fragments_of_a_page_that_is_closed_at_once(
    browser: Browser, site: Site, pipeline: Pipeline, key: str
) -> None:
    """More than beacons may carry: what cannot leave with the page leaves with the next one."""
    tab = browser.open(site.page(key=key, batch_ms=NEVER_MS, batch_size=1000))
    tab.until_loaded()
    tab.run(PUSH, 0, 500, 300)
    tab.close()
    again = browser.open(site.page("/again", key=key, batch_ms=100))
    again.until_empty()

    assert_each_once(pipeline.sessions(key), 500)


def test_beacons_that_are_refused_are_split_and_then_sent_otherwise(
    browser: Browser, site: Site, pipeline: Pipeline, key: str
) -> None:
    """Another script of the page holds most of the quota that all beacons have together."""
    script = """
      const sendBeacon = navigator.sendBeacon.bind(navigator);
      window.beacons = [];
      window.hold = () => sendBeacon('/held', 'x'.repeat(30000));
      navigator.sendBeacon = (url, body) => {
        const taken = sendBeacon(url, body);
        beacons.push([body.length, taken]);
        return taken;
      };"""
    tab = browser.open(site.page(script=script, key=key, batch_ms=NEVER_MS, batch_size=1000))
    tab.until_loaded()
    held = tab.run("return hold()")
    tab.run(PUSH, 0, 100, 900)
    browser.blank.show()
    pipeline.until_stored(key, 100)
    beacons = tab.run("return beacons")
    site.release.set()
    tab.run("baton.flush()")
    tab.until_empty()
    refused = [size for size, taken in beacons if not taken]
    taken = [size for size, taken in beacons if taken]

    assert held
    assert max(refused) > 60_000
    assert all(size > 16_384 for size in refused)
    assert len(taken) == 1
    assert 16_384 < taken[0] <= 32_000
    assert_each_once(pipeline.sessions(key), 100)


def test_what_has_left_by_beacon_is_presumed_to_have_arrived_when_repeats_would_double_it(
    browser: Browser, site: Site, pipeline: Pipeline, key: str
) -> None:
    """The visitor comes back ten minutes later: a consumer may have forgotten the session's ids by then."""
    tab = browser.open(site.page(key=key, batch_ms=NEVER_MS))
    tab.until_loaded()
    tab.run(PUSH, 0, 10)
    tab.close()
    pipeline.until_stored(key, 10)
    again = browser.open(site.page("/later", script=TEN_MINUTES_LATER, key=key, batch_ms=100))
    again.until_loaded()
    again.until_empty()

    assert again.run("return [baton.counts.presumed, localStorage.length]") == [10, 1]
    assert len(site.posts) == 1


@pytest.mark.parametrize("is_down", [False, True], ids=["an error", "no answer"])
def test_what_has_left_by_beacon_is_not_presumed_to_have_arrived_where_the_producer_failed_since(
    browser: Browser, site: Site, pipeline: Pipeline, key: str, is_down: bool
) -> None:
    """The page was hidden, and could not make sure: the beacon may have failed as its repeat did."""
    site.faults.extend([Answered(503)] * 1000)
    tab = browser.open(site.page(key=key, batch_ms=1000))
    tab.until_loaded()
    site.is_down = is_down
    tab.run(PUSH, 0, 10)
    browser.blank.show()
    tab.until("told.some(one => one[0] === 'failed')")
    first = tab.run("return told.find(one => one[0] === 'sent')[2]")
    tab.close()
    site.faults.clear()
    site.is_down = False
    again = browser.open(site.page("/later", script=TEN_MINUTES_LATER, key=key, batch_ms=100))
    again.until_loaded()
    again.until_empty()

    assert first == "beacon"
    assert_each_once(pipeline.sessions(key), 10)


def test_a_page_that_is_asked_for_patience_says_no_farewell(
    browser: Browser, site: Site, pipeline: Pipeline, key: str
) -> None:
    """What is kept can wait for the site's next page; the producer has enough to do."""
    site.faults.append(Answered(503, {"retry-after": "300"}))
    tab = browser.open(site.page(key=key, batch_ms=30))
    tab.until_loaded()
    tab.run(PUSH, 0, 5)
    tab.until("told.some(one => one[0] === 'failed')")
    tab.run(PUSH, 5, 10)
    browser.blank.show()
    tab.close()
    before = len(site.posts)
    again = browser.open(site.page("/next", key=key, batch_ms=100))
    again.until_empty()

    assert before == 1
    assert_each_once(pipeline.sessions(key), 10)
