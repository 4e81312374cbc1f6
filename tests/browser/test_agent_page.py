"""The agent in pages that are hidden, closed, reloaded, offline: each fragment is once in a session."""

from __future__ import annotations

import json
from collections import Counter

from tests.browser.chromium import Browser
from tests.browser.pipeline import Pipeline
from tests.browser.site import Answered, Site
from tests.browser.visits import NEVER_MS, PUSH, assert_each_once, data_of


def test_what_a_page_pushes_is_one_session(
    browser: Browser, site: Site, pipeline: Pipeline, key: str
) -> None:
    """Before the script has loaded and after, in order, to the end: one tag, and no preflight."""
    script = "baton.push({step: 'early'}); baton.push(b => b.push({step: 'loaded'}));"
    tab = browser.open(site.page(script=script, key=key, batch_ms=50))
    tab.until_loaded()
    tab.run("baton.push({step: 'late', text: 'ä€🙂'}); baton.end();")
    tab.until_empty()
    (session,) = pipeline.sessions(key)

    assert data_of([session]) == [
        [{"step": "early"}, {"step": "loaded"}, {"step": "late", "text": "ä€🙂"}, None]
    ]
    assert session.reason == "end"
    assert {post.content_type for post in site.posts} == {"text/plain;charset=UTF-8"}
    assert browser.complaints() == []


def test_each_session_of_a_visitor_has_the_key_that_the_first_page_made(
    browser: Browser, site: Site, pipeline: Pipeline
) -> None:
    """Without a key of the site's own it is made once and kept; fragment ids differ from page to page."""
    tab = browser.open(site.page(batch_ms=50))
    tab.until_loaded()
    visitor = tab.run("baton.push({n: 0}); return baton.key;")
    tab.until_empty()
    tab.reload()
    tab.until_loaded()
    same = tab.run("baton.push({n: 1}); return baton.key;")
    tab.until_empty()

    assert visitor == same
    assert len(visitor) == 36
    assert_each_once(pipeline.sessions(visitor), 2)


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


def test_offline_and_back(browser: Browser, site: Site, pipeline: Pipeline, key: str) -> None:
    """What is pushed offline waits, and goes when there is a network again, sooner than its retry was due."""
    tab = browser.open(site.page(key=key, batch_ms=50))
    tab.until_loaded()
    tab.run(PUSH, 0, 5)
    tab.until_empty()
    browser.offline()
    tab.run(PUSH, 5, 25)
    tab.until("told.filter(one => one[0] === 'failed').length >= 40")
    queued = tab.run("return Object.keys(localStorage).length")
    browser.online()
    tab.until_empty()

    # the fragments, and who holds them
    assert queued == 21
    assert_each_once(pipeline.sessions(key), 25)


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


def test_500_fragments(browser: Browser, site: Site, pipeline: Pipeline, key: str) -> None:
    """Pushed at once they go in a few requests, one after the other, in order."""
    tab = browser.open(site.page(key=key, batch_ms=50))
    tab.until_loaded()
    tab.run(PUSH, 0, 500, 300)
    tab.until_empty()
    sessions = pipeline.sessions(key)

    assert len(site.posts) <= 10
    assert [one["n"] for one in data_of(sessions)[0] if isinstance(one, dict)] == list(range(500))
    assert_each_once(sessions, 500)


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


def test_a_page_reloaded_with_a_queue(browser: Browser, site: Site, pipeline: Pipeline, key: str) -> None:
    """While the producer fails, page after page adds to the queue that the last one has."""
    site.faults.extend([Answered(503)] * 1000)
    tab = browser.open(site.page(key=key, batch_ms=30))
    for number in range(4):
        tab.until_loaded()
        tab.run(PUSH, number * 5, number * 5 + 5)
        tab.until("told.some(one => one[0] === 'failed')")
        tab.reload()
    tab.until_loaded()
    kept = tab.run("return baton.counts.queued")
    site.faults.clear()
    tab.until_empty()

    assert kept == 20
    assert_each_once(pipeline.sessions(key), 20)


def test_two_tabs(browser: Browser, site: Site, pipeline: Pipeline, key: str) -> None:
    """Each sends its own: neither takes what the other holds, and both are one visitor's session."""
    first = browser.open(site.page(key=key, batch_ms=100))
    first.until_loaded()
    second = browser.open(f"{site.url}/")
    second.until_loaded()
    for number in range(0, 40, 4):
        first.run(PUSH, number, number + 2)
        second.run(PUSH, number + 2, number + 4)
    first.until_empty()
    second.until_empty()

    assert first.run("return baton.counts.queued") == second.run("return baton.counts.queued") == 20
    assert_each_once(pipeline.sessions(key), 40)


def test_a_tab_that_stays_sends_what_a_closed_one_has_left(
    browser: Browser, site: Site, pipeline: Pipeline, key: str
) -> None:
    """As soon as it is looked at again; what a living tab holds it leaves alone."""
    site.is_down = True
    first = browser.open(site.page(key=key, batch_ms=100))
    site.is_down = False
    first.reload()
    first.until_loaded()
    site.is_down = True
    first.run(PUSH, 0, 5)
    second = browser.open(f"{site.url}/")
    site.is_down = False
    second.reload()
    second.until_loaded()
    site.is_down = True
    second.run(PUSH, 5, 10)
    second.until("told.some(one => one[0] === 'failed')")
    first_held = first.run("return baton.counts.queued")
    second.close()
    site.is_down = False
    first.show()
    first.until("baton.counts.acknowledged === 10")

    assert first_held == 5
    assert_each_once(pipeline.sessions(key), 10)


def test_a_tab_that_crashes_leaves_what_the_next_one_sends(
    browser: Browser, site: Site, pipeline: Pipeline, key: str
) -> None:
    """It said no word; when its lease has run out its fragments are anybody's."""
    site.faults.extend([Answered(503, {"retry-after": "300"})] * 1000)
    tab = browser.open(site.page(key=key, batch_ms=30))
    tab.until_loaded()
    tab.run(PUSH, 0, 10)
    tab.until("told.some(one => one[0] === 'failed')")
    tab.crash()
    site.faults.clear()
    # nobody waits for two minutes: this page's clock is ahead
    later = "const now = Date.now; Date.now = () => now() + 130000;"
    again = browser.open(site.page("/later", script=later, key=key, batch_ms=100))
    again.until_loaded()
    again.until("baton.counts.acknowledged === 10")

    assert_each_once(pipeline.sessions(key), 10)
