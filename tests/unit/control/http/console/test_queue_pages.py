"""The pages of queues without a browser: what they say, what they hide, and how they act."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path

import httpx
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.control.core.history.hour import SLOTS, STEP_MS
from services.control.core.history.queue_history import QueueHistory
from services.control.core.queues import QueueRow, QueueSettings
from services.control.http.console.live.snapshots import Painter
from services.control.http.console.shown.queues import (
    SPARK_HEIGHT,
    SPARK_WIDTH,
    queue_cells,
    queue_sentence,
    queues_drawn,
    queues_sentence,
    spark,
)
from services.control.live.feed.feed import EventFeed
from shared.model.events import Event
from tests.unit.control.http.api.access.test_roles import HERE, TOKENS, access_to
from tests.unit.control.http.console.browser import ORIGIN, Page, page_at, posted
from tests.unit.control.http.console.scenes import scene_with, stream_row
from tests.unit.control.http.test_app import InMemoryRunner, app_of, app_on
from tests.unit.control.sources import MAIL, Sources, small_baton

QUEUE = "/console/queues/mail"
_NUMBERS = st.lists(st.none() | st.integers(0, 10**9), min_size=SLOTS, max_size=SLOTS)


@dataclass
class QueueDesk:
    """A browser at the control of the small Baton."""

    sources: Sources
    events: list[Event]
    http: httpx.AsyncClient

    async def get(self, path: str) -> Page:
        return await page_at(self.http, path)


async def desk(folder: Path, role: str = "admin") -> QueueDesk:
    """A desk of somebody with this role."""
    sources, events = small_baton(), list[Event]()
    access = await access_to(folder)
    app = await app_of(sources, InMemoryRunner(), access=access, events=events)
    headers = ORIGIN | {"authorization": f"Bearer {TOKENS[role]}"}  # type: ignore[index]
    transport = httpx.ASGITransport(app, client=HERE)
    return QueueDesk(
        sources, events, httpx.AsyncClient(transport=transport, base_url="http://control", headers=headers)
    )


def history_of(depth: list[float | None]) -> QueueHistory:
    """An hour with this depth, and nothing else."""
    none: list[float | None] = [None] * SLOTS
    return QueueHistory(
        queue="q",
        from_=0,
        step_ms=STEP_MS,
        depth=depth,
        ready=none,
        leased=none,
        waiting=none,
        dead=none,
        oldest_age_s=none,
    )


async def test_the_list_shows_what_each_queue_holds(tmp_path: Path) -> None:
    """With a link to its page, and the last hour in words for those who do not see it."""
    at = await desk(tmp_path, "view")
    page = await at.get("/console/queues")
    none = await at.get("/console/queues?find=zzz")

    assert "1 queue with 8 items to be done. 3 dead letters wait for a look, in mail." in page.text
    assert "mail 5 2 1 3 90 s" in page.text
    assert [href for href in page.values("a", "href") if "/console/queues/mail" in href] == [
        "/console/queues/mail?group=default"
    ]
    assert "mail, items to be done in the last hour: at most 8" in page.values("svg", "aria-label")
    assert "mail 5 2" not in none.text


async def test_a_queues_page_shows_its_dead_letters_and_escapes_them(tmp_path: Path) -> None:
    """With why, attempts and the begin of the data, as text."""
    page = await (await desk(tmp_path, "view")).get(QUEUE)

    assert "Ready 5 Leased 2 Waiting 1 Dead letters 3 Oldest item 90 s" in page.text
    assert 'no such user 2 welcome-17 mail/0/17 13 B {"to": "<b>"}' in page.text
    assert "<b>" not in page.html
    assert "A lease 30.0 s" in page.text
    assert page.elements.get("form", [])[0]["class"] == "group", "nothing acts on it"


@pytest.mark.parametrize(
    ("role", "acts"), [("view", []), ("operate", ["redrive"]), ("admin", ["redrive", "purge"])]
)
async def test_who_may_not_act_sees_what_would_happen_but_no_form(
    role: str, acts: list[str], tmp_path: Path
) -> None:
    """A redrive needs `operate`, a purge `admin`, as at the gate."""
    at = await desk(tmp_path, role)
    shown = (await at.get(QUEUE)).values("a", "href")

    assert [act for act in ("redrive", "purge") if any(f"{QUEUE}/{act}?" in href for href in shown)] == acts
    for act in ("redrive", "purge"):
        page = await at.get(f"{QUEUE}/{act}")
        assert page.status == 200
        assert ("reason" in page.values("input", "name")) is (act in acts)
        assert ("needs a token with the role" in page.text) is (act not in acts)
    assert at.sources.queues.acts == []


async def test_a_purge_is_shown_confirmed_and_remembered(tmp_path: Path) -> None:
    """The dry run first; then the form with a reason acts once, however often it is sent."""
    at = await desk(tmp_path)
    page = await at.get(f"{QUEUE}/purge")
    form = page.form(f"{QUEUE}/purge")
    assert form is not None
    before = list(at.sources.queues.acts)
    led = [await posted(at.http, f"{QUEUE}/purge", reason="a test", **form) for _ in range(2)]
    after = await at.get(led[0][0])

    assert "8 items would be dropped" in page.text
    assert "2 items are being worked on; the receipts become stale." in page.text
    assert 'curl -H "Authorization: Bearer $BATON_TOKEN" -X POST "$BATON_URL/queues/mail/purge"' in page.text
    assert "baton queue purge mail" in page.text
    assert before == []
    assert {path for path, _ in led} == {f"{QUEUE}?group=default&did=purge"}
    assert at.sources.queues.acts == [("mail", "purge")]
    assert [(one.who, one.what, one.why) for one in at.events] == [("admin-er", "purge mail", "a test")]
    assert "The items have been dropped." in after.text
    assert "Ready 0 Leased 0" in after.text


async def test_a_redrive_says_how_many_come_back(tmp_path: Path) -> None:
    """And offers nothing when there is no dead letter, or nowhere to put one."""
    at = await desk(tmp_path, "operate")
    full = await at.get(f"{QUEUE}/redrive")
    at.sources.queues.rows["mail"] = msgspec.structs.replace(MAIL, dead=0)
    empty = await at.get(f"{QUEUE}/redrive")
    at.sources.queues.rows["mail"] = msgspec.structs.replace(MAIL, settings=QueueSettings(over="sessions"))
    over = await at.get(f"{QUEUE}/redrive")

    assert "3 dead letters would be put back into the queue, and 8 items would be ready then." in full.text
    assert "There is no dead letter to put back." in empty.text
    assert "reason" not in empty.values("input", "name")
    assert (over.status, "is over a topic" in over.text) == (409, True)


async def test_an_act_without_an_answer_does_not_claim_that_nothing_happened(tmp_path: Path) -> None:
    """It may have been done; a refusal was not."""
    at = await desk(tmp_path)
    at.sources.queues.loses_answers = True
    _, lost = await posted(at.http, f"{QUEUE}/purge", reason="a test")
    _, refused = await posted(at.http, "/console/queues/none/purge", reason="a test")

    assert (lost.status, refused.status) == (503, 404)
    assert "It may have been done all the same" in lost.text
    assert "Everything goes on as before" in refused.text


async def test_without_workers_the_page_names_the_setting() -> None:
    """And with workers, but without queues, the command that makes one."""
    sources = small_baton()
    view = sources.view()
    await view.step()
    app = app_on(view, EventFeed(), InMemoryRunner())
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://control") as http:
        unnamed = await page_at(http, "/console/queues")
        missing = await http.get("/queues")
    sources.queues.rows.clear()
    app = await app_of(sources, InMemoryRunner())
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://control") as http:
        empty = await page_at(http, "/console/queues")

    assert "BATON_QUEUE_URL" in unnamed.text
    assert missing.status_code == 503
    assert "BATON_QUEUE_URL" in missing.json()["detail"]
    assert "There are no queues yet." in empty.text
    assert "baton queue create mail" in empty.text


@given(_NUMBERS)
def test_a_spark_draws_every_number_that_is_known_and_no_other(depth: list[float | None]) -> None:
    """In its box; a gap of the hour is a gap of the line."""
    drawn = spark(history_of(depth))
    points = [tuple(map(float, point.split(","))) for line in drawn.lines for point in line.split()]

    assert len(points) == sum(number is not None for number in depth)
    assert all(0 <= x <= SPARK_WIDTH and 0 <= y <= SPARK_HEIGHT for x, y in points)
    assert [x for x, _ in points] == sorted(x for x, _ in points)
    runs = re.findall("x+", "".join("-" if number is None else "x" for number in depth))
    assert len(drawn.lines) == len(runs)


def test_what_is_not_known_is_empty_and_never_0() -> None:
    """Nor are the queues said to be empty then."""
    silent = MAIL.without_numbers()

    assert set(queue_cells(silent)) == {""}
    assert queue_sentence(silent) == "No queue worker answers, so nobody can put or lease items now."
    assert (queue_sentence(MAIL), queues_sentence([silent])) == ("", "1 queue.")
    assert queues_sentence([]) == "There are no queues yet."


def test_pages_hear_of_a_queue_only_when_it_has_changed() -> None:
    """As of streams. Other queues, or a new sample, draw the list anew."""
    other = QueueRow(queue="other", ready=1, leased=0, waiting=0, dead=0)
    scene = scene_with([stream_row(0)])
    painter = Painter("lag")

    def changed(*rows: QueueRow) -> object:
        snapshot = painter.paint(replace(scene, queues=rows))
        return snapshot and snapshot.changed["queues"]

    assert changed(MAIL, other) == {"mail": queue_cells(MAIL), "other": queue_cells(other)}
    assert changed(MAIL, other) is None
    assert changed(msgspec.structs.replace(MAIL, ready=6), other) == {"mail": ("6", "2", "1", "3", "90 s")}
    assert queues_drawn([MAIL], 0) != queues_drawn([MAIL, other], 0)
    assert queues_drawn([MAIL], 0) != queues_drawn([MAIL], STEP_MS)
    assert queues_drawn([MAIL], 0) == queues_drawn([msgspec.structs.replace(MAIL, ready=0)], STEP_MS - 1)
