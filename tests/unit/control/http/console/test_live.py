"""What viewers get: a page that applies every message shows what a page drawn just now shows."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncGenerator
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.control.core.events.recent_events import KEPT
from services.control.http.console.live.snapshots import LiveHub, Painter, TooManyViewers
from services.control.http.console.shown.scene import Scene
from services.control.live.feed.feed import EventFeed
from services.control.settings import ControlSettings
from shared.model.events import Event, encode_event
from tests.fakes.virtual_time import virtual_time
from tests.unit.control.http.console.scenes import scene_with, scenes, stream_row

SHOWN = (1, 3)


def data_of(message: bytes) -> Any:
    """The JSON of a message's `data` line."""
    (line,) = [line for line in message.split(b"\n") if line.startswith(b"data: ")]
    return msgspec.json.decode(line[6:])


def applied(page: dict[str, Any], reading: dict[str, Any]) -> dict[str, Any]:
    """The page after a reading, as the console's script applies it."""
    parts = ("facts", "members", "beads", "rows")
    return {part: page.get(part, {}) | reading.get(part, {}) for part in parts}


@given(st.lists(scenes(), min_size=1, max_size=6))
def test_changes_add_up_to_the_whole(world: list[Scene]) -> None:
    """Whatever happens between readings, and however often nothing does."""
    painter = Painter("lag")
    page: dict[str, Any] = {}
    last = None
    for scene in world:
        snapshot = painter.paint(scene)
        if snapshot is None:
            continue
        page = applied(page, data_of(snapshot.message(SHOWN, whole=last is None)))
        last = snapshot
    assert last is not None
    assert page == applied({}, data_of(last.message(SHOWN, whole=True)))
    fresh = Painter("lag").paint(world[-1])
    assert fresh is not None
    assert page == applied({}, data_of(fresh.message(SHOWN, whole=True)))


@given(scenes())
def test_nothing_new_makes_no_message(scene: Scene) -> None:
    """A reading without a change makes no message, unless one is due."""
    painter = Painter("lag")
    assert painter.paint(scene) is not None
    assert painter.paint(scene) is None
    due = painter.paint(scene, always=True)
    assert due is not None
    assert not any(data_of(due.message(SHOWN, whole=False)).get(part) for part in ("beads", "rows"))


def test_a_viewer_gets_rows_of_its_own_streams_only() -> None:
    """A page of fifty streams does not hear of a thousand."""
    snapshot = Painter("lag").paint(scene_with([stream_row(n) for n in range(9)]))
    assert snapshot is not None
    assert set(data_of(snapshot.message([2, 4, 99], whole=True))["rows"]) == {"2", "4"}


class World:
    """A hub over a scene that the test changes, and a feed."""

    def __init__(self, every_s: float = 0.001) -> None:
        self.feed = EventFeed()
        self.feed.begin(0)
        self.feed.mark_current()
        self.rows = [stream_row(n) for n in range(3)]
        self.hub = LiveHub(lambda group: scene_with(self.rows), self.feed, every_s=every_s)

    def happen(self, event_id: int) -> None:
        """An event arrives."""
        event = Event(at=1, group="g", kind="handover", stream=1, source="m0", target="m1", pause_ms=43)
        self.feed.receive([(event_id, encode_event(event))])


async def next_with(messages: AsyncGenerator[bytes], name: bytes) -> bytes:
    """The next message of that name."""
    async with asyncio.timeout(30):
        async for message in messages:
            if b"event: " + name + b"\n" in message:
                return message
    raise AssertionError("the stream has ended")


async def test_a_viewer_that_comes_back_misses_no_event() -> None:
    """`Last-Event-ID` is an event's offset: those after it come again, and no other."""
    world = World()
    for event_id in range(5):
        world.happen(event_id)
    viewer = world.hub.follow("g", "lag", [], 2, "ann")
    assert [(await next_with(viewer, b"event")).split(b"\n")[0] for _ in range(2)] == [b"id: 3", b"id: 4"]
    await viewer.aclose()


async def test_a_new_viewer_learns_where_it_stands_and_sees_the_next_event() -> None:
    """The first message carries the id of the newest event, so a reconnection continues there."""
    world = World()
    world.happen(0)
    viewer = world.hub.follow("g", "lag", [], None, "ann")
    assert b"id: 0\n" in await anext(viewer)
    await next_with(viewer, b"reading")
    world.happen(1)
    assert (await next_with(viewer, b"event")).startswith(b"id: 1\n")
    await viewer.aclose()


