"""A page of the console in a real browser: sizes, themes, what axe finds, and pictures of it."""

from __future__ import annotations

import base64
import gzip
import os
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any
from urllib.parse import urlsplit

from agent.tests.chromium import Browser, Tab

AXE = gzip.decompress((Path(__file__).parent / "axe" / "axe.min.js.gz").read_bytes()).decode()
PICTURES = Path(__file__).parents[2] / "build" / "console"
SIZES = ((360, 780), (720, 1024), (1440, 900), (2560, 1440))
THEMES = ("dark", "light")
MOST_TABS = 60
LISTEN = """
    window.seen = { readings: 0, said: [] };
    document.addEventListener("reading", () => { seen.readings += 1; }, true);
    new MutationObserver(() => {
      const text = document.querySelector("#announce")?.textContent;
      if (text && text !== seen.said.at(-1)) seen.said.push(text);
    }).observe(document, { childList: true, subtree: true, characterData: true });
"""
"""Runs before the scripts of each page: counts readings, and keeps all that screen readers hear."""
SHOWN = """[location.href, document.title, document.querySelector("[data-live=state]")?.dataset.name,
    window.seen, document.querySelector("main")?.innerText.slice(0, 1500)]"""
"""What a test that waits in vain says of the page."""
OUTSIDE = """
    const wide = document.documentElement.clientWidth, found = [];
    // what lies in a region that scrolls is reached by scrolling it
    const scrolling = ".scroll, .mapbox, .bar nav, pre";
    const scrolls = (element) => element.parentElement?.closest(scrolling);
    const look = (element, box, text) => {
      if (box.width < 2 || box.height < 2 || (box.left > -0.5 && box.right < wide + 0.5)) return;
      const name = element.localName + [...element.classList].map((one) => "." + one).join("");
      const [left, right] = [box.left, box.right].map(Math.round);
      found.push(`${name} from ${left} to ${right}: ${text.trim().slice(0, 60)}`);
    };
    const range = document.createRange();
    for (const element of document.querySelectorAll("header, header *, main *, footer, footer *")) {
      if (scrolls(element) || !element.checkVisibility({ visibilityProperty: true })) continue;
      look(element, element.getBoundingClientRect(), element.textContent);
      if (element.matches(scrolling)) continue;
      for (const node of element.childNodes)
        if (node.nodeType === Node.TEXT_NODE && node.textContent.trim()) {
          range.selectNode(node);
          for (const box of range.getClientRects()) look(element, box, node.textContent);
        }
    }
    return found;
"""
"""The elements and texts of which a part lies outside of the window, where nobody can see it."""
FAINT = """
    const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
    const rgba = (colour) => {
      canvas.clearRect(0, 0, 1, 1);
      canvas.fillStyle = colour;
      canvas.fillRect(0, 0, 1, 1);
      return [...canvas.getImageData(0, 0, 1, 1).data];
    };
    const linear = (part) => (part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4);
    const light = ([red, green, blue]) =>
      0.2126 * linear(red / 255) + 0.7152 * linear(green / 255) + 0.0722 * linear(blue / 255);
    const behind = (element) => {
      for (let at = element; at; at = at.parentElement) {
        const colour = rgba(getComputedStyle(at).backgroundColor);
        if (colour[3]) return colour;
      }
    };
    const found = [], texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    while (texts.nextNode()) {
      const text = texts.currentNode.data.trim(), element = texts.currentNode.parentElement;
      if (!text || !element.checkVisibility({ visibilityProperty: true })) continue;
      const style = getComputedStyle(element);
      if (parseFloat(style.fontSize) === 0 || element.matches("option, script, noscript")) continue;
      const ink = element instanceof SVGElement ? style.fill : style.color;
      const [more, less] = [rgba(ink), behind(element)].map(light).sort((a, b) => b - a);
      const contrast = (more + 0.05) / (less + 0.05);
      if (contrast < 4.5) found.push(`${element.localName} ${contrast.toFixed(1)}: ${text}`);
    }
    return found;
"""
"""The texts, also those of drawings, whose colour is too near to what is behind them: below 4.5 to 1."""


