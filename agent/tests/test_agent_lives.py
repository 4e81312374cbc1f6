"""Random lives of a site's pages, under every fault: in the end each fragment is once in a session."""

from __future__ import annotations

import random

import pytest

from agent.tests.chromium import Browser, Tab
from agent.tests.pipeline import Pipeline
from agent.tests.site import Answered, Lost, Partly, Site
from agent.tests.visits import PUSH, assert_each_once

STEPS = 40
FAULTS = (Answered(503), Answered(429, {"retry-after": "1"}), Answered(500), Lost(), Partly(kept=2))
LATER = "const now = Date.now; Date.now = () => now() + 130000;"
"""A page whose clock has passed the leases of tabs that crashed."""


class Visitor:
    """Somebody who opens pages of a site, and does with them what visitors do; `pushed` counts fragments."""

    def __init__(self, rng: random.Random, browser: Browser, site: Site, address: str) -> None:
        self._rng = rng
        self._browser = browser
        self._site = site
        self._address = address
        self._tabs: list[Tab] = []
        self.pushed = 0
        self.did: list[str] = []

    def step(self) -> None:
        """One thing, of those that are possible."""
        deeds = [
            self.push,
            self.push,
            self.hide,
            self.reload,
            self.close,
            self.crash,
            self.fail,
            self.offline,
        ]
        deed = self._rng.choice(deeds)
        if not self._tabs or (len(self._tabs) < 3 and self._rng.random() < 0.2):
            deed = self.open
        self.did.append(deed.__name__)
        deed()

    def open(self) -> None:
        """Another tab."""
        self._tabs.append(self._browser.open(self._address))

    def push(self) -> None:
        """Some fragments, whether the agent has loaded or not."""
        count = self._rng.randrange(1, 30)
        tab = self._rng.choice(self._tabs)
        tab.until_loaded()
        tab.run(PUSH, self.pushed, self.pushed + count, self._rng.choice((0, 500, 3000)))
        self.pushed += count

    def hide(self) -> None:
        """Looks at something else."""
        self._browser.blank.show()

    def reload(self) -> None:
        """The page anew."""
        self._rng.choice(self._tabs).reload()

    def close(self) -> None:
        """One tab less."""
        self._tabs.pop(self._rng.randrange(len(self._tabs))).close()

    def crash(self) -> None:
        """One tab less, without a farewell."""
        self._tabs.pop(self._rng.randrange(len(self._tabs))).crash()

    def fail(self) -> None:
        """The next posts meet faults."""
        self._site.faults.extend(self._rng.choices(FAULTS, k=self._rng.randrange(1, 4)))

    def offline(self) -> None:
        """No network for the next pushes."""
        self._browser.offline()
        self.push()
        self._browser.online()

    def leave(self) -> None:
        """Closes everything."""
        for tab in self._tabs:
            tab.close()


@pytest.mark.parametrize("seed", range(3))
def test_whatever_happens_to_its_pages(
    browser: Browser, site: Site, pipeline: Pipeline, key: str, seed: int
) -> None:
    """Tabs are hidden, closed, crash; requests, answers and beacons are lost, refused, taken in part."""
    address = site.page(key=key, batch_ms=100)
    visitor = Visitor(random.Random(seed), browser, site, address)
    for _ in range(STEPS):
        visitor.step()
    site.faults.clear()
    visitor.leave()
    last = browser.open(site.page("/last", script=LATER, key=key, batch_ms=100))
    last.until_empty()
    pipeline.until_stored(key, visitor.pushed)

    assert len(set(visitor.did)) > 6
    assert_each_once(pipeline.sessions(key), visitor.pushed)
