"""A real Chromium logs in to a real server of control: what in-process tests cannot know about browsers."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from selenium.webdriver.common.by import By

from agent.tests import chromium
from agent.tests.chromium import Browser, Tab, find_programs
from services.control.http.api.access.access import Access
from services.control.http.api.access.tokens import Tokens
from shared.server.face import Face
from shared.server.listener import http_server
from tests.servers import free_port
from tests.unit.control.http.test_app import InMemoryRunner, app_of
from tests.unit.control.sources import small_baton

TOKEN = "0123456789abcdef"
PROGRAMS = find_programs()
pytestmark = pytest.mark.skipif(PROGRAMS is None, reason="there is no Chromium with its driver here")
POST = "return fetch(arguments[0], {method: 'POST'}).then(answer => answer.status)"
FOREIGN_POST = "return fetch(arguments[0], {method: 'POST', mode: 'no-cors'}).then(answer => answer.type)"


async def test_a_browser_logs_in_acts_and_logs_out(tmp_path: Path) -> None:
    """By the form alone: control accepts what Chromium sends with it, and no script reads the cookie."""
    (tmp_path / "tokens").write_text(f"{TOKEN} operate name=ann\n")
    access = Access(Tokens(tmp_path / "tokens"))
    await access.step()
    runner, port = InMemoryRunner(), free_port()
    app = await app_of(small_baton(), runner, access=access)

    async with http_server(Face(app), "127.0.0.1", port):
        await asyncio.to_thread(log_in_act_and_log_out, f"http://127.0.0.1:{port}")

    # the one of control's own page, not that of the other site
    assert [submission.job for submission in runner.submissions] == ["reports"]


def log_in_act_and_log_out(url: str) -> None:
    assert PROGRAMS is not None
    with chromium.browser(PROGRAMS) as browser:
        tab = browser.open(f"{url}/members?group=default")
        submit(browser, tab, "wrong-0123456789")
        tab.until("document.querySelector('[role=alert]')?.textContent.includes('no longer, in force')")
        submit(browser, tab, TOKEN)
        tab.until("location.pathname == '/members'")
        place, cookie = tab.run("return [location.href, document.cookie]")

        # the same server by another name is another site
        elsewhere = browser.open(f"{url.replace('127.0.0.1', 'localhost')}/livez")
        elsewhere.run(FOREIGN_POST, f"{url}/jobs/lake/runs")
        acted = tab.run(POST, "/jobs/reports/runs")
        left = tab.run(POST, "/logout")
        tab.go(f"{url}/members")

        assert (place, cookie) == (f"{url}/members?group=default", "")
        assert (acted, left) == (202, 200)
        assert tab.run("return location.pathname") == "/login"
        assert [one for one in browser.complaints() if "Content Security Policy" in one] == []


def submit(browser: Browser, tab: Tab, token: str) -> None:
    """Types the token into the form and sends it."""
    tab.show()
    browser.driver.find_element(By.ID, "token").send_keys(token)
    browser.driver.find_element(By.TAG_NAME, "button").click()
