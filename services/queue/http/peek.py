"""`GET /queues/{queue}/items`: a look at the oldest items that are not done, without a lease.

A look changes nothing, and what it shows may be leased by somebody a moment later. It is for people: control
shows the dead letters of `mail` as the items of `mail.dead`.
"""

from __future__ import annotations

from typing import Annotated, Final

import msgspec
from fastapi import APIRouter, Query, Response

from services.queue.core.items import ItemRecord
from services.queue.core.open_items import Place
from services.queue.http.openapi import described
from services.queue.http.routes import shown
from services.queue.worker.queues import Queues

MOST: Final = 50
AT_ONCE: Final = 5
"""Items in memory at a time: each has up to 1 MB, and only the begin is kept."""
BEGIN_BYTES: Final = 2_000
"""How much of an item's data is shown."""


class PeekedItem(msgspec.Struct, frozen=True, kw_only=True):
    """An item as it lies in its topic. `enqueued_at`: ms UTC; `size`: of its data, of which `text` is the
    begin.
    """

    partition: int
    offset: int
    id: str | None
    enqueued_at: int
    headers: dict[str, str]
    size: int
    text: str


class PeekedItems(msgspec.Struct, frozen=True, kw_only=True):
    """The oldest items that are not done, leased or not."""

    items: list[PeekedItem]


def peek_routes(queues: Queues) -> APIRouter:
    """The route over the queues."""
    router = APIRouter(prefix="/queues/{queue}", tags=["queues"])

    @router.get("/items", summary="Look at the oldest items", **described(None, PeekedItems))
    async def peek(queue: str, limit: Annotated[int, Query(ge=1, le=MOST)] = 20) -> Response:
        leasing = await queues.find(queue)
        items = leasing.items
        places = leasing.engine.state.oldest_open(items.backlog_ends, limit)
        found: list[PeekedItem] = []
        for at in range(0, len(places), AT_ONCE):
            records = await items.get(places[at : at + AT_ONCE])
            found += [_shown_item(place, record) for place, record in records.items()]
        found.sort(key=lambda item: (item.enqueued_at, item.partition, item.offset))
        return shown(PeekedItems(items=found[:limit]))

    return router


def _shown_item(place: Place, record: ItemRecord) -> PeekedItem:
    return PeekedItem(
        partition=place[0],
        offset=place[1],
        id=record.id or None,
        enqueued_at=record.append_ms,
        headers=record.headers,
        size=len(record.value),
        text=record.value[:BEGIN_BYTES].decode(errors="replace"),
    )
