"""The routes of queues as a whole: create, show, seek, purge, redrive, delete."""

from __future__ import annotations

import asyncio

import msgspec
from fastapi import APIRouter, Request, Response

from services.queue.core.commands import Seek
from services.queue.core.queue_state import QueueState
from services.queue.http.bodies import small_body
from services.queue.http.keys import Grant, WrongQueue
from services.queue.http.messages import (
    Deleted,
    PurgeQueue,
    PutQueue,
    Ready,
    SeekQueue,
    ShownQueue,
    ShownQueues,
    parse,
    shown_settings,
)
from services.queue.http.openapi import described
from services.queue.http.routes import shown
from services.queue.worker.leasing import Leasing
from services.queue.worker.queues import Queues
from shared.errors import InvalidInput, NotFound, Unavailable
from shared.model.fragments import FragmentRejected, parse_rfc3339
from shared.together import together

LIST_S = 1.0
"""So long a queue in the list may take; one that takes longer is listed without numbers."""
MAX_TIME_MS = 253_402_300_799_999


class QueueHandlers:
    """Answers the requests that concern a queue as a whole."""

    def __init__(self, queues: Queues) -> None:
        self._queues = queues

    async def list_queues(self) -> Response:
        """All queues; without numbers of those that this worker cannot ask at present."""
        asking = [_listed(leasing) for _, leasing in self._queues.all() if not leasing.is_dead]
        found = [one for one in await together(asking) if one is not None]
        return shown(ShownQueues(queues=found))

    async def show(self, queue: str) -> Response:
        """One queue."""
        return shown(await shown_queue(await self._queues.find(queue)))

    async def put(self, queue: str, request: Request) -> Response:
        """Creates a queue, or changes its settings."""
        asked = parse(await small_body(request), PutQueue)
        grant: Grant | None = getattr(request.state, "grant", None)
        if asked.over and grant is not None and grant.queues is not None:
            raise WrongQueue("this key is limited to some queues, and may not read a topic through one")
        return shown(await shown_queue(await self._queues.put(queue, asked.changes())))

    async def delete(self, queue: str) -> Response:
        """Deletes a queue and its dead letters."""
        await self._queues.delete(queue)
        return shown(Deleted())

    async def purge(self, queue: str, request: Request) -> Response:
        """Drops all items."""
        leasing = await self._queues.find(queue)
        asked = parse(await small_body(request), PurgeQueue)
        if asked.dry_run:
            status = leasing.engine.status()
            return shown(Ready(ready=status.ready + status.leased + status.waiting))
        command = Seek(tuple(await leasing.items.find("latest")), drop=True)
        return shown(Ready(ready=(await leasing.seek(command)).ready))

    async def seek(self, queue: str, request: Request) -> Response:
        """Goes on at another place."""
        leasing = await self._queues.find(queue)
        asked = parse(await small_body(request), SeekQueue)
        # the end first: nothing that `to` means by it can lie beyond
        ends = await leasing.items.find("latest")
        # in another topic than the one that was leased from, the frontier must be able to go back to an end
        known = () if leasing.items.fault else tuple(ends)
        command = Seek(tuple(await _offsets(leasing, asked, ends)), ends=known)
        if asked.dry_run:
            return shown(Ready(ready=_ready_after(leasing.engine.state, command, ends)))
        return shown(Ready(ready=(await leasing.seek(command)).ready))

    async def redrive(self, queue: str, request: Request) -> Response:
        """Puts the dead letters back."""
        leasing = await self._queues.find(queue)
        asked = parse(await small_body(request), PurgeQueue)
        if asked.dry_run:
            return shown(Ready(ready=leasing.engine.status().ready + leasing.dead.engine.status().ready))
        return shown(Ready(ready=(await leasing.redrive()).ready))


def queue_routes(handlers: QueueHandlers) -> APIRouter:
    """The routes of `/queues` and `/queues/{queue}`."""
    router = APIRouter(prefix="/queues", tags=["queues"])
    own = "/{queue}"
    router.get("", summary="All queues", **described(None, ShownQueues))(handlers.list_queues)
    router.get(own, summary="A queue", **described(None, ShownQueue))(handlers.show)
    change = "Create a queue, or change its settings"
    router.put(own, summary=change, **described(PutQueue, ShownQueue))(handlers.put)
    forget = "Delete a queue and its dead letters"
    router.delete(own, summary=forget, **described(None, Deleted))(handlers.delete)
    router.post(f"{own}/purge", summary="Drop all items", **described(PurgeQueue, Ready))(handlers.purge)
    go_on = "Go on at another place"
    router.post(f"{own}/seek", summary=go_on, **described(SeekQueue, Ready))(handlers.seek)
    again = "Put the dead letters back"
    router.post(f"{own}/redrive", summary=again, **described(PurgeQueue, Ready))(handlers.redrive)
    return router


async def _listed(leasing: Leasing) -> ShownQueue | None:
    """The queue in the list, without waiting for it; None if it is none (yet, or any more)."""
    try:
        async with asyncio.timeout(LIST_S):
            return await shown_queue(leasing)
    except NotFound:
        return None  # it is being created or deleted
    except (Unavailable, TimeoutError):
        return ShownQueue(queue=leasing.engine.name)


async def shown_queue(leasing: Leasing) -> ShownQueue:
    """The queue with what it holds now. Raises KafkaUnavailable."""
    engine = leasing.engine
    settings = engine.state.settings
    assert settings is not None
    status = engine.status()
    age_s = await leasing.oldest_age_s()
    return ShownQueue(
        queue=engine.name,
        dead=leasing.count_dead(),
        oldest_age_s=age_s,
        settings=shown_settings(settings),
        **msgspec.structs.asdict(status),
    )


async def _offsets(leasing: Leasing, asked: SeekQueue, ends: list[int]) -> list[int] | list[int | None]:
    """Where each partition goes, within what it has; None where it stays. Raises InvalidInput."""
    starts = await leasing.items.find("earliest")
    match asked.to:
        case "earliest":
            return starts
        case "latest":
            return ends
        case int() as time_ms if 0 <= time_ms <= MAX_TIME_MS:
            return await leasing.items.find(time_ms)
        case str() as text:
            try:
                return await leasing.items.find(parse_rfc3339(text))
            except FragmentRejected:
                raise InvalidInput("`to` is `earliest`, `latest`, a time, or offsets by partition") from None
        case dict() as given:
            to: list[int | None] = [None] * len(starts)
            for partition, offset in given.items():
                if partition not in map(str, range(len(to))):
                    raise InvalidInput(f"there is no partition {partition[:20]}")
                number = int(partition)
                to[number] = min(max(offset, starts[number]), ends[number])
            return to
    raise InvalidInput("a time is in ms, from 0 to the year 9999")


def _ready_after(state: QueueState, command: Seek, ends: list[int]) -> int:
    """How many items would be ready after a seek."""
    to = [command.goes_to(partition, at) for partition, at in enumerate(state.frontier)]
    left = sum(item.until_ms <= state.now_ms and item.offset < to[item.partition] for item in state.open)
    return left + sum(max(0, end - offset) for offset, end in zip(to, ends, strict=True))
