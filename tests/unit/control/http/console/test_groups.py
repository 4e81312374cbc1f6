"""The page of groups, and what aliases mean to the other pages."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace

import httpx
import pytest

from services.control.core.report.observed import Group
from services.control.core.report.rows import GroupRow
from services.control.http.console.pages.groups import in_order_of_following
from shared.model.cluster import View
from shared.model.group import GroupSettings
from shared.model.routing import initial_table
from shared.model.start import GroupStart
from tests.unit.control.http.console.browser import browser_of, page_at
from tests.unit.control.http.console.runs_desk import Runs
from tests.unit.control.http.test_app import app_of
from tests.unit.control.sources import small_baton


@pytest.fixture
async def http() -> AsyncIterator[httpx.AsyncClient]:
    """The small Baton; the group `second` follows `default` from 30 on, and has its name and another."""
    sources = small_baton()
    cluster = sources.cluster.cluster
    start = GroupStart(follows="default", offsets={0: 30, 1: 30, 2: None, 3: 30}, logs={1: 52})
    second = Group(settings=GroupSettings(), view=View(count=4), start=start)
    sources.cluster.cluster = replace(
        cluster,
        groups={**cluster.groups, "second": second},
        stream_table=initial_table(4).encode().decode(),
        aliases={"default": "second", "live": "second"},
    )
    async with browser_of(await app_of(sources, Runs())) as http:
        yield http


def row(name: str, follows: str | None = None) -> GroupRow:
    return GroupRow(
        name=name, settings=None, members=[], streams=1, lag=0, paused=None, follows=follows, aliases=[]
    )


def test_a_group_stands_before_those_that_follow_it() -> None:
    """With how far it is from one that follows nobody; one whose followed group is gone is not lost."""
    rows = [row("a", "z"), row("b"), row("c", "a"), row("d", "z"), row("e", "gone"), row("z")]

    lines = [(line.row.name, line.depth) for line in in_order_of_following(rows)]

    assert lines == [("b", 0), ("e", 0), ("z", 0), ("a", 1), ("c", 2), ("d", 1)]


async def test_the_page_shows_what_follows_what_and_what_is_current(http: httpx.AsyncClient) -> None:
    """Of each stream, below which offset the followed group's sessions count."""
    page = await page_at(http, "/console/groups?group=second")

    assert page.status == 200
    assert "└ second default default, live 0" in page.text
    assert "those of default that began below its start" in page.text
    assert "0 default 30 1 default 30 and all of logs before 52 2 default all 3 default 30" in page.text
    assert "baton groups show second --sql" in page.text


async def test_a_group_whose_name_means_another_one_keeps_its_page(http: httpx.AsyncClient) -> None:
    """It still runs: the page shows its own state, and says what jobs and tables take its name for."""
    page = await page_at(http, "/console/groups")

    assert "Current in default" in page.text
    assert "that are asked for default mean second" in page.text
    assert "Its own sessions." in page.text


async def test_pages_of_an_alias_are_those_of_its_group(http: httpx.AsyncClient) -> None:
    """A name that no group has leads to the group's page; jobs go where the alias points."""
    led = await http.get("/console/ownership?group=live&by=streams")
    jobs = await page_at(http, "/console/jobs?group=default")
    unknown = await http.get("/console/ownership?group=nobody")

    assert (led.status_code, led.headers["location"]) == (307, "?group=second&by=streams")
    assert "/console/actions/run?job=audit&group=second" in jobs.values("a", "href")
    assert unknown.status_code == 404


async def test_a_look_up_for_an_alias_asks_its_group(http: httpx.AsyncClient) -> None:
    """The answer names the group."""
    answer = await http.get("/keys", params={"key": "k", "group": "live"})

    assert (answer.status_code, answer.json()["group"]) == (200, "second")
