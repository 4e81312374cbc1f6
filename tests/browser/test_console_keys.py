"""The console's single keys: rows, acts, the list of keys; silent in fields, and switched off on demand."""

from __future__ import annotations

from selenium.webdriver.common.keys import Keys

from tests.browser.baton import RunningBaton
from tests.browser.page import Page

OWNERSHIP = "/console/ownership"
CHOSEN = "return [...document.querySelectorAll('tr.chosen')].map((row) => row.sectionRowIndex)"
IS_OPEN = "return document.querySelector('#keys').open"


def test_j_and_k_go_through_the_rows_of_a_table(page: Page) -> None:
    """One row is chosen, and its link has the focus, so Enter opens it."""
    page.go(OWNERSHIP)
    chosen = []
    for key in "jjkk":
        page.press(key)
        chosen += page.run(CHOSEN)
    assert chosen == [0, 1, 0, 0]
    stream = page.run("return document.querySelector('tr.chosen').dataset.stream")
    page.press(Keys.ENTER)
    page.until(f"location.pathname === '/console/streams/{stream}'")


def test_d_drains_the_member_on_which_the_focus_is(page: Page, baton: RunningBaton) -> None:
    """It only leads to the dry run; without a member in focus, the page asks which one."""
    page.go(OWNERSHIP)
    page.press("d")
    page.until("location.pathname === '/console/actions/drain' && document.querySelector('[name=member]')")
    page.go(OWNERSHIP)
    page.run("document.querySelector('[data-member=consumer-1] .bead').focus()")
    page.press("d")
    page.until("location.pathname === '/console/actions/drain' && document.querySelector('.lead')")
    assert "consumer-1" in page.text(".lead")
    assert "consumer-1" in baton.owners(), "nothing has happened"


def test_the_question_mark_lists_the_keys_and_escape_closes_what_is_open(page: Page) -> None:
    """While the list is open, no other key acts. Esc also closes the tip of a bead."""
    page.go(OWNERSHIP)
    page.press("?")
    assert page.run(IS_OPEN)
    page.press("3", "d", Keys.ESCAPE)
    assert not page.run(IS_OPEN)
    page.run("document.querySelector('.bead[tabindex=\"0\"]').focus()")
    assert not page.run("return document.querySelector('#tip').hidden")
    page.press(Keys.ESCAPE)
    assert page.run("return document.querySelector('#tip').hidden")
    assert page.run("return location.pathname") == OWNERSHIP


def test_single_keys_are_silent_in_fields(page: Page) -> None:
    """What is typed is text there."""
    page.go(OWNERSHIP)
    page.press("/", *"3tdj?")
    assert page.run("return document.querySelector('#find').value") == "3tdj?"
    assert page.run(CHOSEN) == []
    assert not page.run(IS_OPEN)
    assert page.run("return [location.pathname, document.documentElement.dataset.theme]") == [OWNERSHIP, None]


def test_single_keys_that_are_switched_off_stay_off(page: Page) -> None:
    """On the next page too, until they are switched on again; Tab and arrows go on working."""
    page.go(OWNERSHIP)
    page.press("?")
    page.click("#keys-off")
    page.press(Keys.ESCAPE, "j", "3")
    page.go(OWNERSHIP)
    page.press("j", "3", "t", "?")
    assert page.run(CHOSEN) == []
    assert not page.run(IS_OPEN)
    assert page.run("return location.pathname") == OWNERSHIP
    page.run("document.querySelector('.bead[tabindex=\"0\"]').focus()")
    page.press(Keys.ARROW_RIGHT)
    assert page.run("return document.activeElement.id") == "b1"

    page.click("#keys-switch")
    page.click("#keys-off")
    page.press(Keys.ESCAPE, "j")
    assert page.run(CHOSEN) == [0]
