"""The console finds keys: typed into its field, and from the page of a stream."""

from __future__ import annotations

from selenium.webdriver.common.keys import Keys

from tests.browser.page import Page

OPEN = "document.querySelector('.card h2')?.textContent.startsWith('Open now')"


def test_a_key_is_found_with_its_open_session_and_its_fragments(page: Page) -> None:
    """The slash leads into the field. The owner answers, and the lake has finished ones."""
    page.go("/console/sessions")
    page.press("/", *"visitor-7", Keys.ENTER)
    page.until(OPEN)

    assert "key visitor-7" in page.text(".chain")
    assert '"key":"visitor-7"' in page.text("main")
    assert int(page.run("return document.querySelectorAll('[aria-label=Fragments] tbody tr').length")) >= 3


def test_the_oldest_session_of_a_stream_leads_to_its_key(page: Page) -> None:
    """From the page of the stream to the session, and back to the same stream."""
    page.go("/console/streams/4")
    key = page.text("[aria-label='Oldest open sessions'] a")
    page.click("[aria-label='Oldest open sessions'] a")
    page.until(OPEN)
    assert key in page.text(".chain")
    page.click(".chain a")
    page.until("location.pathname === '/console/streams/4'")
