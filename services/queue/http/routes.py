"""The routes of a queue's items: put, lease, and what settles a lease.

A handler decodes its request, asks `Leasing`, and returns the answer; `exchange.py` reads bodies and writes
answers. `admin.py` has the routes that concern a queue as a whole.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Generator, Sequence
from typing import Any, Final, TypeVar, cast

import msgspec
from fastapi import APIRouter, Response

from services.queue.core.items import RejectedItem, reading_posted
from services.queue.http.exchange import CountedAnswer, Handler
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
from services.queue.worker.answers import AnswerShare
from services.queue.worker.handing_out import HandedOut
from services.queue.worker.leasing import Leasing
from services.queue.worker.queues import Queues
from shared.errors import Conflict
from shared.model.form import Form
from shared.service.http import problem
from shared.service.refusals import RETRY

JSON = "application/json"
T = TypeVar("T")
_DESCRIBED: Final = (
    ("items", "Put items", None, PutItems),
    ("lease", "Lease items", LeaseItems, Items),
    ("ack", "Items are done", WithReceipts, Done),
    ("release", "Give items back", ReleaseItems, Done),
    ("reject", "Make items dead letters", RejectItems, Done),
    ("extend", "Extend leases", ExtendItems, Done),
)


class AllStale(Conflict):
    """All receipts are stale: the items were leased again, or this queue never gave these out."""


def shown(answer: msgspec.Struct) -> Response:
    """The answer as JSON."""
    return Response(msgspec.json.encode(answer), media_type=JSON)


class ItemHandlers:
    """Answers `POST /queues/{queue}/…`, each method one last part; long polls end when it is `leaving`."""

    def __init__(self, queues: Queues, leaving: asyncio.Event) -> None:
        self._queues, self._leaving = queues, leaving

    def by_name(self) -> dict[str, Handler]:
        """The handlers by the last part of their paths."""
        return {name: getattr(self, name) for name, *_ in _DESCRIBED}

    async def items(self, queue: str, body: bytes, form: Form) -> PutItems | Response:
        """Puts items."""
        leasing = await self._queues.find(queue)
        posted = await _in_turns(reading_posted(body, form))
        del body  # the items are its parts, and it may be large
        unstored = await leasing.put(posted.accepted)
        refused = [_refused(posted.indexes[index]) for index in unstored.refused]
        every = sorted([*posted.rejected, *refused], key=lambda item: item.index)
        rejected: dict[str, Any] = {"rejected": every}
        count = len(posted.accepted) - len(refused)
        if every and not count:
            detail = "no item is acceptable"
            return problem(422, "items-rejected", detail, accepted=0, **rejected)
        if unstored.unsure:
            left = count - len(unstored.unsure)
            detail = f"Kafka acknowledged only {left} of {count} items in time"
            again = [posted.indexes[index] for index in unstored.unsure]
            stored: dict[str, Any] = {"accepted": left, "unstored": again}
            return problem(503, "kafka-unavailable", detail, headers=RETRY, **stored, **rejected)
        return PutItems(accepted=count, rejected=every)

    async def lease(self, queue: str, body: bytes, _: Form) -> CountedAnswer:
        """Leases items. May be cancelled: loses nothing."""
        leasing = await self._queues.find(queue)
        asked = parse(body, LeaseItems)
        lease_ms = _lease_ms(leasing, asked.lease_s)
        found: Sequence[HandedOut] = ()
        share = AnswerShare(self._queues.answers)
        try:
            if not asked.wait_s:
                found = await leasing.lease(asked.max, lease_ms, share)
            elif not (found := await leasing.lease_ready(asked.max, lease_ms, share)):
                found = await self._polled(leasing.poll(asked.max, lease_ms, asked.wait_s, share))
            content = msgspec.json.encode(Items(items=[shown_item(one) for one in found]))
        except BaseException:
            share.release()
            raise
        return CountedAnswer(content=content, share=share)

    async def ack(self, queue: str, body: bytes, _: Form) -> Done:
        """Ends items that are done."""
        leasing = await self._queues.find(queue)
        asked = parse(body, WithReceipts)
        return _done(asked, await leasing.ack(asked.receipts))

    async def release(self, queue: str, body: bytes, _: Form) -> Done:
        """Gives items back."""
        leasing = await self._queues.find(queue)
        asked = parse(body, ReleaseItems)
        ms = int(asked.delay_s * 1000)
        stale = await leasing.put_off(asked.receipts, ms, is_release=True, is_unseen=asked.unseen)
        return _done(asked, stale)

    async def reject(self, queue: str, body: bytes, _: Form) -> Done:
        """Makes items dead letters."""
        leasing = await self._queues.find(queue)
        asked = parse(body, RejectItems)
        return _done(asked, await leasing.reject(asked.receipts, asked.why))

    async def extend(self, queue: str, body: bytes, _: Form) -> Done:
        """Extends leases."""
        leasing = await self._queues.find(queue)
        asked = parse(body, ExtendItems)
        return _done(asked, await leasing.put_off(asked.receipts, _lease_ms(leasing, asked.lease_s)))

    async def _polled(self, poll: Coroutine[Any, Any, Sequence[HandedOut]]) -> Sequence[HandedOut]:
        """What the poll gets; nothing, and nothing lost, if the client or the service goes before."""
        leased = asyncio.create_task(poll)
        leaving = asyncio.create_task(self._leaving.wait())
        try:
            await asyncio.wait((leased, leaving), return_when=asyncio.FIRST_COMPLETED)
        finally:
            leaving.cancel()
            if not leased.done():
                leased.cancel()
        try:
            return await leased
        except asyncio.CancelledError:
            if leased.cancelled():
                return []
            raise


def item_routes() -> APIRouter:
    """The routes of the handlers for the documentation, and for who asks with another method than POST."""
    router = APIRouter(prefix="/queues/{queue}", tags=["items"])
    for name, summary, taken, answered in _DESCRIBED:
        router.post(f"/{name}", summary=summary, name=name, **described(taken, answered))(_answered_before)
    return router


async def _answered_before(queue: str) -> Response:
    raise AssertionError(f"a request about {queue} that the face has not answered")


def _refused(index: int) -> RejectedItem:
    detail = "Kafka refuses it for good: it is too large for the queue's topic, or against its rules"
    return RejectedItem(index=index, reason="refused", detail=detail)


async def _in_turns(reading: Generator[None, None, T]) -> T:
    """What is read; others run between its slices."""
    while True:
        try:
            next(reading)
        except StopIteration as end:
            return cast(T, end.value)
        await asyncio.sleep(0)


def _lease_ms(leasing: Leasing, lease_s: float | None) -> int:
    settings = leasing.engine.state.settings
    assert settings is not None
    return settings.lease_ms if lease_s is None else int(lease_s * 1000)


def _done(asked: WithReceipts, stale: Sequence[int]) -> Done:
    count = len(asked.receipts)
    if len(stale) == count:
        raise AllStale
    return Done(done=count - len(stale), stale=list(stale))
