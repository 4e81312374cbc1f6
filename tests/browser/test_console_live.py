"""The console in use: it keeps itself current, can be paused, and is used from the keyboard."""

from __future__ import annotations

import pytest
from selenium.webdriver.common.keys import Keys

from tests.browser.baton import STREAMS, RunningBaton
from tests.browser.page import Page
from tests.browser.test_console_scale import WATCH

OWNERSHIP = "/console/ownership"
ROW = "document.querySelector('#b{stream}').closest('[data-member]').dataset.member"


def test_a_stream_that_moves_is_seen_moving(page: Page, baton: RunningBaton) -> None:
    """Its bead slides to its row, is ringed, and says how long it stood still; the list of moves grows."""
    page.go(OWNERSHIP)
    page.run(WATCH)
    page.run("window.bead = document.querySelector('#b3')")
    rows = "[...document.querySelectorAll('#moved tbody tr')].map((row) => row.innerText)"
    page.run(f"window.before = {rows}")
    target = baton.move(3)
    page.until(f"{ROW.format(stream=3)} === '{target}'")
    page.until("document.querySelector('.flag')")
    assert ["trail", 420, "transform"] in page.run("return glided")
    assert page.run("return window.bead === document.querySelector('#b3')"), "the page was drawn again"
    assert page.text(".flag").endswith("s")
    # the other way goes another stream, so that the shares stay even; the page may hear of that one first
    show_newer = "document.querySelector('[data-newer]:not([hidden])')?.click()"
    is_new = f"text.includes('pinned to {target}') && !before.includes(text)"
    page.until(f"({show_newer}, {rows}.some((text) => {is_new}))")
    # it may have been said, and another message after it
    page.until("seen.said.some((text) => /^Streams? .*\\b3\\b.* moved/.test(text))")


def test_the_page_of_a_stream_follows_a_move(page: Page, baton: RunningBaton) -> None:
    """Its table of owners and its buttons too, which no message carries."""
    page.go("/console/streams/7")
    rows = "document.querySelectorAll('#owners tbody tr').length"
    before = page.run(f"return {rows}")
    target = baton.move(7)
    page.until(f"document.querySelector('#stream .acts').textContent.includes('Drain {target}…')")
    page.until(f"{rows} === {min(before + 1, 10)}")
    assert page.text("#owners tbody td:nth-child(2)") == target


def test_a_paused_page_changes_only_when_it_goes_on(page: Page, baton: RunningBaton) -> None:
    """Paused keeps the newest reading, and says how many changes wait."""
    page.go(OWNERSHIP)
    page.press("p")
    before = page.run(f"return {ROW.format(stream=5)}")
    target = baton.move(5)
    page.until("document.querySelector('#strip').textContent.includes('wait')")
    assert page.faults() == []
    assert page.run(f"return {ROW.format(stream=5)}") == before
    page.press("p")
    page.until(f"{ROW.format(stream=5)} === '{target}'")


def test_a_page_says_that_it_hears_nothing_and_goes_on_with_the_next_control(
    page: Page, baton: RunningBaton
) -> None:
    """Nothing old looks new; the connection comes back by itself."""
    page.go(OWNERSHIP)
    baton.services["control"].end()
    page.until("document.querySelector('[data-live=state]').dataset.name === 'Stale'")
    said = page.text("#strip")
    baton.services["control"].start()
    page.until("document.querySelector('[data-live=state]').dataset.name === 'Live'")
    page.forget_complaints()
    assert "No word from control" in said


def test_a_page_says_that_control_reads_something_no_more(page: Page) -> None:
    """That is another silence than control's own, and the numbers are as old."""
    page.go(OWNERSHIP)
    page.run(
        "const feed = document.querySelector('#feed');"
        "const data = JSON.stringify({ shape: feed.dataset.shape, stale_ms: 60000 });"
        "setInterval(() => feed.dispatchEvent(new CustomEvent('reading', { detail: { data } })), 20)"
    )
    page.until(
        "/^Control cannot read everything: .* 60 s old/.test(document.querySelector('#strip').innerText)"
    )


def test_a_page_whose_first_connection_fails_tries_again(page: Page) -> None:
    """Control may be too busy for one more page, or away for a moment."""
    page.go("/")
    page.block("*/live*")
    page.go(OWNERSHIP, state="Stale")
    page.block()
    page.until("document.querySelector('[data-live=state]').dataset.name === 'Live'")
    page.forget_complaints()


def test_the_legend_leaves_the_streams_of_one_step(page: Page) -> None:
    """The others fade; a second click brings them back."""
    page.go(f"{OWNERSHIP}?colour=open")
    count = "document.querySelectorAll('.bead').length"
    faded = "[...document.querySelectorAll('.bead')].filter((b) => getComputedStyle(b).opacity < 1).length"
    step = "[...document.querySelectorAll('.legend button')].find((b) => b.querySelector('b').textContent)"
    shown = page.run(f"const step = {step}; step.click(); return Number(step.innerText.split(/\\s/)[0])")
    assert page.run(f"return {count} - {faded}") == shown
    page.run(f"{step}.click()")
    assert page.run(f"return {faded}") == 0


