"""The routes of a queue's items: put, lease, and what settles a lease.

A route reads its request, asks `Leasing`, and shows the answer. `admin.py` has those that concern a queue as
a whole.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import Any, Final

import msgspec
from fastapi import APIRouter, Request, Response
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Receive, Scope, Send

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
from services.queue.worker.answers import AnswerShare
from services.queue.worker.handing_out import HandedOut
from services.queue.worker.leasing import Leasing
from services.queue.worker.queues import Queues
from shared.errors import BatonError, Conflict
from shared.service.http import problem
from shared.service.refusals import RETRY, refusal

JSON = "application/json"
PIECE_BYTES: Final = 64 * 1024
Handler = Callable[[str, Request], Awaitable[Response]]
"""Answers a request to the queue of that name. Raises BatonError."""
_DESCRIBED: Final = (
    ("items", "Put items", None, PutItems),
    ("lease", "Lease items", LeaseItems, Items),
    ("ack", "Items are done", WithReceipts, Done),
    ("release", "Give items back", ReleaseItems, Done),
    ("reject", "Make items dead letters", RejectItems, Done),
    ("extend", "Extend leases", ExtendItems, Done),
)
logger = logging.getLogger(__name__)


class AllStale(Conflict):
    """All receipts are stale: the items were leased again, or are not leased."""


def shown(answer: msgspec.Struct) -> Response:
    """The answer as JSON."""
    return Response(msgspec.json.encode(answer), media_type=JSON)


class CountedAnswer(Response):
    """An answer with items, whose bytes count until it is sent.

    A large one goes out in pieces: the server waits before each until the client has taken those before it.
    """

    def __init__(self, content: bytes, share: AnswerShare) -> None:
        super().__init__(content, media_type=JSON)
        self._share = share

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            if len(self.body) <= PIECE_BYTES:
                await super().__call__(scope, receive, send)
                return
            start = {"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers}
            await send(start)
            for at in range(0, len(self.body), PIECE_BYTES):
                end = at + PIECE_BYTES
                more = {"body": self.body[at:end], "more_body": end < len(self.body)}
                await send({"type": "http.response.body", **more})
        finally:
            self._share.release()


class ItemHandlers:
    """Answers `POST /queues/{queue}/…`, each method one last part; long polls end when it is `leaving`."""

    def __init__(self, queues: Queues, bodies: Bodies, leaving: asyncio.Event) -> None:
        self._queues, self._bodies, self._leaving = queues, bodies, leaving

    def by_name(self) -> dict[str, Handler]:
        """The handlers by the last part of their paths."""
        return {name: getattr(self, name) for name, *_ in _DESCRIBED}

    async def items(self, queue: str, request: Request) -> Response:
        """Puts items."""
        leasing = await self._queues.find(queue)
        async with self._bodies.posted(request) as (body, wrapping):
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

    async def lease(self, queue: str, request: Request) -> Response:
        """Leases items."""
        leasing = await self._queues.find(queue)
        asked = parse(await small_body(request), LeaseItems)
        lease_ms = _lease_ms(leasing, asked.lease_s)
        found: Sequence[HandedOut] = ()
        share = AnswerShare(self._queues.answers)
        try:
            if not asked.wait_s or leasing.engine.demand.suffices(asked.max):
                found = await leasing.lease(asked.max, lease_ms, share)
            if asked.wait_s and not found:
                found = await self._polled(leasing.poll(asked.max, lease_ms, asked.wait_s, share), request)
            content = msgspec.json.encode(Items(items=[shown_item(one) for one in found]))
        except BaseException:
            share.release()
            raise
        return CountedAnswer(content, share)

    async def ack(self, queue: str, request: Request) -> Response:
        """Ends items that are done."""
        leasing = await self._queues.find(queue)
        asked = parse(await small_body(request), WithReceipts)
        return _done(asked, await leasing.settle(Ack(asked.parsed())))

    async def release(self, queue: str, request: Request) -> Response:
        """Gives items back."""
        leasing = await self._queues.find(queue)
        asked = parse(await small_body(request), ReleaseItems)
        command = Until(asked.parsed(), int(asked.delay_s * 1000), is_release=True)
        return _done(asked, await leasing.settle(command))

    async def reject(self, queue: str, request: Request) -> Response:
        """Makes items dead letters."""
        leasing = await self._queues.find(queue)
        asked = parse(await small_body(request), RejectItems)
        return _done(asked, await leasing.reject(asked.parsed(), asked.why))

    async def extend(self, queue: str, request: Request) -> Response:
        """Extends leases."""
        leasing = await self._queues.find(queue)
        asked = parse(await small_body(request), ExtendItems)
        command = Until(asked.parsed(), _lease_ms(leasing, asked.lease_s))
        return _done(asked, await leasing.settle(command))

    async def _polled(
        self, poll: Coroutine[Any, Any, Sequence[HandedOut]], request: Request
    ) -> Sequence[HandedOut]:
        """What the poll gets; nothing, and nothing lost, if the client or the service goes before."""
        leased = asyncio.create_task(poll)
        ends = [asyncio.create_task(_gone(request)), asyncio.create_task(self._leaving.wait())]
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


def item_routes(handlers: Mapping[str, Handler]) -> APIRouter:
    """The routes of these handlers, with what they take and answer."""
    router = APIRouter(prefix="/queues/{queue}", tags=["items"])
    for name, summary, taken, answered in _DESCRIBED:
        router.post(f"/{name}", summary=summary, **described(taken, answered))(handlers[name])
    return router


class DirectRoutes:
    """ASGI middleware: answers the handlers' requests without the framework, which costs more than they do.

    `app` answers all others. The framework's routes of the same handlers are there for `/docs`.
    """

    def __init__(self, app: ASGIApp, handlers: Mapping[str, Handler]) -> None:
        self._app, self._handlers = app, handlers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        parts: list[str] = []
        if scope["type"] == "http" and scope["method"] == "POST":
            parts = scope["path"].split("/")
        handler = self._handlers.get(parts[3]) if len(parts) == 4 and parts[1] == "queues" else None
        if handler is None:
            await self._app(scope, receive, send)
            return
        try:
            answer = await handler(parts[2], Request(scope, receive))
        except BatonError as error:
            answer = refusal(error)
        except ClientDisconnect:
            return
        except Exception:
            logger.exception("request failed")
            answer = problem(500, "internal-server-error", "an internal error; it has been logged")
        await answer(scope, receive, send)


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