async def test_events_of_other_groups_move_a_viewer_on() -> None:
    """A quiet group beside a busy one: its viewer comes back with an id that control still knows."""
    world = World()
    viewer = world.hub.follow("g", "lag", [], None, "ann")
    await next_with(viewer, b"reading")
    other = encode_event(Event(at=1, group="other", kind="join", member="m9"))
    last = -1
    for lag in (1, 2, 3):
        world.feed.receive((number, other) for number in range(last + 1, last + KEPT))
        last += KEPT - 1
        world.rows = [stream_row(0, lag=lag)]
        async with asyncio.timeout(30):
            while b"id: %d\nevent: reading" % last not in (message := await anext(viewer)):
                assert b"gone" not in message
    await viewer.aclose()
    world.happen(last + 1)
    again = world.hub.follow("g", "lag", [], last, "ann")
    assert (await next_with(again, b"event")).startswith(b"id: %d\n" % (last + 1))
    await again.aclose()


async def test_a_slow_viewer_gets_the_whole_instead_of_what_it_missed() -> None:
    """It costs no memory meanwhile."""
    world = World()
    slow, quick = (world.hub.follow("g", "lag", [], None, "ann") for _ in range(2))
    await next_with(slow, b"reading")
    await next_with(quick, b"reading")
    for lag in (5, 6, 7):
        world.rows = [stream_row(n, lag=lag) for n in range(3)]
        await next_with(quick, b"reading")
    reading = data_of(await next_with(slow, b"reading"))
    assert reading["whole"]
    assert reading["facts"]["lag"] == "21"
    await slow.aclose()
    await quick.aclose()


@virtual_time
@pytest.mark.parametrize("every_s", [0.05, ControlSettings().refresh_s, 2.0, 9.0])
async def test_a_quiet_group_never_looks_stale(every_s: float) -> None:
    """The next message arrives before a page turns stale, even if each carries the oldest reading."""
    hub, loop = World(every_s).hub, asyncio.get_running_loop()
    viewer = hub.follow("g", "lag", [], None, "ann")
    heard_s = list[float]()
    for _ in range(5):
        await next_with(viewer, b"reading")
        heard_s.append(loop.time())
    silences_s = [later - earlier for earlier, later in itertools.pairwise(heard_s)]
    assert max(silences_s) + every_s < hub.stale_after_ms / 1000
    await viewer.aclose()


async def test_closing_ends_every_viewer_and_leaving_ends_the_painting() -> None:
    """Otherwise control's server would wait for the browsers to leave."""
    world = World()
    viewer = world.hub.follow("g", "lag", [], None, "ann")
    await next_with(viewer, b"reading")
    assert len(world.hub.viewers) == 1
    world.hub.close()
    async with asyncio.timeout(30):
        _ = [message async for message in viewer]
    assert len(world.hub.viewers) == 0


async def test_a_viewer_whose_painter_failed_comes_back_to_one_that_works() -> None:
    """Its stream ends, so the page connects again."""
    world = World()
    viewer = world.hub.follow("g", "lag", [], None, "ann")
    await next_with(viewer, b"reading")
    world.rows = [None]  # type: ignore[list-item]
    async with asyncio.timeout(30):
        _ = [message async for message in viewer]
    world.rows = [stream_row(0)]
    again = world.hub.follow("g", "lag", [], None, "ann")
    assert data_of(await next_with(again, b"reading"))["whole"]
    await again.aclose()


async def test_too_many_viewers_are_refused() -> None:
    """A clear word instead of a slow control."""
    world = World()
    world.hub.viewers.most = 1
    viewer = world.hub.follow("g", "lag", [], None, "ann")
    await anext(viewer)
    with pytest.raises(TooManyViewers):
        world.hub.follow("g", "lag", [], None, "ann")
    await viewer.aclose()


async def test_a_caller_with_many_pages_makes_room_for_another() -> None:
    """Its newest page ends and comes back later, also where nothing happens that could wake it."""
    world = World(every_s=3600)
    world.hub.viewers.most = 2
    old, new = (world.hub.follow("g", "lag", [], None, "ann") for _ in range(2))
    await anext(old)
    await anext(new)

    other = world.hub.follow("g", "lag", [], None, "ben")
    await anext(other)

    async with asyncio.timeout(30):
        _ = [message async for message in new]
        assert b"event: reading" in await anext(old)
    assert len(world.hub.viewers) == 2
    await old.aclose()
    await other.aclose()
