"""What the agent sends again and when, and what it never does; write keys, origins, visitors' wishes."""

from __future__ import annotations

import itertools
import json
from collections import Counter

import pytest

from agent.tests import chromium
from agent.tests.chromium import Browser, Programs
from agent.tests.pipeline import Pipeline
from agent.tests.site import Answered, Lost, Partly, Site
from agent.tests.visits import NEVER_MS, PUSH, assert_each_once, data_of

OPEN = {"access-control-allow-origin": "*", "access-control-expose-headers": "Retry-After"}
"""The producer's headers for pages of other origins."""


@pytest.mark.parametrize("status", [429, 503])
@pytest.mark.parametrize("foreign", [False, True], ids=["same origin", "another origin"])
def test_the_agent_respects_retry_after(
    browser: Browser, site: Site, pipeline: Pipeline, key: str, status: int, foreign: bool
) -> None:
    """It waits at least that long, and nothing is lost meanwhile; also on a page of another origin."""
    site.faults.append(Answered(status, {"retry-after": "3", **OPEN}))
    with Site(pipeline.url).running() as other:
        home = other if foreign else site
        tab = browser.visit(home.page(agent=f"{site.url}/agent.js", key=key, batch_ms=30))
        tab.run(PUSH, 0, 5)
        tab.until("events.some(one => one[0] === 'failed')")
        tab.run(PUSH, 5, 10)
        tab.flush()
    first, second, *_ = site.posts

    assert second.at - first.at >= 3
    assert second.ids[:5] == first.ids
    assert_each_once(pipeline.sessions(key), 10)


def test_the_agent_backs_off_exponentially(
    browser: Browser, site: Site, pipeline: Pipeline, key: str
) -> None:
    """One second, two, four, plus jitter, whatever the failure: an error, a timeout, a portal's answer."""
    site.faults += [Answered(500), Answered(408), Answered(200, {}, "please log in")]
    tab = browser.visit(site.page(key=key, batch_ms=30))
    tab.run(PUSH, 0, 5)
    tab.until_empty()
    times = [post.at for post in site.posts]
    waits = [later - sooner for sooner, later in itertools.pairwise(times)]

    assert len(waits) == 3
    assert all(wait >= 2**number for number, wait in enumerate(waits))
    assert_each_once(pipeline.sessions(key), 5)


def test_only_what_is_unstored_is_sent_again(
    browser: Browser, site: Site, pipeline: Pipeline, key: str
) -> None:
    """A 503 lists them; fragments that Kafka acknowledged are settled."""
    site.faults.append(Partly(kept=3))
    tab = browser.visit(site.page(key=key, batch_ms=30))
    tab.run(PUSH, 0, 10)
    tab.until_empty()
    first, second = site.posts

    assert len(first.ids) == 10
    assert second.ids == first.ids[3:]
    assert_each_once(pipeline.sessions(key), 10)


def test_a_lost_answer_stores_nothing_twice(
    browser: Browser, site: Site, pipeline: Pipeline, key: str
) -> None:
    """The fragments are sent again with the same ids, so the session has them once."""
    site.faults += [Lost(), Lost()]
    tab = browser.visit(site.page(key=key, batch_ms=30))
    tab.run(PUSH, 0, 10)
    tab.until_empty()

    assert len(pipeline.log(key)) > 10
    assert_each_once(pipeline.sessions(key), 10)


@pytest.mark.parametrize("status", [400, 401, 403, 413, 415, 422])
def test_a_request_that_the_producer_refuses_is_never_sent_again(
    browser: Browser, site: Site, pipeline: Pipeline, key: str, status: int
) -> None:
    """Its fragments are dropped, counted and reported; later ones are sent."""
    site.faults.append(Answered(status, {}, {"type": "urn:baton:refused", "rejected": [None]}))
    tab = browser.visit(site.page(key=key, batch_ms=30))
    tab.run("baton.push({n: -1})")
    tab.until("baton.counts.dropped === 1")
    tab.run(PUSH, 0, 3)
    tab.until("baton.counts.acknowledged === 3")

    assert Counter(Counter(site.ids()).values()) == {1: 4}
    assert any("dropped" in complaint for complaint in browser.complaints())
    assert_each_once(pipeline.sessions(key), 3)


def test_a_refusal_that_is_not_the_producers_drops_nothing(
    browser: Browser, site: Site, pipeline: Pipeline, key: str
) -> None:
    """An ingress' 404, a firewall's 403, another service behind the name: the agent keeps and retries."""
    elsewhere = {"type": "urn:baton:not-found", "title": "Not Found", "status": 404, "detail": "Not Found"}
    site.faults += [Answered(404), Answered(403, {}, {"type": "about:blank"}), Answered(404, {}, elsewhere)]
    tab = browser.visit(site.page(key=key, batch_ms=30))
    tab.run(PUSH, 0, 5)
    tab.until_empty()
    waits = [later.at - sooner.at for sooner, later in itertools.pairwise(site.posts)]

    assert all(wait >= 2**number for number, wait in enumerate(waits))
    assert tab.run("return [baton.counts.acknowledged, baton.counts.dropped]") == [5, 0]
    assert_each_once(pipeline.sessions(key), 5)


