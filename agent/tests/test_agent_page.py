"""The agent in pages that load, stay, go offline, reload, crash, in one tab or two: each fragment once."""

from __future__ import annotations

from agent.tests.chromium import Browser, Tab
from agent.tests.pipeline import Pipeline
from agent.tests.site import Answered, Site
from agent.tests.visits import AFTER_A_LEASE, AHEAD, NEVER_MS, PUSH, assert_each_once, data_of


def test_what_a_page_pushes_is_one_session(
    browser: Browser, site: Site, pipeline: Pipeline, key: str
) -> None:
    """Pushed before and after the script loads, in order, with an END; one tag suffices, no preflight."""
    script = "baton.push({step: 'early'}); baton.push(b => b.push({step: 'loaded'}));"
    tab = browser.visit(site.page(script=script, key=key, batch_ms=50))
    tab.run("baton.push({step: 'late', text: 'ä€🙂'}); baton.end();")
    tab.until_empty()
    (session,) = pipeline.sessions(key)

    assert data_of([session]) == [
        [{"step": "early"}, {"step": "loaded"}, {"step": "late", "text": "ä€🙂"}, None]
    ]
    assert session.reason == "end"
    assert {post.content_type for post in site.posts} == {"text/plain;charset=UTF-8"}
    assert browser.complaints() == []


def test_every_session_of_a_visitor_has_the_key_of_the_first_page(
    browser: Browser, site: Site, pipeline: Pipeline
) -> None:
    """Without a key from the site, the agent creates one and stores it; fragment ids differ between pages."""
    tab = browser.visit(site.page(batch_ms=50))
    visitor = tab.run("baton.push({n: 0}); return baton.key;")
    tab.until_empty()
    tab.reload()
    tab.until_loaded()
    same = tab.run("baton.push({n: 1}); return baton.key;")
    tab.until_empty()

    assert visitor == same
    assert len(visitor) == 36
    assert_each_once(pipeline.sessions(visitor), 2)


def test_two_tabs_of_a_first_visit_are_one_visitor(browser: Browser, site: Site, pipeline: Pipeline) -> None:
    """Both find no key and create one; before they send, both switch to the key that is stored."""
    blind = "const get = Storage.prototype.getItem; let looks = 0; Storage.prototype.getItem ="
    blind += "function (name) { return name === 'baton key' && !looks++ ? null : get.call(this, name) };"
    for number in range(2):
        site.page(f"/{number}", script=f"{blind} baton.push({{n: {number}}})", batch_ms=NEVER_MS)
    site.pages["/"] = "<iframe src='/0'></iframe><iframe src='/1'></iframe>"
    tab = browser.open(f"{site.url}/")
    tab.until("[0, 1].every(n => frames[n].baton && frames[n].baton.counts?.queued)")
    keys = "return [frames[0].baton.key, frames[1].baton.key]"
    made = tab.run(keys)
    tab.run("frames[0].baton.flush(); frames[1].baton.flush()")
    tab.until("[0, 1].every(n => frames[n].baton.counts.acknowledged)")
    one, other = tab.run(keys)

    assert made[0] != made[1]
    assert one == other == tab.run("return localStorage['baton key']")
    assert_each_once(pipeline.sessions(one), 2)


def test_offline_and_back(browser: Browser, site: Site, pipeline: Pipeline, key: str) -> None:
    """Fragments pushed offline are sent when the network is back, earlier than their retry is due."""
    script = "addEventListener('online', () => window.cameBack = performance.now())"
    tab = browser.visit(site.page(script=script, key=key, batch_ms=50))
    tab.run(PUSH, 0, 5)
    tab.until_empty()
    browser.offline()
    tab.run(PUSH, 5, 25)
    # three times: the next one would be due after four seconds
    tab.until("events.filter(one => one[0] === 'failed').length >= 60")
    queued = tab.run("return Object.keys(localStorage).length")
    browser.online()
    tab.until_empty()
    waited_ms = tab.run("return events.find(one => one[0] === 'sent' && one[3] >= cameBack)[3] - cameBack")

    assert waited_ms < 1000
    # the fragments, and the lease on them
    assert queued == 21
    assert_each_once(pipeline.sessions(key), 25)