class Page:
    """One tab on control's console."""

    def __init__(self, browser: Browser, url: str) -> None:
        self._browser = browser
        self._url = url
        self._tab: Tab | None = None

    def go(self, path: str, state: str = "Live") -> None:
        """Opens a view; returns once it has heard from control, or is in another state than live."""
        self.visit(path)
        self.until(f"document.querySelector('[data-live=state]')?.dataset.name === '{state}'")
        if state == "Live":
            # a page says so from the start, before it is connected
            self.until("seen.readings > 0")

    def visit(self, path: str) -> None:
        """Opens a page that need not be one of the console's views."""
        if self._tab is None:
            self._tab = self._browser.open("about:blank")
            self._browser.driver.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": LISTEN})
        self._tab.go(self._url + path)

    def run(self, script: str, *given: object) -> Any:
        """The result of the script."""
        assert self._tab is not None
        return self._tab.run(script, *given)

    def run_async(self, script: str, *given: object) -> Any:
        """What the script passes to its last argument."""
        assert self._tab is not None
        self._tab.show()
        return self._browser.driver.execute_async_script(script, *given)

    def until(self, condition: str) -> None:
        """Waits until a JavaScript expression is true."""
        assert self._tab is not None
        self._tab.until(condition, SHOWN)

    def text(self, selector: str) -> str:
        """The visible text of the first element."""
        found: str = self.run("return document.querySelector(arguments[0]).innerText", selector)
        return found

    def start_run(self, job: str) -> None:
        """Starts a run by the console's form; returns on the run's page."""
        self.go(f"/console/actions/run?job={job}")
        self.fill("input[name=reason]", "a test")
        self.click("button.primary")
        self.until("location.pathname.startsWith('/console/runs/')")

    def press(self, *keys: str) -> None:
        """Presses keys, one after the other."""
        from selenium.webdriver.common.action_chains import ActionChains

        assert self._tab is not None
        self._tab.show()
        for key in keys:
            ActionChains(self._browser.driver).send_keys(key).perform()

    def tab_to(self, selector: str) -> None:
        """Presses Tab until the element has the focus. Fails if it never gets it."""
        from selenium.webdriver.common.keys import Keys

        for _ in range(MOST_TABS):
            if self.run("return document.activeElement.matches(arguments[0])", selector):
                return
            self.press(Keys.TAB)
        raise AssertionError(f"the keyboard does not reach {selector}")

    def click(self, selector: str) -> None:
        """Clicks on the first element."""
        self.run("document.querySelector(arguments[0]).click()", selector)

    def fill(self, selector: str, text: str) -> None:
        """Writes into a field."""
        self.run("document.querySelector(arguments[0]).value = arguments[1]", selector, text)

    def wear(
        self,
        theme: str,
        width: int,
        height: int,
        *,
        calm: bool = False,
        more: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """Gives the window a size, and the system a theme. `calm`: its owner wants little motion.

        `more`: other features of the system, such as `forced-colors`.
        """
        driver = self._browser.driver
        assert self._tab is not None
        self._tab.show()
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        features = [
            {"name": "prefers-color-scheme", "value": theme},
            {"name": "prefers-reduced-motion", "value": "reduce" if calm else "no-preference"},
            *({"name": name, "value": value} for name, value in more.items()),
        ]
        driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
        driver.execute_cdp_cmd("Emulation.setScrollbarsHidden", {"hidden": True})
        assert not self.run("return document.documentElement.dataset.theme"), "the page wears a chosen theme"

    def outside(self) -> list[str]:
        """What sticks out of the window, but for what lies in a region that scrolls by itself."""
        found: list[str] = self.run(OUTSIDE)
        return found

    def faint(self) -> list[str]:
        """The visible texts that can hardly be read."""
        found: list[str] = self.run(FAINT)
        return found

    def faults(self) -> list[str]:
        """What axe finds: each fault with the elements that have it."""
        if not self.run("return !!window.axe"):
            self._browser.driver.execute_cdp_cmd("Runtime.evaluate", {"expression": AXE})
        found = self.run_async("axe.run().then((result) => arguments[0](result.violations))")
        return [f"{one['id']}: {[node['html'][:160] for node in one['nodes'][:3]]}" for one in found]

    def check_everywhere(self, name: str) -> None:
        """The shown page fits every screen, and axe finds nothing; keeps pictures."""
        for width, height in SIZES:
            for theme in THEMES:
                self.wear(theme, width, height)
                assert self.outside() == [], (width, theme)
                assert self.faults() == [], (width, theme)
                self.picture(f"{name}-{theme}-{width}")

    def picture(self, name: str) -> None:
        """Keeps a picture of what is shown, as build/console/NAME.png, for `make pictures` alone."""
        if not os.environ.get("PICTURES"):
            return
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
        complaints = self._browser.complaints()
        assert not complaints, complaints