@pytest.mark.parametrize(
    "answer",
    [
        Answered(503, {}, {"type": "urn:baton:x", "accepted": 4, "unstored": [None], "rejected": [None]}),
        Answered(200, {}, {"accepted": None, "rejected": [{"index": "length"}]}),
        Answered(200, {}, ["accepted"]),
    ],
    ids=["503", "200", "array"],
)
def test_an_unreadable_answer_settles_nothing(
    browser: Browser, site: Site, pipeline: Pipeline, key: str, answer: Answered
) -> None:
    """Its lists may hold anything: the agent retries all fragments."""
    site.faults.append(answer)
    tab = browser.visit(site.page(key=key, batch_ms=30))
    tab.run(PUSH, 0, 5)
    tab.until("events.some(one => one[0] === 'failed')")
    tab.until_empty()

    assert [len(post.ids) for post in site.posts] == [5, 5]
    assert_each_once(pipeline.sessions(key), 5)


def test_an_entry_without_a_fragment_in_the_list_of_the_rejected_is_skipped(
    browser: Browser, site: Site, key: str
) -> None:
    """The fragments that the list names are rejected, the others acknowledged."""
    rejected = [None, 7, {"index": "length"}, {"index": 9}, {"index": 1, "reason": "time"}, {"index": 2}]
    site.faults.append(Answered(200, {}, {"accepted": 3, "rejected": rejected}))
    tab = browser.visit(site.page(key=key, batch_ms=30))
    tab.run(PUSH, 0, 5)
    tab.until_empty()
    reasons = tab.run("return events.filter(one => one[0] === 'rejected').map(one => one[2])")

    assert tab.run("return [baton.counts.acknowledged, baton.counts.rejected]") == [3, 2]
    assert reasons == ["time", "rejected"]
    assert len(site.posts) == 1


def test_a_number_is_a_key_and_nothing_else_but_a_text_is(
    browser: Browser, site: Site, pipeline: Pipeline, key: str
) -> None:
    """A number is sent as text, as the producer expects; without a usable key, `push` drops and says so."""
    number = int(key[-12:], 16) + 0.5
    long = "ä" * 129
    tab = browser.visit(site.page(batch_ms=30))
    given = tab.run(
        "return [arguments[0], null, {}, true, NaN, '', arguments[1]].map("
        "key => { baton.key = key; return typeof baton.push({n: 0}) })",
        number,
        long,
    )
    tab.until_empty()
    reasons = tab.run("return events.filter(one => one[0] === 'dropped').map(one => one[2])")

    assert given == ["string"] + ["undefined"] * 6
    assert reasons == ["the key is not a text of 1 to 256 bytes"] * 6
    assert_each_once(pipeline.sessions(str(number)), 1)


def test_half_an_emoji_is_repaired_wherever_it_stands(
    browser: Browser, site: Site, pipeline: Pipeline, key: str
) -> None:
    """In keys, names and texts U+FFFD replaces it, as UTF-8 encoders do; a text that spells it stays."""
    tab = browser.visit(site.page(key=key, batch_ms=30))
    tab.run(
        r"delete String.prototype.toWellFormed; baton.key = arguments[0] + '\ude42';"
        r"baton.push({'\ud83d': 1, whole: '\ud83d\ude42', text: 'half \ud83d', spelt: '\\ud83d'});",
        key,
    )
    tab.until_empty()

    assert data_of(pipeline.sessions(f"{key}\ufffd")) == [
        [{"\ufffd": 1, "whole": "\U0001f642", "text": "half \ufffd", "spelt": "\\ud83d"}]
    ]
    assert tab.run("return baton.counts.rejected") == 0


def test_a_rejected_fragment_does_not_affect_others(
    browser: Browser, site: Site, pipeline: Pipeline, key: str
) -> None:
    """Too large for the producer, too large for the agent, not JSON: counted; half an emoji is repaired."""
    tab = browser.visit(site.page(key=key, batch_ms=30))
    tab.run(
        "baton.push({n: 0}); baton.push({text: 'x'.repeat(40000)}); baton.push('x'.repeat(300000));"
        "const loop = {}; loop.loop = loop; baton.push(loop); baton.push({n: 1, text: 'half \\ud83d'});"
    )
    tab.until_empty()
    counts = tab.run("return baton.counts")
    sessions = pipeline.sessions(key)

    assert counts == {"queued": 3, "acknowledged": 2, "presumed": 0, "rejected": 1, "dropped": 2}
    assert data_of(sessions) == [[{"n": 0}, {"n": 1, "text": "half \N{REPLACEMENT CHARACTER}"}]]


def test_a_full_queue_drops_new_fragments(browser: Browser, site: Site, pipeline: Pipeline, key: str) -> None:
    """They are counted, and `push` returns nothing; the queued ones arrive."""
    tab = browser.visit(site.page(key=key, batch_ms=NEVER_MS, queue=10))
    given = tab.run("return Array.from({length: 15}, (_, n) => baton.push({n}))")
    tab.flush()

    assert [one is not None for one in given] == [True] * 10 + [False] * 5
    assert tab.run("return baton.counts.dropped") == 5
    assert_each_once(pipeline.sessions(key), 10)


