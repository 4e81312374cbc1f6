"""The routes of a queue's items: put, lease, and what settles a lease.

A route reads its request, asks `Leasing`, and shows the answer. `admin.py` has those that concern a queue as
a whole.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import msgspec
from fastapi import APIRouter, Request, Response

from services.queue.core.commands import Ack, Until
from services.queue.core.items import read_posted
from services.queue.http.bodies import Bodies, small_body
from services.queue.http.messages import (
    Done,
    ExtendItems,
    Items,
    LeaseItems,
    PutItems,
    RejectItems,
    ReleaseItems,
    WithReceipts,
    parse,
    shown_item,
)
from services.queue.http.openapi import described
from services.queue.worker.leasing import HandedOut, Leasing
from services.queue.worker.queues import Queues
from shared.errors import Conflict
from shared.service.http import problem
from shared.service.refusals import RETRY

JSON = "application/json"


class AllStale(Conflict):
    """All receipts are stale: the items were leased again, or are not leased."""


def shown(answer: msgspec.Struct) -> Response:
    """The answer as JSON."""
    return Response(msgspec.json.encode(answer), media_type=JSON)


def item_routes(queues: Queues, bodies: Bodies, leaving: asyncio.Event) -> APIRouter:
    """The routes below `/queues/{queue}`; long polls end when the service is `leaving`."""
    router = APIRouter(prefix="/queues/{queue}", tags=["items"])

    @router.post("/items", summary="Put items", **described(None, PutItems))
    async def put(queue: str, request: Request) -> Response:
        leasing = await queues.find(queue)
        async with bodies.posted(request) as (body, wrapping):
            posted = read_posted(body, wrapping.form)
            unstored = await leasing.put(posted.accepted)
        rejected: dict[str, Any] = {"rejected": posted.rejected}
        if posted.rejected and not posted.accepted:
            detail = "no item is acceptable"
            return problem(422, "items-rejected", detail, accepted=0, **rejected)
        if unstored:
            count = len(posted.accepted)
            detail = f"Kafka acknowledged only {count - len(unstored)} of {count} items in time"
            again = [posted.indexes[index] for index in unstored]
            stored: dict[str, Any] = {"accepted": count - len(unstored), "unstored": again}
            return problem(503, "kafka-unavailable", detail, headers=RETRY, **stored, **rejected)
        return shown(PutItems(accepted=len(posted.accepted), rejected=posted.rejected))

    @router.post("/lease", summary="Lease items", **described(LeaseItems, Items))
    async def lease(queue: str, request: Request) -> Response:
        leasing = await queues.find(queue)
        asked = parse(await small_body(request), LeaseItems)
        found = await _leased(leasing, asked, request, leaving)
        return shown(Items(items=[shown_item(one) for one in found]))

    @router.post("/ack", summary="Items are done", **described(WithReceipts, Done))
    async def ack(queue: str, request: Request) -> Response:
        leasing = await queues.find(queue)
        asked = parse(await small_body(request), WithReceipts)
        return _done(asked, await leasing.settle(Ack(asked.parsed())))

    @router.post("/release", summary="Give items back", **described(ReleaseItems, Done))
    async def release(queue: str, request: Request) -> Response:
        leasing = await queues.find(queue)
        asked = parse(await small_body(request), ReleaseItems)
        command = Until(asked.parsed(), int(asked.delay_s * 1000), is_release=True)
        return _done(asked, await leasing.settle(command))

    @router.post("/reject", summary="Make items dead letters", **described(RejectItems, Done))
    async def reject(queue: str, request: Request) -> Response:
        leasing = await queues.find(queue)
        asked = parse(await small_body(request), RejectItems)
        return _done(asked, await leasing.reject(asked.parsed(), asked.why))

    @router.post("/extend", summary="Extend leases", **described(ExtendItems, Done))
    async def extend(queue: str, request: Request) -> Response:
        leasing = await queues.find(queue)
        asked = parse(await small_body(request), ExtendItems)
        command = Until(asked.parsed(), _lease_ms(leasing, asked.lease_s))
        return _done(asked, await leasing.settle(command))

    return router


async def _leased(
    leasing: Leasing, asked: LeaseItems, request: Request, leaving: asyncio.Event
) -> list[HandedOut]:
    """What the lease gets; nothing, and nothing lost, if the client or the service goes before."""
    call = leasing.lease(asked.max, _lease_ms(leasing, asked.lease_s), asked.wait_s)
    if not asked.wait_s:
        return await call
    leased = asyncio.create_task(call)
    ends = [asyncio.create_task(_gone(request)), asyncio.create_task(leaving.wait())]
    try:
        await asyncio.wait((leased, *ends), return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in ends:
            task.cancel()
        if not leased.done():
            leased.cancel()
    try:
        return await leased
    except asyncio.CancelledError:
        if leased.cancelled():
            return []
        raise


async def _gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _lease_ms(leasing: Leasing, lease_s: float | None) -> int:
    settings = leasing.engine.state.settings
    assert settings is not None
    return settings.lease_ms if lease_s is None else int(lease_s * 1000)


def _done(asked: WithReceipts, stale: Sequence[int]) -> Response:
    count = len(asked.receipts)
    if len(stale) == count:
        raise AllStale
    return shown(Done(done=count - len(stale), stale=list(stale)))
