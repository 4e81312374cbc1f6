"""Queues in the browser: they are seen live, redriven and purged after a dry run, and say who did it."""

from __future__ import annotations

from tests.browser.baton import QUEUE, RunningBaton
from tests.browser.page import Page

CELL = "document.querySelector('dl[data-queue] [data-c=\"{at}\"]')?.innerText === '{text}'"
READY, DEAD = 0, 3


def test_a_queue_is_seen_live_redriven_and_purged(page: Page, baton: RunningBaton) -> None:
    """Nothing happens before a confirmation. An item that is put appears without a reload."""
    before = baton.queue()
    page.go(f"/console/queues/{QUEUE}")
    assert page.text("#letters tbody").count("no such address") == before["dead"]
    page.run("window.isSame = true")
    baton.put_items(2)
    page.until(CELL.format(at=READY, text=before["ready"] + 2))
    assert page.run("return window.isSame"), "the page was not loaded again"

    act(page, "redrive", f"{before['dead']} dead letters would be put back into the queue")
    page.until(CELL.format(at=DEAD, text=0))
    assert baton.queue()["ready"] == before["ready"] + 2 + before["dead"]

    items = before["ready"] + before["leased"] + 2 + before["dead"]
    act(page, "purge", f"{items} items would be dropped")
    page.until(CELL.format(at=READY, text=0))
    page.until("document.querySelector('#acted')?.innerText.includes('redrive mail')")
    assert baton.queue()["ready"] == 0
    baton.fill_queue()


def act(page: Page, what: str, would: str) -> None:
    """Goes from the queue's page through the dry run and the confirmation, and back."""
    page.click(f"a[href*='/{QUEUE}/{what}?']")
    page.until(f"location.pathname.endsWith('/{what}') && document.querySelector('.lead')")
    assert would in page.text(".lead")
    assert f"baton queue {what} {QUEUE}" in page.text("main")
    page.fill("input[name=reason]", "a test")
    page.click("button.primary")
    page.until("location.search.includes('did=') && document.querySelector('[role=status].text')")
