"""A real Chromium, driven over WebDriver: tabs are opened, hidden, closed, reloaded, crashed, and offline."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from selenium import webdriver
from selenium.common.exceptions import WebDriverException
from selenium.webdriver.chrome.service import Service

from agent.tests.pipeline import DEADLINE_S, until

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")
OPTIONS = (
    "--headless=new",
    "--no-sandbox",  # CI runs as root, which cannot have one
    "--disable-dev-shm-usage",  # containers only have 64 MB of it
    "--disable-gpu",
    "--no-proxy-server",
    "--no-first-run",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Programs:
    """The browser and its driver, by path."""

    browser: str
    driver: str


def find_programs() -> Programs | None:
    """Chromium and its driver from the PATH; None if one is missing."""
    browser = next((found for name in BROWSERS if (found := shutil.which(name))), None)
    driver = shutil.which("chromedriver")
    return Programs(browser=browser, driver=driver) if browser and driver else None


class Tab:
    """One tab; every method first makes it the visible one."""

    def __init__(self, browser: Browser, handle: str) -> None:
        self._browser = browser
        self._driver = browser.driver
        self.handle = handle

    def show(self) -> None:
        """Makes it the visible tab of the window, which hides the one before."""
        if self._browser.shown != self.handle:
            self._driver.switch_to.window(self.handle)
            self._browser.shown = self.handle

    def go(self, url: str) -> None:
        """Loads a page as a link does: the previous page goes away."""
        self.show()
        self._driver.get(url)

    def reload(self) -> None:
        """Reloads the page."""
        self.show()
        self._driver.refresh()

    def back(self) -> None:
        """Goes back to the previous page, as the browser's button does."""
        self.show()
        self._driver.back()

    def run(self, script: str, *given: object) -> Any:
        """The result of the script; `given` are its `arguments`."""
        self.show()
        return self._driver.execute_script(script, *given)

    def until(self, condition: str, shown: str = "[window.events, window.baton && baton.counts]") -> None:
        """Waits until a JavaScript expression is true. If it never is, the failure shows another one."""
        until(
            lambda: self.run(f"return !!({condition})"),
            lambda: f"never: {condition}: {self.run(f'return {shown}')}",
        )

    def until_loaded(self) -> None:
        """Waits until the agent runs."""
        self.until("window.baton && baton.flush")

    def until_empty(self) -> None:
        """Waits until every queued fragment has been settled."""
        self.until_loaded()
        settled = "baton.counts.acknowledged + baton.counts.presumed + baton.counts.rejected"
        self.until(f"baton.counts.queued === {settled}")

    def flush(self) -> None:
        """Sends what is queued, and waits until all of it has been settled."""
        self.run("baton.flush()")
        self.until_empty()

    def close(self) -> None:
        """Closes it, as a visitor does."""
        self.show()
        self._driver.close()
        self._browser.shown = ""

    def crash(self) -> None:
        """Kills its renderer: the page cannot send anything any more."""
        self.show()
        with contextlib.suppress(WebDriverException):
            self._driver.execute_cdp_cmd("Page.crash", {})
        with contextlib.suppress(WebDriverException):
            self._driver.close()
        self._browser.shown = ""


class Browser:
    """A running browser; `blank` is a tab without a site, which hides the others when it is shown."""

    def __init__(self, driver: webdriver.Chrome) -> None:
        self.driver = driver
        self.shown = driver.current_window_handle
        self.blank = Tab(self, self.shown)

    def open(self, url: str) -> Tab:
        """Opens a page in a new tab; the agent may still be loading."""
        self.blank.show()
        self.driver.switch_to.new_window("tab")
        self.shown = self.driver.current_window_handle
        tab = Tab(self, self.shown)
        tab.go(url)
        return tab

    def visit(self, url: str) -> Tab:
        """Opens a page in a new tab; returns once the agent runs."""
        tab = self.open(url)
        tab.until_loaded()
        return tab

    def offline(self) -> None:
        """Disconnects all pages from the network; they notice."""
        if not self.shown:
            self.blank.show()
        self.driver.set_network_conditions(offline=True, latency=0, throughput=-1)

    def online(self) -> None:
        """Reconnects all pages."""
        if not self.shown:
            self.blank.show()
        self.driver.delete_network_conditions()

    def complaints(self) -> list[str]:
        """The errors and warnings in its console since the last call."""
        return [entry["message"] for entry in self.driver.get_log("browser")]  # type: ignore[no-untyped-call]

    def close_tabs(self) -> None:
        """Closes all tabs but the blank one."""
        for handle in self.driver.window_handles:
            if handle != self.blank.handle:
                Tab(self, handle).close()
        self.blank.show()


@contextlib.contextmanager
def browser(programs: Programs, **preferences: object) -> Iterator[Browser]:
    """Runs a browser with a new profile and these preferences for the block."""
    options = webdriver.ChromeOptions()
    options.binary_location = programs.browser
    for option in OPTIONS:
        options.add_argument(option)
    options.add_experimental_option("prefs", preferences)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(programs.driver))
    try:
        driver.set_script_timeout(DEADLINE_S)
        driver.set_page_load_timeout(60)
        yield Browser(driver)
    finally:
        driver.quit()
