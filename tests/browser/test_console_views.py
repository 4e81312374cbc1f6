"""Every view, at four sizes and in both themes: nothing sticks out, and axe finds nothing."""

from __future__ import annotations

import pytest

from tests.browser.page import SIZES, THEMES, Page

VIEWS = {
    "overview": "/",
    "ownership": "/console/ownership",
    "by-stream": "/console/ownership?by=streams",
    "stream": "/console/streams/3",
    "movements": "/console/movements?since=all",
    "sessions": "/console/sessions?find=visitor-3",
    "records": "/console/sessions?stream=3",
    "jobs": "/console/jobs",
    "run-a-job": "/console/actions/run?job=reports",
    "reports": "/console/reports",
    "drain": "/console/actions/drain?member=consumer-1",
    "operations": "/console/operations",
    "queues": "/console/queues",
    "queue": "/console/queues/mail",
    "purge": "/console/queues/mail/purge",
}


@pytest.mark.parametrize("name", VIEWS)
def test_a_view_fits_every_screen_and_serves_everybody(page: Page, name: str) -> None:
    """No sideways scrolling of the whole page from 360 to 2,560 px; no fault of accessibility."""
    page.go(VIEWS[name])
    for width, height in SIZES:
        for theme in THEMES:
            page.wear(theme, width, height)
            assert page.width() <= width, (width, theme)
            assert page.faults() == [], (width, theme)
            page.picture(f"{name}-{theme}-{width}")
