"""The agent in pages that are hidden, closed or left: each fragment once, and none of this ends a session."""

from __future__ import annotations

import json
from collections import Counter

import pytest

from agent.tests.chromium import Browser
from agent.tests.pipeline import Pipeline
from agent.tests.site import Answered, Site
from agent.tests.visits import NEVER_MS, PUSH, TEN_MINUTES_LATER, assert_each_once, data_of


def test_a_hidden_page_sends_its_queue_at_once(
    browser: Browser, site: Site, pipeline: Pipeline, key: str
) -> None:
    """By beacon, long before its batch is due; again each time it is hidden; never as an END."""
    tab = browser.visit(site.page(key=key, batch_ms=NEVER_MS))
    tab.run(PUSH, 0, 10)
    browser.blank.show()
    pipeline.until_stored(key, 10)
    tab.run(PUSH, 10, 15)
    browser.blank.show()
    pipeline.until_stored(key, 15)
    sent = tab.run("return events.filter(one => one[0] === 'sent').map(one => one[2])")
    tab.flush()

    assert sent.count("beacon") == 15
    assert_each_once(pipeline.sessions(key), 15)


def test_a_page_that_only_gets_pagehide_sends_its_queue_too(
    browser: Browser, site: Site, pipeline: Pipeline, key: str
) -> None:
    """Not every browser hides a page before it unloads it; a page restored from the cache continues."""
    tab = browser.visit(site.page(key=key, batch_ms=NEVER_MS))
    tab.run(PUSH, 0, 5)
    tab.run("dispatchEvent(new PageTransitionEvent('pagehide', {persisted: true}))")
    pipeline.until_stored(key, 5)
    tab.run("dispatchEvent(new PageTransitionEvent('pageshow', {persisted: true}))")
    tab.run(PUSH, 5, 10)
    tab.flush()

    assert tab.run("return events.find(one => one[0] === 'sent')[2]") == "beacon"
    assert_each_once(pipeline.sessions(key), 10)


def test_a_leaving_page_sends_its_queue_once(
    browser: Browser, site: Site, pipeline: Pipeline, key: str
) -> None:
    """It gets several events; fragments that a plain request already carries are not sent twice."""
    tab = browser.visit(site.page(key=key, batch_ms=NEVER_MS))
    tab.run(PUSH, 0, 10)
    tab.run(
        "navigator.sendBeacon = () => false;"
        "for (let n = 0; n < 2; n++) dispatchEvent(new PageTransitionEvent('pagehide'));"
    )
    tab.until_empty()

    assert len(site.posts) == 1
    assert_each_once(pipeline.sessions(key), 10)


def test_a_closed_page_sends_its_queue_and_the_next_page_makes_sure(
    browser: Browser, site: Site, pipeline: Pipeline, key: str
) -> None:
    """Nothing reads a beacon's answer: the next page sends it again, and no session has it twice."""
    address = site.page(key=key, batch_ms=100)
    tab = browser.visit(site.page("/first", key=key, batch_ms=NEVER_MS))
    tab.run(PUSH, 0, 20)
    tab.close()
    pipeline.until_stored(key, 20)
    again = browser.visit(address)
    again.until_empty()

    assert sorted(Counter(site.ids()).values()) == [2] * 20
    assert again.run("return [baton.counts.acknowledged, Object.keys(localStorage).length]") == [20, 1]
    assert_each_once(pipeline.sessions(key), 20)


def test_a_link_to_the_next_page_loses_nothing(
    browser: Browser, site: Site, pipeline: Pipeline, key: str
) -> None:
    """Page after page, each left right after a push, and back through the browser's cache."""
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

    # a page that is loaded twice pushes twice: the first one, and the one reached by going back
    assert set(found) == set(range(10))
    ids = [json.loads(bytes(one))["id"] for session in pipeline.sessions(key) for one in session.data]
    assert len(ids) == len(set(ids))


def test_closed_offline_and_visited_again(browser: Browser, site: Site, pipeline: Pipeline, key: str) -> None:
    """The browser accepts beacons that it cannot send: the fragments stay, however late the next visit is."""
    address = site.page(key=key, batch_ms=NEVER_MS)
    tab = browser.visit(address)
    browser.offline()
    tab.run(PUSH, 0, 10)
    tab.close()
    browser.online()
    again = browser.visit(site.page("/again", script="Date.now = () => 1e13;", key=key, batch_ms=100))
    again.until_empty()

    assert_each_once(pipeline.sessions(key), 10)