def test_500_fragments(browser: Browser, site: Site, pipeline: Pipeline, key: str) -> None:
    """Pushed at once, they are sent in a few requests, one after the other, in order."""
    tab = browser.visit(site.page(key=key, batch_ms=50))
    tab.run(PUSH, 0, 500, 300)
    tab.until_empty()
    sessions = pipeline.sessions(key)

    assert len(site.posts) <= 10
    assert [one["n"] for one in data_of(sessions)[0] if isinstance(one, dict)] == list(range(500))
    assert_each_once(sessions, 500)


def test_a_page_reloaded_with_a_queue(browser: Browser, site: Site, pipeline: Pipeline, key: str) -> None:
    """While the producer fails, each page adds to the queue that it inherits."""
    site.faults.extend([Answered(503)] * 1000)
    tab = browser.open(site.page(key=key, batch_ms=30))
    for number in range(4):
        tab.until_loaded()
        tab.run(PUSH, number * 5, number * 5 + 5)
        tab.until("events.some(one => one[0] === 'failed')")
        tab.reload()
    tab.until_loaded()
    kept = tab.run("return baton.counts.queued")
    site.faults.clear()
    tab.until_empty()

    assert kept == 20
    assert_each_once(pipeline.sessions(key), 20)


def test_two_tabs(browser: Browser, site: Site, pipeline: Pipeline, key: str) -> None:
    """Each sends only its own fragments, and both belong to one visitor's session."""
    first = browser.visit(site.page(key=key, batch_ms=100))
    second = browser.visit(f"{site.url}/")
    for number in range(0, 40, 4):
        first.run(PUSH, number, number + 2)
        second.run(PUSH, number + 2, number + 4)
    first.until_empty()
    second.until_empty()

    assert first.run("return baton.counts.queued") == second.run("return baton.counts.queued") == 20
    assert_each_once(pipeline.sessions(key), 40)


def test_a_tab_sends_the_queue_of_a_closed_one(
    browser: Browser, site: Site, pipeline: Pipeline, key: str
) -> None:
    """As soon as it is visible again; it does not touch the queue of a tab that is open."""
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
    second.until("events.some(one => one[0] === 'failed')")
    first_held = first.run("return baton.counts.queued")
    second.close()
    site.is_down = False
    first.show()
    first.until("baton.counts.acknowledged === 10")

    assert first_held == 5
    assert_each_once(pipeline.sessions(key), 10)


def held_up_tab(browser: Browser, site: Site, key: str) -> Tab:
    """Opens a tab with ten fragments that it may not send for minutes."""
    site.faults.extend([Answered(503, {"retry-after": "300"})] * 1000)
    tab = browser.visit(site.page(key=key, batch_ms=30))
    tab.run(PUSH, 0, 10)
    tab.until("events.some(one => one[0] === 'failed')")
    return tab


def test_the_next_tab_sends_the_queue_of_a_crashed_one(
    browser: Browser, site: Site, pipeline: Pipeline, key: str
) -> None:
    """Once the lease has expired, any tab may adopt the fragments."""
    tab = held_up_tab(browser, site, key)
    tab.crash()
    site.faults.clear()
    again = browser.visit(site.page("/later", script=AFTER_A_LEASE, key=key, batch_ms=100))
    again.until("baton.counts.acknowledged === 10")

    assert_each_once(pipeline.sessions(key), 10)


def test_a_lease_from_a_clock_that_was_ahead_is_ignored(
    browser: Browser, site: Site, pipeline: Pipeline, key: str
) -> None:
    """It would last another day; the queue of the crashed tab is sent now all the same."""
    tab = held_up_tab(browser, site, key)
    # the tab checks its queue, and renews the lease with this clock
    tab.run(f"{AHEAD.format(86_400_000)} baton.flush();")
    lease = "Math.max(...Object.values(localStorage).filter(value => value > 0)) - Date.now()"
    ahead_ms = browser.open(site.page("/empty", agent="/none")).run(f"return {lease}")
    tab.crash()
    site.faults.clear()
    again = browser.visit(site.page("/again", key=key, batch_ms=100))
    again.until("baton.counts.acknowledged === 10")

    assert ahead_ms > 80_000_000
    assert_each_once(pipeline.sessions(key), 10)