def test_write_keys(browser: Browser, pipeline: Pipeline, key: str) -> None:
    """Both fetch and beacons carry the tag's key; a wrong key is not tried twice."""
    with pipeline.producer(write_keys="old-key,new&key") as url, Site(url).running() as site:
        right = browser.visit(site.page("/right", key=key, batch_ms=30, write_key="new&amp;key"))
        right.run(PUSH, 0, 5)
        right.until_empty()
        right.run(PUSH, 5, 8)
        right.close()
        pipeline.until_stored(key, 8)
        wrong = browser.visit(site.page("/wrong", key=key, batch_ms=30, write_key="guessed"))
        wrong.run("baton.push({n: 99})")
        wrong.until("events.some(one => one[0] === 'dropped')")
        dropped = wrong.run("return events.filter(one => one[0] === 'dropped').map(one => one[2])")

    assert {post.query for post in site.posts} == {"write_key=new%26key", "write_key=guessed"}
    assert set(dropped) == {403}
    assert_each_once(pipeline.sessions(key), 8)


def test_a_page_of_another_origin(browser: Browser, site: Site, pipeline: Pipeline, key: str) -> None:
    """It loads the script from the producer, and sends requests and beacons there."""
    tab = browser.visit(site.page(agent=f"{pipeline.url}/agent.js", key=key, batch_ms=30))
    tab.run(PUSH, 0, 10)
    tab.until_empty()
    acknowledged = tab.run("return baton.counts.acknowledged")
    tab.run(PUSH, 10, 15)
    tab.close()
    pipeline.until_stored(key, 15)

    assert acknowledged == 10
    assert site.posts == []
    assert_each_once(pipeline.sessions(key), 15)


WISHES = {
    "do not track": "Object.defineProperty(navigator, 'doNotTrack', {value: '1'})",
    "global privacy control": "Object.defineProperty(navigator, 'globalPrivacyControl', {value: true})",
}


@pytest.mark.parametrize("wish", WISHES.values(), ids=WISHES.keys())
def test_a_visitor_who_does_not_want_to_be_tracked_is_not(browser: Browser, site: Site, wish: str) -> None:
    """Nothing is sent or stored, and what was stored before is removed; calls do nothing and do not throw."""
    site.faults.append(Answered(503, {"retry-after": "300"}))
    before = browser.visit(site.page("/before", batch_ms=30))
    before.run(PUSH, 0, 5)
    before.until("events.some(one => one[0] === 'failed')")
    before.close()
    posts = len(site.posts)
    tab = browser.visit(site.page(script=f"{wish}; baton.push(1)", batch_ms=30))
    given = tab.run("return [baton.isOff, baton.push(2), baton.end(), baton.flush(), localStorage.length]")
    browser.blank.show()
    tab.close()

    assert given == [True, None, None, None, 0]
    assert len(site.posts) == posts


def test_a_site_may_override_the_wish(browser: Browser, site: Site, pipeline: Pipeline, key: str) -> None:
    """With `data-dnt="ignore"`, for visitors who have agreed."""
    script = f"{WISHES['do not track']}; {WISHES['global privacy control']};"
    tab = browser.visit(site.page(script=script, key=key, batch_ms=30, dnt="ignore"))
    tab.run(PUSH, 0, 5)
    tab.until_empty()

    assert_each_once(pipeline.sessions(key), 5)


def test_the_browsers_own_setting_counts(programs: Programs, site: Site) -> None:
    """Chromium's own switch for Do Not Track."""
    with chromium.browser(programs, enable_do_not_track=True) as browser:
        tab = browser.visit(site.page())
        wish, is_off = tab.run("return [navigator.doNotTrack, baton.isOff]")

    assert (wish, is_off) == ("1", True)


def test_the_try_page_shows_the_state_of_each_fragment(
    browser: Browser, pipeline: Pipeline, key: str
) -> None:
    """The producer serves it; its URL has the settings; its content security policy blocks nothing."""
    tab = browser.visit(f"{pipeline.url}/try?key={key}&batch_ms=30")
    tab.run("for (const id of ['push', 'many', 'end']) document.getElementById(id).click()")
    tab.until_empty()
    rows = tab.run("return Array.from(document.querySelectorAll('tbody tr'), row => row.innerText)")
    shown = tab.run(
        "return [document.getElementById('key').innerText, document.getElementById('tag').innerText]"
    )
    (session,) = pipeline.sessions(key)

    assert len(rows) == session.fragments == 103
    assert all("sent by fetch\nacknowledged (200)" in row for row in rows)
    assert shown[0] == key
    assert f'src="{pipeline.url}/agent.js" data-key="{key}"' in shown[1]
    assert session.reason == "end"
    assert json.loads(bytes(session.data[0]))["data"] == {"page": "/try"}
    assert browser.complaints() == []