def test_the_map_is_one_tab_stop_and_is_walked_by_arrows(page: Page) -> None:
    """Home and End reach the first and the last stream, Enter opens it, brackets go to its neighbours."""
    page.go(OWNERSHIP)
    assert page.run("return document.querySelectorAll('.bead[tabindex=\"0\"]').length") == 1
    page.run("document.querySelector('.bead[tabindex=\"0\"]').focus()")
    page.press(Keys.END)
    assert page.run("return document.activeElement.id") == f"b{STREAMS - 1}"
    page.press(Keys.HOME, Keys.ARROW_RIGHT)
    assert page.run("return document.activeElement.id") == "b1"
    assert "Stream 1" in page.text("#tip")
    names = page.run("return [...document.querySelectorAll('#tip dt')].map((name) => name.textContent)")
    assert names[:4] == ["Owner", "Lag", "Fragments/s", "Open sessions"]
    page.picture("tip-light-1440")
    page.press(Keys.ENTER)
    page.until("location.pathname === '/console/streams/1'")
    page.press("]")
    page.until("location.pathname === '/console/streams/2'")


def test_the_hour_of_lag_wears_the_warning_colour_while_a_stream_falls_behind(page: Page) -> None:
    """The other hours do not; a reading that says otherwise takes it away with the next hour."""
    painted = """
        const canvas = document.querySelector(`[data-series=${arguments[0]}] canvas`);
        const probe = document.createElement("i");
        probe.style.color = "var(--warn)";
        document.body.append(probe);
        const warn = getComputedStyle(probe).color.match(/[0-9]+/g).slice(0, 3).map(Number);
        const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
        for (let at = 0; at < data.length; at += 4)
          if (warn.every((part, n) => data[at + n] === part) && data[at + 3] === 255) return true;
        return false;
    """
    page.go("/")
    page.until("document.querySelector('[data-series=open_sessions] canvas')")
    assert not page.run(painted, "lag")
    # another theme draws the hours anew
    page.run("document.querySelector('[data-is-bad]').textContent = 'WARN'")
    page.run("document.documentElement.dataset.theme = 'dark'")
    page.until(f"(function () {{ {painted} }})('lag')")
    assert not page.run(painted, "open_sessions")
    page.picture("lag-dark-1440")


@pytest.mark.parametrize("width", [720, 900, 1024, 1200, 1399, 1400])
def test_a_bead_shows_its_whole_number_at_any_width(page: Page, width: int) -> None:
    """A number that is cut looks like another one: the ends of the rows give way first."""
    page.go(OWNERSHIP)
    page.wear("dark", width, 900)
    beads = "[...document.querySelectorAll('.bead')]"
    narrow = f"{beads}.filter((b) => b.scrollWidth > b.clientWidth || b.clientWidth < 24)"
    assert page.run(f"return {narrow}.length") == 0


def test_the_theme_that_a_person_chose_stays(page: Page) -> None:
    """On the next page too."""
    page.go("/")
    page.wear("light", 1440, 900)
    page.press("t")
    page.press("3")
    page.until("location.pathname === '/console/movements'")
    assert page.run("return document.documentElement.dataset.theme") == "dark"


def test_filters_are_in_the_address(page: Page, baton: RunningBaton) -> None:
    """A found stream is the only row of the table; a choice of colour survives a reload."""
    page.go(f"{OWNERSHIP}?find=7&colour=open")
    assert page.run(
        "return [...document.querySelectorAll('#streams tbody tr')].map((r) => r.dataset.stream)"
    ) == ["7"]
    assert page.run("return document.querySelector('#b7').className").startswith("bead a")
    page.click("input[name=colour][value=lag]")
    page.until("new URLSearchParams(location.search).get('colour') === 'lag'")
    assert "find=7" in page.run("return location.search")


def test_streams_by_number_keep_their_places_and_show_whose_they_are(page: Page, baton: RunningBaton) -> None:
    """Choosing a member outlines its streams; one that moves is ringed where it stands."""
    page.go(f"{OWNERSHIP}?by=streams&find=consumer-1")
    outlined = "[...document.querySelectorAll('.bead.chosen')].map((bead) => Number(bead.id.slice(1)))"
    owned = [row["stream"] for row in baton.streams()["streams"] if row["owner"] == "consumer-1"]
    assert page.run(f"return {outlined}") == owned
    target = baton.move(9)
    page.until(f"document.querySelector('#b9').dataset.owner === '{target}'")
    assert page.run("return [...document.querySelectorAll('.bead')].map((b) => b.id)")[9] == "b9"
