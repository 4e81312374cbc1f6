"""The agent without working storage: it is forbidden, full, or cleared."""

from __future__ import annotations

from agent.tests.chromium import Browser
from agent.tests.pipeline import Pipeline
from agent.tests.site import Answered, Site
from agent.tests.visits import NEVER_MS, PUSH, assert_each_once

OPEN = {"access-control-allow-origin": "*"}
"""The producer's header for pages of other origins."""


def test_forbidden_storage(browser: Browser, site: Site, pipeline: Pipeline, key: str) -> None:
    """A frame without an origin has no storage: its queue lives as long as it, and is sent at the end."""
    site.faults.append(Answered(503, OPEN))
    with Site(pipeline.url).running() as other:
        script = (
            "try { localStorage } catch { baton.push({n: 0}) } baton.push(() => parent.postMessage(1, '*'));"
        )
        other.page("/framed", script=script, agent=f"{site.url}/agent.js", key=key, batch_ms=30)
        other.page(
            "/waiting",
            script=script.replace("0", "1"),
            agent=f"{site.url}/agent.js",
            key=key,
            batch_ms=NEVER_MS,
        )
        other.pages["/"] = """<script>loaded = 0; onmessage = () => loaded++</script>
            <iframe sandbox="allow-scripts" src="/framed"></iframe>
            <iframe sandbox="allow-scripts" src="/waiting"></iframe>"""
        tab = browser.open(f"{other.url}/")
        tab.until("loaded === 2")
        pipeline.until_stored(key, 1)
        browser.blank.show()
        pipeline.until_stored(key, 2)

    assert {post.origin for post in site.posts} == {"null"}
    assert_each_once(pipeline.sessions(key), 2)


def test_full_storage(browser: Browser, site: Site, pipeline: Pipeline, key: str) -> None:
    """The queue lives as long as the page, is retried, and is sent at its end."""
    fill = (
        "for (let n = 0, size = 2 ** 22; size >= 1; size /= 2)"
        "try { for (;;) localStorage.setItem(n++, 'x'.repeat(size)) } catch {}"
    )
    site.faults.append(Answered(503))
    tab = browser.visit(site.page(script=fill, key=key, batch_ms=30))
    tab.run(PUSH, 0, 5)
    tab.until_empty()
    site.faults.append(Answered(503, {"retry-after": "300"}))
    tab.run(PUSH, 5, 10)
    tab.until("events.filter(one => one[0] === 'failed').length === 10")
    kept = tab.run("return Object.keys(localStorage).filter(name => name.startsWith('baton'))")
    tab.close()
    pipeline.until_stored(key, 10)

    assert kept == []
    assert_each_once(pipeline.sessions(key), 10)


def test_a_site_that_clears_its_storage_loses_no_fragment(
    browser: Browser, site: Site, pipeline: Pipeline, key: str
) -> None:
    """Sites do so when a visitor logs out: the page still has its queue, and stores it again."""
    site.faults.append(Answered(503))
    tab = browser.visit(site.page(key=key, batch_ms=30))
    tab.run(PUSH, 0, 5)
    tab.until("events.some(one => one[0] === 'failed')")
    tab.run("localStorage.clear()")
    tab.until_empty()

    assert_each_once(pipeline.sessions(key), 5)


def test_the_cost_of_a_push_does_not_grow_with_the_queue(
    browser: Browser, site: Site, pipeline: Pipeline, key: str
) -> None:
    """While a full batch waits for the producer, a push stores its fragment and reads none of the others."""
    site.faults.append(Answered(503, {"retry-after": "300"}))
    tab = browser.visit(site.page(key=key, batch_ms=30, batch_size=10))
    tab.run(PUSH, 0, 10)
    tab.until("events.some(one => one[0] === 'failed')")
    calls = tab.run(
        "let calls = 0;"
        "for (const name of ['getItem', 'setItem', 'removeItem', 'key']) {"
        "  const real = Storage.prototype[name];"
        "  Storage.prototype[name] = function (...given) { calls++; return real.apply(this, given) };"
        "}"
        "return Array.from({length: 300}, (_, n) => { calls = 0; baton.push({n}); return calls })"
    )

    assert set(calls) == {1}
