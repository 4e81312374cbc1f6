"""A browser at the control of a group that carries its operations out."""

from __future__ import annotations

from dataclasses import dataclass

import httpx

from services.control.http.api.access.access import Access
from services.control.live.feed.feed import EventFeed
from shared.model.events import Event, encode_event
from tests.unit.control.http.console.browser import Page, browser_of, page_at, posted
from tests.unit.control.http.test_app import InMemoryRunner, app_on
from tests.unit.control.operators_world import OperatorsWorld

DRAIN = "/console/actions/drain?member=a"


@dataclass
class OperationsDesk:
    """A browser at the control of a group that carries its operations out."""

    world: OperatorsWorld
    feed: EventFeed
    http: httpx.AsyncClient

    async def get(self, path: str) -> Page:
        return await page_at(self.http, path)

    async def start(self, **fields: str) -> tuple[str, Page]:
        """Confirms an operation."""
        return await posted(self.http, "/console/operations", **fields)

    def handed_over(self, stream: int, target: str, pause_ms: float, *, at: int = 0) -> None:
        """The donor reports a handover."""
        recent = self.feed.recent_events
        event = Event(
            at=at,
            group="default",
            kind="handover",
            stream=stream,
            epoch=recent.next_id,
            source="a",
            target=target,
            pause_ms=pause_ms,
            warm=True,
        )
        self.feed.receive([(recent.next_id, encode_event(event))])


async def desk_with(members: str = "ab", access: Access | None = None, token: str = "") -> OperationsDesk:
    """A desk over a group of six streams."""
    feed = EventFeed()
    world = OperatorsWorld(members=members, movements=feed.movements)
    feed.begin(0)
    feed.mark_current()
    await world.look()
    app = app_on(
        world.view, feed, InMemoryRunner(), operations=world.operations, actions=world.actions, access=access
    )
    http = browser_of(app)
    http.headers["authorization"] = f"Bearer {token}"
    return OperationsDesk(world, feed, http)
