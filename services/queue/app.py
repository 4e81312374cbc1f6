"""The queue service's HTTP face: `create_face` builds it from its parts."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Final

from fastapi import FastAPI, Request, Response

from services.queue.http.admin import QueueHandlers, queue_routes
from services.queue.http.exchange import Desk
from services.queue.http.face import QueueFace
from services.queue.http.gate import KeyGate
from services.queue.http.keys import QueueKeys
from services.queue.http.metrics import QueueMetrics
from services.queue.http.peek import peek_routes
from services.queue.http.refusals import refusal
from services.queue.http.routes import ItemHandlers, item_routes
from services.queue.worker.queues import Queues
from shared.errors import BatonError
from shared.model.form import Form
from shared.service.api_docs import NO_DOCS, install_docs
from shared.service.guard import Guard, Guarded
from shared.service.http import HeadAnswers, install_health, install_problems
from shared.service.inflight import Inflight

TYPES: Final = (Form.JSON.value, Form.NDJSON.value)
"""Of bodies. Not text, as producers take it: any page may post that."""


def create_face(
    queues: Queues,
    inflight: Inflight,
    leaving: asyncio.Event,
    keys: QueueKeys | None = None,
    hosts: Iterable[str] = (),
) -> QueueFace:
    """The face over the queues, for whom `keys` lets in; `inflight` bounds its requests.

    `hosts`: the names under which the worker is reached.

    Once it is `leaving`, it is not ready and its long polls end.
    """
    app = FastAPI(
        title="Baton queue",
        description="Items, each to one client at a time, until it is done.",
        version="1",
        redirect_slashes=False,
        **NO_DOCS,
    )
    keys = keys or QueueKeys()
    app.add_middleware(HeadAnswers)
    install_problems(app)

    async def refused(_: Request, error: Exception) -> Response:
        assert isinstance(error, BatonError)
        return refusal(error)

    app.add_exception_handler(BatonError, refused)

    def complaints() -> list[str]:
        stopping = "the service is stopping" if leaving.is_set() else ""
        return [*queues.complaints(), *filter(None, (keys.complaint(), stopping))]

    def remarks() -> list[str]:
        return [*queues.remarks(), *keys.remarks()]

    install_health(app, complaints, QueueMetrics(queues).registry, remarks=remarks)
    app.include_router(queue_routes(QueueHandlers(queues)))
    app.include_router(peek_routes(queues))
    app.include_router(item_routes())
    install_docs(app)
    guard = Guard(hosts, types=TYPES)
    handlers = ItemHandlers(queues, leaving).by_name()
    desk = Desk(guard=guard, keys=keys, inflight=inflight, handlers=handlers)
    # guard and gate outside: a request that may not be made is refused before its body is read
    return QueueFace(desk, Guarded(KeyGate(app, keys), guard))
