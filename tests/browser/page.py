"""A page of the console in a real browser: sizes, themes, what axe finds, and pictures of it."""

from __future__ import annotations

import base64
import gzip
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from agent.tests.chromium import Browser, Tab

AXE = gzip.decompress((Path(__file__).parent / "axe" / "axe.min.js.gz").read_bytes()).decode()
PICTURES = Path(__file__).parents[2] / "build" / "console"
SIZES = ((360, 780), (720, 1024), (1440, 900), (2560, 1440))
THEMES = ("dark", "light")


class Page:
    """One tab on control's console."""

    def __init__(self, browser: Browser, url: str) -> None:
        self._browser = browser
        self._url = url
        self._tab: Tab | None = None

    def go(self, path: str, state: str = "Live") -> None:
        """Opens a view; returns once it is live, or in another state."""
        if self._tab is None:
            self._tab = self._browser.open(self._url + path)
        else:
            self._tab.go(self._url + path)
        self.until(f"document.querySelector('[data-live=state]')?.dataset.name === '{state}'")

    def run(self, script: str, *given: object) -> Any:
        """The result of the script."""
        assert self._tab is not None
        return self._tab.run(script, *given)

    def until(self, condition: str) -> None:
        """Waits until a JavaScript expression is true."""
        assert self._tab is not None
        self._tab.until(condition)

    def text(self, selector: str) -> str:
        """The visible text of the first element."""
        found: str = self.run("return document.querySelector(arguments[0]).innerText", selector)
        return found

    def press(self, *keys: str) -> None:
        """Presses keys, one after the other."""
        from selenium.webdriver.common.action_chains import ActionChains

        assert self._tab is not None
        self._tab.show()
        for key in keys:
            ActionChains(self._browser.driver).send_keys(key).perform()

    def click(self, selector: str) -> None:
        """Clicks on the first element."""
        self.run("document.querySelector(arguments[0]).click()", selector)

    def fill(self, selector: str, text: str) -> None:
        """Writes into a field."""
        self.run("document.querySelector(arguments[0]).value = arguments[1]", selector, text)

    def wear(self, theme: str, width: int, height: int) -> None:
        """Gives the window a size, and the system a theme."""
        driver = self._browser.driver
        assert self._tab is not None
        self._tab.show()
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        features = [{"name": "prefers-color-scheme", "value": theme}]
        driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
        driver.execute_cdp_cmd("Emulation.setScrollbarsHidden", {"hidden": True})
        assert not self.run("return document.documentElement.dataset.theme"), "the page wears a chosen theme"

    def width(self) -> int:
        """How wide the page is, in pixels."""
        width: int = self.run("return document.documentElement.scrollWidth")
        return width

    def faults(self) -> list[str]:
        """What axe finds: each fault with the elements that have it."""
        if not self.run("return !!window.axe"):
            self._browser.driver.execute_cdp_cmd("Runtime.evaluate", {"expression": AXE})
        found = self._browser.driver.execute_async_script(
            "const done = arguments[0]; axe.run().then((result) => done(result.violations))"
        )
        return [f"{one['id']}: {[node['html'][:160] for node in one['nodes'][:3]]}" for one in found]

    def picture(self, name: str) -> None:
        """Keeps a picture of what is shown, as build/console/NAME.png."""
        PICTURES.mkdir(parents=True, exist_ok=True)
        shot = self._browser.driver.execute_cdp_cmd("Page.captureScreenshot", {"format": "png"})
        (PICTURES / f"{name}.png").write_bytes(base64.b64decode(shot["data"]))

    def block(self, *patterns: str) -> None:
        """Lets requests of these addresses fail from now on, and no others."""
        self._browser.driver.execute_cdp_cmd("Network.enable", {})
        self._browser.driver.execute_cdp_cmd("Network.setBlockedURLs", {"urls": list(patterns)})

    def forget_complaints(self) -> None:
        """Expects the errors so far: a service was away."""
        self._browser.complaints()

    def check(self) -> None:
        """Fails if the page had errors, or asked another host for anything. Forgets what a person chose."""
        if self._tab is None:
            return
        self.run("localStorage.clear()")
        asked = self.run("return performance.getEntriesByType('resource').map((entry) => entry.name)")
        strangers = [url for url in asked if urlsplit(url).netloc != urlsplit(self._url).netloc]
        assert not strangers
        assert not self._browser.complaints()
