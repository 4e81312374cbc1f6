"""Acts in the browser: the dry run first, then a confirmation with a reason, then it is followed."""

from __future__ import annotations

import pytest
from selenium.webdriver.common.keys import Keys

from tests.browser.baton import RunningBaton
from tests.browser.page import Page

TRIES = 5
"""Of a drain: right after the start streams may still move, and then what was shown is refused."""
OWNER = "document.querySelector('#b{stream}').closest('[data-member]').dataset.member"


def test_a_drain_is_shown_then_done_and_followed(page: Page, baton: RunningBaton) -> None:
    """Nothing happens before the confirmation. At the end the member owns nothing, and all were warm."""
    is_answered = "location.pathname.startsWith('/console/operations')"
    is_begun = "location.pathname.startsWith('/console/operations/')"
    for _ in range(TRIES):
        page.go("/console/actions/drain?member=consumer-2")
        assert "would hand over" in page.text(".lead")
        assert "baton drain consumer-2" in page.text("main")
        assert "consumer-2" in baton.owners(), "nothing has happened yet"
        page.fill("input[name=reason]", "a test")
        page.click("button.primary")
        page.until(f"{is_answered} && document.querySelector('main')")
        if page.run(f"return {is_begun}"):
            break
        assert "plan-changed" in page.text("main")
        page.forget_complaints()  # of the status 409
    page.until(is_begun)
    page.until("document.querySelector('.following').dataset.drawn.startsWith('done')")
    assert "consumer-2" not in baton.owners()
    assert "replayed" not in page.text("#moves")
    page.until("document.querySelectorAll('#moves tbody tr:not(:has(.pause svg))').length === 0")
    page.check_everywhere("followed")
    baton.come_back("consumer-2")


def test_a_plan_that_has_changed_is_refused_on_a_page_that_serves_everybody(page: Page) -> None:
    """It says what did not happen, and leads back to the dry run."""
    page.go("/console/actions/rebalance")
    page.fill("input[name=if_plan]", "one of before")
    page.fill("input[name=reason]", "a test")
    page.click("button.primary")
    page.until("document.querySelector('main [role=alert]')")
    assert "nothing was done" in page.text("h1")
    assert "plan-changed" in page.text("main")
    page.check_everywhere("refused")
    page.click("main a.button")
    page.until("location.pathname === '/console/actions/rebalance'")
    page.forget_complaints()  # of the status 409


def test_a_stream_is_moved_by_the_keyboard_alone(page: Page, baton: RunningBaton) -> None:
    """From its page to the dry run, the reason and the end, without a pointer."""
    owner = baton.streams()["streams"][7]["owner"]
    target = "consumer-1" if owner != "consumer-1" else "consumer-0"
    page.go("/console/streams/7")
    page.press("m")
    page.until("location.pathname === '/console/actions/move' && document.querySelector('[name=to]')")
    page.tab_to("[name=to]")
    page.press(target)
    page.tab_to("main form button")
    page.press(Keys.ENTER)
    page.until("document.querySelector('[name=reason]')")
    page.tab_to("[name=reason]")
    page.press("by keys", Keys.ENTER)
    page.until("location.pathname.startsWith('/console/operations/')")
    page.until("document.querySelector('.following').dataset.drawn.startsWith('done')")

    assert baton.streams()["streams"][7]["owner"] == target


def test_who_paused_the_group_and_why_is_seen_on_the_first_page(page: Page) -> None:
    """A paused group is a problem until it is resumed."""
    page.go("/console/actions/pause")
    page.fill("input[name=reason]", "an inventory")
    page.click("button.primary")
    page.until("location.pathname.startsWith('/console/operations/')")
    page.until("document.querySelector('.following').dataset.drawn.startsWith('done')")
    page.go("/")
    page.until("document.querySelector('.problems')?.innerText.includes('is paused')")
    page.go("/console/actions/resume")
    page.fill("input[name=reason]", "it is over")
    page.click("button.primary")
    page.until("document.querySelector('.following')?.dataset.drawn.startsWith('done')")


@pytest.mark.usefixtures("spark_jars")
def test_a_run_is_started_seen_and_cancelled(page: Page) -> None:
    """Its page keeps itself current, and says how it ended; the first page lists it."""
    page.start_run("lake")
    page.until("document.querySelector('#cancel')")
    page.until("document.querySelector('.following [role=progressbar]').ariaValueText")
    page.fill("#cancel input[name=reason]", "a test")
    page.click("#cancel button")
    page.until("document.querySelector('.following').dataset.drawn === 'cancelled'")
    assert "cancelled" in page.text(".lead").lower()
    page.go("/")
    assert "cancelled" in page.text("#runs")
