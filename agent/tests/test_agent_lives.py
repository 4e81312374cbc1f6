"""Random visits to a site, under every fault: in the end each fragment is in a session once."""

from __future__ import annotations

import random

import pytest

from agent.tests.chromium import Browser, Tab
from agent.tests.pipeline import Pipeline
from agent.tests.site import Answered, Lost, Partly, Site
from agent.tests.visits import AFTER_A_LEASE, PUSH, assert_each_once

STEPS = 40
FAULTS = (Answered(503), Answered(429, {"retry-after": "1"}), Answered(500), Lost(), Partly(kept=2))


class Visitor:
    """Opens pages of a site and uses them as visitors do; `pushed` counts fragments."""

    def __init__(self, rng: random.Random, browser: Browser, site: Site, address: str) -> None:
        self._rng = rng
        self._browser = browser
        self._site = site
        self._address = address
        self._tabs: list[Tab] = []
        self.pushed = 0
        self.did: list[str] = []

    def step(self) -> None:
        """Does one of the possible things."""
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
        """Opens another tab."""
        self._tabs.append(self._browser.open(self._address))

    def push(self) -> None:
        """Pushes some fragments in a tab."""
        count = self._rng.randrange(1, 30)
        tab = self._rng.choice(self._tabs)
        tab.until_loaded()
        tab.run(PUSH, self.pushed, self.pushed + count, self._rng.choice((0, 500, 3000)))
        self.pushed += count

    def hide(self) -> None:
        """Hides all tabs."""
        self._browser.blank.show()

    def reload(self) -> None:
        """Reloads a tab."""
        self._rng.choice(self._tabs).reload()

    def close(self) -> None:
        """Closes a tab."""
        self._tabs.pop(self._rng.randrange(len(self._tabs))).close()

    def crash(self) -> None:
        """Crashes a tab, which cannot send anything any more."""
        self._tabs.pop(self._rng.randrange(len(self._tabs))).crash()

    def fail(self) -> None:
        """Makes the next posts fail."""
        self._site.faults.extend(self._rng.choices(FAULTS, k=self._rng.randrange(1, 4)))

    def offline(self) -> None:
        """Pushes without a network."""
        self._browser.offline()
        self.push()
        self._browser.online()

    def leave(self) -> None:
        """Closes all tabs."""
        for tab in self._tabs:
            tab.close()


@pytest.mark.parametrize("seed", range(3))
def test_random_visits_lose_and_repeat_nothing(
    browser: Browser, site: Site, pipeline: Pipeline, key: str, seed: int
) -> None:
    """Tabs are hidden, closed, and crash; requests, answers and beacons are lost, rejected, partly stored."""
    address = site.page(key=key, batch_ms=100)
    visitor = Visitor(random.Random(seed), browser, site, address)
    for _ in range(STEPS):
        visitor.step()
    site.faults.clear()
    visitor.leave()
    last = browser.open(site.page("/last", script=AFTER_A_LEASE, key=key, batch_ms=100))
    last.until_empty()
    pipeline.until_stored(key, visitor.pushed)

    assert len(set(visitor.did)) > 6
    assert_each_once(pipeline.sessions(key), visitor.pushed)
