"""The routes by which control looks into a member's streams: a key's open session, the oldest and heaviest.

Open sessions are users' data, so requests must be signed like those of a handover. A look at a whole stream
visits all that is open, in slices, one look at a time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Annotated

import msgspec
from fastapi import FastAPI, Query, Request, Response

from services.consumer.core.commits.held import held_key, looking_over
from services.consumer.core.commits.stream import Stream
from services.consumer.handover.routes import Reception, envelope_of
from services.consumer.stream.slices import in_slices
from services.consumer.stream.worker import StreamWorker
from shared.errors import NotOwner, Unavailable
from shared.model.fragments import MAX_KEY_BYTES

KNOWN_IN = frozenset({"running", "stopping"})
"""In other states of a worker, its memory may lack sessions, or may no longer be true."""


def install_lookup(
    app: FastAPI, reception: Callable[[], Reception | None], workers: Callable[[], Sequence[StreamWorker]]
) -> None:
    """`/open/…`; `reception()` is None until the member has joined."""
    one_look = asyncio.Lock()

    def opened(request: Request, stream: int) -> Stream:
        at = reception()
        if at is None:
            raise Unavailable("this member has not joined its group yet")
        envelope_of(request, at)
        return known_stream(workers(), stream, at.here.member)

    @app.get("/open/{stream}", tags=["look-up"], summary="Report what a stream holds")
    async def get_open(request: Request, stream: int) -> Response:
        core = opened(request, stream)
        async with one_look:
            held = await in_slices(looking_over(core))
        return Response(msgspec.json.encode(held), media_type="application/json")

    @app.get("/open/{stream}/session", tags=["look-up"], summary="Report the open session of a key")
    async def get_session(
        request: Request, stream: int, key: Annotated[str, Query(max_length=MAX_KEY_BYTES)]
    ) -> Response:
        held = held_key(opened(request, stream), key)
        return Response(msgspec.json.encode(held), media_type="application/json")


def known_stream(workers: Sequence[StreamWorker], stream: int, member: str) -> Stream:
    """The stream as it stands in memory.

    Raises NotOwner if no worker runs it, and Unavailable while what is open is not all known.
    """
    worker = next((one for one in workers if one.stream == stream), None)
    if worker is None:
        raise NotOwner(f"{member} does not own stream {stream}")
    if worker.core is None or worker.state not in KNOWN_IN:
        raise Unavailable(f"{member} does not know yet what is open in stream {stream}: it is {worker.state}")
    return worker.core
