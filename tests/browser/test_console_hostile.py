"""Every page with the worst texts and numbers, and with nothing to show."""

from __future__ import annotations

from urllib.parse import quote

from tests.browser import hostile
from tests.browser.page import Page

PAGES = {
    "overview": "/",
    "ownership": "/console/ownership",
    "stream": f"/console/streams/{hostile.STREAM}",
    "movements": "/console/movements",
    **{f"key-{n}": f"/console/sessions?find={quote(key)}" for n, key in enumerate(hostile.KEYS)},
    "finished": f"/console/sessions?find={hostile.FINISHED}",
    "records": f"/console/sessions?stream={hostile.STREAM}",
    "jobs": "/console/jobs",
    "audit": "/console/runs/r0",
    "failed-run": "/console/runs/r1",
    "run-a-job": "/console/actions/run?job=reports",
    "reports": "/console/reports",
    "groups": "/console/groups",
    "pause": "/console/actions/pause",
    "operations": "/console/operations",
    "queues": "/console/queues",
    "queue": "/console/queues/mail",
    "purge": "/console/queues/mail/purge",
}
SIZES = ((360, 780), (1440, 900))
HIDDEN_NUMBERS = """
    const found = [];
    for (const cell of document.querySelectorAll(arguments[0])) {
      const frame = cell.closest(".scroll").getBoundingClientRect(), box = cell.getBoundingClientRect();
      if (box.left < frame.left - 0.5 || box.right > frame.right + 0.5)
        found.push(`${cell.textContent} in ${cell.closest("[aria-label]").getAttribute("aria-label")}`);
    }
    return found;
"""
"""The numbers of tables that show only after scrolling to the side."""
TURNS_OTHERS = """
    const holds = (style) => style.unicodeBidi !== "normal" && style.unicodeBidi !== "embed";
    const isBlock = (style) => !style.display.startsWith("inline") || style.display === "inline-block";
    const found = [], texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    while (texts.nextNode()) {
      const text = texts.currentNode;
      if (!/[\\u0590-\\u08ff\\u202a-\\u202e]/.test(text.data)) continue;
      let at = text.parentElement;
      if (at.matches("option, script, title")) continue;
      while (!isBlock(getComputedStyle(at)) && !holds(getComputedStyle(at))) at = at.parentElement;
      // what stands alone in its block turns nothing but itself
      if (isBlock(getComputedStyle(at)) && at.textContent.trim() !== text.data.trim())
        found.push(`${at.localName}: ${at.textContent.trim().slice(0, 80)}`);
    }
    return found;
"""
"""The blocks in which a client's text may turn words of the console around."""
COVERED = """
    const found = [];
    for (const drawing of document.querySelectorAll("svg")) {
      const texts = [...drawing.querySelectorAll("text")].filter((one) => one.textContent.trim());
      texts.forEach((one, n) => texts.slice(n + 1).forEach((other) => {
        const [a, b] = [one, other].map((text) => text.getBoundingClientRect());
        const width = Math.min(a.right, b.right) - Math.max(a.left, b.left);
        const height = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
        if (width > 1 && height > 3) found.push(`${one.textContent} and ${other.textContent}`);
      }));
    }
    return found;
"""
"""The labels of drawings that cover each other."""


def test_no_text_of_a_client_hides_a_number_or_turns_the_words_around_it(hostile_page: Page) -> None:
    """Keys of 250 bytes, paths of two thousand, right-to-left text, piled-up marks, trillions: they wrap, and
    the page does not scroll sideways. On a wide window a table shows all of its numbers.
    """
    faults = list[str]()
    for name, path in PAGES.items():
        hostile_page.visit(path)
        for width, height in SIZES:
            hostile_page.wear("light", width, height)
            hostile_page.picture(f"hostile-{name}-{width}")
            numbers = ".scroll td.n" if width > 1000 else ".items td.n"
            found = {
                "hidden": hostile_page.run(HIDDEN_NUMBERS, numbers),
                "turned": hostile_page.run(TURNS_OTHERS),
                "covered": hostile_page.run(COVERED),
                "outside": hostile_page.outside(),
            }
            faults += [f"{name}, {width}: {what}: {one}" for what, every in found.items() for one in every]
    assert not faults, "\n".join(faults)


def test_a_control_without_any_data_has_every_page(empty_page: Page) -> None:
    """Each says what would fill it, and fits the smallest screen."""
    for view in ("ownership", "movements", "sessions", "jobs", "reports", "queues", "groups", "operations"):
        empty_page.visit(f"/console/{view}")
        empty_page.wear("light", *SIZES[0])
        empty_page.picture(f"empty-{view}")
        assert "There is no such page." not in empty_page.text("main"), view
        assert empty_page.outside() == [], view