def test_500_fragments_of_a_page_that_is_closed_at_once(
    browser: Browser, site: Site, pipeline: Pipeline, key: str
) -> None:
    """More than beacons may carry: the next page sends the rest."""
    tab = browser.visit(site.page(key=key, batch_ms=NEVER_MS, batch_size=1000))
    tab.run(PUSH, 0, 500, 300)
    tab.close()
    again = browser.open(site.page("/again", key=key, batch_ms=100))
    again.until_empty()

    assert_each_once(pipeline.sessions(key), 500)


def test_rejected_beacons_are_split_and_then_replaced_by_requests(
    browser: Browser, site: Site, pipeline: Pipeline, key: str
) -> None:
    """Another script on the page uses most of the quota that all beacons share."""
    script = """
      const sendBeacon = navigator.sendBeacon.bind(navigator);
      window.beacons = [];
      window.hold = () => sendBeacon('/held', 'x'.repeat(30000));
      navigator.sendBeacon = (url, body) => {
        const accepted = sendBeacon(url, body);
        beacons.push([body.length, accepted]);
        return accepted;
      };"""
    tab = browser.visit(site.page(script=script, key=key, batch_ms=NEVER_MS, batch_size=1000))
    held = tab.run("return hold()")
    tab.run(PUSH, 0, 100, 900)
    browser.blank.show()
    pipeline.until_stored(key, 100)
    beacons = tab.run("return beacons")
    site.release.set()
    tab.flush()
    rejected = [size for size, is_accepted in beacons if not is_accepted]
    accepted = [size for size, is_accepted in beacons if is_accepted]

    assert held
    assert max(rejected) > 60_000
    assert all(size > 16_384 for size in rejected)
    assert len(accepted) == 1
    assert 16_384 < accepted[0] <= 32_000
    assert_each_once(pipeline.sessions(key), 100)


def test_a_beacon_is_presumed_to_have_arrived_when_a_repeat_could_store_it_twice(
    browser: Browser, site: Site, pipeline: Pipeline, key: str
) -> None:
    """The visitor returns after ten minutes, when a consumer may have forgotten the session's ids."""
    tab = browser.visit(site.page(key=key, batch_ms=NEVER_MS))
    tab.run(PUSH, 0, 10)
    tab.close()
    pipeline.until_stored(key, 10)
    again = browser.visit(site.page("/later", script=TEN_MINUTES_LATER, key=key, batch_ms=100))
    again.until_empty()

    assert again.run("return [baton.counts.presumed, localStorage.length]") == [10, 1]
    assert len(site.posts) == 1


@pytest.mark.parametrize("is_down", [False, True], ids=["an error", "no answer"])
def test_a_beacon_is_not_presumed_to_have_arrived_if_the_producer_failed_since(
    browser: Browser, site: Site, pipeline: Pipeline, key: str, is_down: bool
) -> None:
    """The hidden page could not make sure: the beacon may have failed, just as its repeat did."""
    site.faults.extend([Answered(503)] * 1000)
    tab = browser.visit(site.page(key=key, batch_ms=1000))
    site.is_down = is_down
    tab.run(PUSH, 0, 10)
    browser.blank.show()
    tab.until("events.some(one => one[0] === 'failed')")
    first = tab.run("return events.find(one => one[0] === 'sent')[2]")
    tab.close()
    site.faults.clear()
    site.is_down = False
    again = browser.visit(site.page("/later", script=TEN_MINUTES_LATER, key=key, batch_ms=100))
    again.until_empty()

    assert first == "beacon"
    assert_each_once(pipeline.sessions(key), 10)


def test_a_leaving_page_respects_retry_after(
    browser: Browser, site: Site, pipeline: Pipeline, key: str
) -> None:
    """Stored fragments can wait for the site's next page; the producer is overloaded."""
    site.faults.append(Answered(503, {"retry-after": "300"}))
    tab = browser.visit(site.page(key=key, batch_ms=30))
    tab.run(PUSH, 0, 5)
    tab.until("events.some(one => one[0] === 'failed')")
    tab.run(PUSH, 5, 10)
    browser.blank.show()
    tab.close()
    before = len(site.posts)
    again = browser.open(site.page("/next", key=key, batch_ms=100))
    again.until_empty()

    assert before == 1
    assert_each_once(pipeline.sessions(key), 10)
