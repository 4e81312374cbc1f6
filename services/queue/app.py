"""The queue service's HTTP face: `create_app` builds it from its parts."""

from __future__ import annotations

import asyncio

from fastapi import FastAPI, Request, Response
from starlette.types import ASGIApp

from services.queue.http.admin import queue_routes
from services.queue.http.bodies import Bodies
from services.queue.http.keys import KeyGate, QueueKeys
from services.queue.http.metrics import QueueMetrics
from services.queue.http.routes import DirectRoutes, item_handlers, item_routes
from services.queue.worker.queues import Queues
from shared.errors import BatonError
from shared.service.api_docs import NO_DOCS, install_docs
from shared.service.http import HeadAnswers, install_health, install_problems
from shared.service.refusals import refusal


def create_app(
    queues: Queues, bodies: Bodies, leaving: asyncio.Event, keys: QueueKeys | None = None
) -> ASGIApp:
    """The app over the queues, for whom `keys` lets in.

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
        stopping = ["the service is stopping"] if leaving.is_set() else []
        return [*queues.complaints(), *keys.complaints(), *stopping]

    def remarks() -> list[str]:
        return [*queues.remarks(), *keys.remarks()]

    install_health(app, complaints, QueueMetrics(queues).registry, remarks=remarks)
    app.include_router(queue_routes(queues))
    handlers = item_handlers(queues, bodies, leaving)
    app.include_router(item_routes(handlers))
    install_docs(app)
    # the gate outside: a request that may not be made is refused before its body is read
    return KeyGate(DirectRoutes(app, handlers), keys)
