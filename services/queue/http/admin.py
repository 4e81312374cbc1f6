"""The routes of queues as a whole: create, show, seek, purge, redrive, delete."""

from __future__ import annotations

import contextlib

import msgspec
from fastapi import APIRouter, Request, Response

from services.queue.core.queue_state import QueueState
from services.queue.http.bodies import small_body
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
from services.queue.worker.engine import QueueRefused
from services.queue.worker.leasing import Leasing
from services.queue.worker.queues import Queues
from shared.errors import InvalidInput, NotFound
from shared.model.fragments import FragmentRejected, parse_rfc3339


def queue_routes(queues: Queues) -> APIRouter:
    """The routes of `/queues` and `/queues/{queue}`."""
    router = APIRouter(prefix="/queues", tags=["queues"])

    @router.get("", summary="All queues", **described(None, ShownQueues))
    async def list_queues() -> Response:
        found = []
        for name in queues.names:
            with contextlib.suppress(NotFound, QueueRefused):  # it is being created or deleted, or is too new
                found.append(await shown_queue(await queues.find(name)))
        return shown(ShownQueues(queues=found))

    @router.get("/{queue}", summary="A queue", **described(None, ShownQueue))
    async def show(queue: str) -> Response:
        return shown(await shown_queue(await queues.find(queue)))

    @router.put(
        "/{queue}", summary="Create a queue, or change its settings", **described(PutQueue, ShownQueue)
    )
    async def put(queue: str, request: Request) -> Response:
        asked = parse(await small_body(request), PutQueue)
        return shown(await shown_queue(await queues.put(queue, asked.changes())))

    @router.delete("/{queue}", summary="Delete a queue and its dead letters", **described(None, Deleted))
    async def delete(queue: str) -> Response:
        await queues.delete(queue)
        return shown(Deleted())

    @router.post("/{queue}/purge", summary="Drop all items", **described(PurgeQueue, Ready))
    async def purge(queue: str, request: Request) -> Response:
        leasing = await queues.find(queue)
        asked = parse(await small_body(request), PurgeQueue)
        to = await leasing.items.find("latest")
        if asked.dry_run:
            status = leasing.engine.status()
            return shown(Ready(ready=status.ready + status.leased + status.waiting))
        return shown(Ready(ready=(await leasing.seek(to, drop=True)).ready))

    @router.post("/{queue}/seek", summary="Go on at another place", **described(SeekQueue, Ready))
    async def seek(queue: str, request: Request) -> Response:
        leasing = await queues.find(queue)
        asked = parse(await small_body(request), SeekQueue)
        to = await _offsets(leasing, asked)
        if asked.dry_run:
            return shown(
                Ready(ready=_ready_after(leasing.engine.state, to, await leasing.items.find("latest")))
            )
        return shown(Ready(ready=(await leasing.seek(to)).ready))

    @router.post("/{queue}/redrive", summary="Put the dead letters back", **described(PurgeQueue, Ready))
    async def redrive(queue: str, request: Request) -> Response:
        leasing = await queues.find(queue)
        asked = parse(await small_body(request), PurgeQueue)
        if asked.dry_run:
            return shown(Ready(ready=leasing.engine.status().ready + leasing.dead.engine.status().ready))
        return shown(Ready(ready=(await leasing.redrive()).ready))

    return router


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


async def _offsets(leasing: Leasing, asked: SeekQueue) -> list[int]:
    """The offset that each partition goes to, within what it has. Raises InvalidInput."""
    starts, ends = await leasing.items.find("earliest"), await leasing.items.find("latest")
    match asked.to:
        case "earliest":
            return starts
        case "latest":
            return ends
        case int() as time_ms if time_ms >= 0:
            return await leasing.items.find(time_ms)
        case str() as text:
            try:
                return await leasing.items.find(parse_rfc3339(text))
            except FragmentRejected:
                raise InvalidInput("`to` is `earliest`, `latest`, a time, or offsets by partition") from None
        case dict() as given:
            to = list(leasing.engine.state.frontier)
            for partition, offset in given.items():
                if not partition.isdecimal() or int(partition) >= len(to):
                    raise InvalidInput(f"there is no partition {partition[:20]}")
                number = int(partition)
                to[number] = min(max(offset, starts[number]), ends[number])
            return to
    raise InvalidInput("a time is not negative")


def _ready_after(state: QueueState, to: list[int], ends: list[int]) -> int:
    """How many items would be ready after a seek."""
    left = sum(item.until_ms <= state.now_ms and item.offset < to[item.partition] for item in state.open)
    return left + sum(max(0, end - offset) for offset, end in zip(to, ends, strict=True))
