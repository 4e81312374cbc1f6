"""The HTTP face of a member: its status, its plan, handovers, look-ups, health and metrics."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec
from fastapi import FastAPI, Response

from services.consumer.handover.routes import Reception, install_handovers
from services.consumer.member.held_routes import install_lookup
from services.consumer.member.metrics import ConsumerMetrics
from services.consumer.stream.worker import StreamWorker
from shared.service.api_docs import NO_DOCS, install_docs
from shared.service.guard import Guard, Guarded
from shared.service.http import HeadAnswers, install_health, install_problems


def create_app(
    *,
    status: Callable[[], dict[str, Any]],
    plan: Callable[[], dict[str, Any]],
    complaints: Callable[[], list[str]],
    metrics: ConsumerMetrics,
    reception: Callable[[], Reception | None],
    workers: Callable[[], Sequence[StreamWorker]] = list,
    hosts: Iterable[str] = (),
) -> FastAPI:
    """The app over a member; it calls `status`, `plan` and `reception` (None: not joined yet) per request.

    `workers`: those that run now. `hosts`: the names under which the member is reached.
    """
    app = FastAPI(title="Baton consumer", summary="One member of a group", version="1", **NO_DOCS)
    app.add_middleware(HeadAnswers)
    # what acts is signed, so no page can send it, whatever its type
    app.add_middleware(Guarded, guard=Guard(hosts, is_exempt=lambda path, headers: True))
    install_problems(app)
    install_docs(app)
    install_health(app, complaints, metrics.registry)
    install_handovers(app, reception)
    install_lookup(app, reception, workers)

    @app.get("/status", tags=["member"], summary="Report what this member is and runs")
    async def get_status() -> Response:
        return Response(msgspec.json.encode(status()), media_type="application/json")

    @app.get("/plan", tags=["member"], summary="Report what would move, and why, by this member's view")
    async def get_plan() -> Response:
        return Response(msgspec.json.encode(plan()), media_type="application/json")

    return app
