"""Live messages about runs and operations: each change once, the same bytes for every viewer."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from services.control.core.runs.run import Progress, Run
from services.control.http.console.live.snapshots import LiveHub
from services.control.http.console.live.work import NEWEST, Kind, Work, WorkLog, work_in
from services.control.http.console.pages.routes import scene_of
from services.control.live.feed.feed import EventFeed
from services.control.live.view.problems import Problems
from shared.errors import ZooKeeperUnavailable
from tests.unit.control.http.test_app import InMemoryRunner
from tests.unit.control.sources import small_baton


def work(name: str, drawn: str = "running", *, kind: Kind = "run", group: str = "default") -> Work:
    """Some work."""
    return Work(kind=kind, group=group, id=name, drawn=drawn, share=None, words="")


def seen_in(messages: list[bytes]) -> list[tuple[str, str]]:
    """The ids and states in the messages."""
    data = [json.loads(message.split(b"data: ")[1]) for message in messages]
    return [(one["id"], one["drawn"]) for one in data]


states = st.dictionaries(st.sampled_from("abc"), st.sampled_from(["starting", "running", "failed"]))


@given(st.lists(states, max_size=8), st.integers(0, 7))
def test_a_viewer_learns_the_newest_state_of_everything(rounds: list[dict[str, str]], joins: int) -> None:
    """Whenever it joins: what it was sent, each overriding the one before, is what there is."""
    now: dict[str, str] = {}
    log = WorkLog(lambda: [work(name, drawn) for name, drawn in now.items()])
    seen: dict[str, str] = {}
    reached = 0
    for number, found in enumerate(rounds):
        now |= found
        log.look()
        if number >= joins:
            seen |= seen_in(log.after(reached, "run", "default"))
            reached = log.number

    assert not rounds[joins:] or seen == now


def test_what_stays_the_same_is_not_sent_again() -> None:
    """Also if it was read again."""
    log = WorkLog(lambda: [work("a")])
    first = log.look()

    assert log.look() == first
    assert log.after(first, "run", "default") == []


def test_viewers_share_the_bytes() -> None:
    """A message is encoded once."""
    log = WorkLog(lambda: [work("a")])
    log.look()

    assert log.after(0, "run", "default")[0] is log.after(0, "run", "default")[0]


def test_a_viewer_hears_of_its_own_kind_and_group() -> None:
    """Nothing else concerns its page."""
    log = WorkLog(lambda: [work("a"), work("b", group="fraud"), work("c", kind="operation")])
    log.look()

    assert seen_in(log.after(0, "run", "default")) == [("a", "running")]
    assert seen_in(log.after(0, "operation", "default")) == [("c", "running")]


def test_while_nothing_can_be_read_nothing_changes() -> None:
    """ZooKeeper may be away for a while."""
    found: list[Work] | None = [work("a")]

    def read() -> list[Work]:
        if found is None:
            raise ZooKeeperUnavailable("away")
        return found

    log = WorkLog(read)
    before = log.look()
    found = None

    assert log.look() == before
    assert seen_in(log.after(0, "run", "default")) == [("a", "running")]


def test_what_is_under_way_is_never_left_out() -> None:
    """However many have ended since it began."""
    runs = [a_run(f"r{n}").ended("succeeded", 2) for n in range(NEWEST + 5)] + [a_run("old")]

    names = [one.id for one in work_in(runs, [], 0)]

    assert names[0] == "old"
    assert len(names) == NEWEST + 1


async def test_a_page_hears_of_runs_as_they_change() -> None:
    """On the stream that it has anyway, next to the readings; a page that did not ask hears nothing."""
    feed, runs = EventFeed(), [a_run("r1")]
    feed.mark_current()
    view = small_baton().view()
    await view.step()
    hub = LiveHub(
        scene_of(view, Problems(view, InMemoryRunner(), list), lambda: 7),
        feed,
        every_s=0.001,
        work=WorkLog(lambda: work_in(runs, [], 1_000)),
    )
    page, other = (
        hub.follow("default", "lag", [], None, "ann", "run"),
        hub.follow("default", "lag", [], None, "ann"),
    )
    begun = await next_of(page, b"run")
    runs[0] = msgspec.structs.replace(runs[0], progress=Progress(tasks=4, completed=1))
    later = await next_of(page, b"run")
    hub.close()
    rest = b"".join([chunk async for chunk in other])
    await page.aclose()

    assert (begun["id"], begun["share"], later["share"]) == ("r1", None, 25.0)
    assert later["words"] == "1 of 4 tasks, 0 active, 0 failed; 1 s so far"
    assert b"event: run" not in rest


def a_run(name: str) -> Run:
    """A run that has just begun."""
    return Run(
        id=name, job="lake", group="default", parameters={}, state="running", started_at=0, timeout_s=1
    )


async def next_of(chunks: AsyncGenerator[bytes], kind: bytes) -> dict[str, Any]:
    """The data of the next message of a kind."""
    async for chunk in chunks:
        for message in chunk.split(b"\n\n"):
            if message.startswith(b"event: " + kind):
                found: dict[str, Any] = json.loads(message.split(b"data: ")[1])
                return found
    raise AssertionError(kind)
