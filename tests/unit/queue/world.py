"""Workers of the queue service in one process, over Kafka in memory, and HTTP clients of them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import httpx

from services.queue.app import create_face
from services.queue.core.replica import SNAPSHOT_EVERY
from services.queue.http.exchange import MAX_REQUEST_BYTES
from services.queue.http.face import QueueFace
from services.queue.ports import QueueStore
from services.queue.worker.answers import MAX_BYTES
from services.queue.worker.queues import Queues
from shared.service.inflight import Inflight
from tests.fakes.http import FaceTransport


@dataclass(frozen=True, slots=True)
class Worker:
    """A worker and a client of it."""

    queues: Queues
    face: QueueFace
    http: httpx.AsyncClient
    leaving: asyncio.Event
    task: asyncio.Task[None]

    async def call(self, method: str, path: str, body: Any = None, status: int = 200) -> Any:
        """The JSON of an answer to `/queues/…` with this status."""
        answer = await self.http.request(method, f"/queues/{path}", json=body)
        assert answer.status_code == status, answer.text
        return answer.json()

    async def put(self, *items: Any, queue: str = "q") -> None:
        """Puts these items."""
        await self.call("POST", f"{queue}/items", list(items))

    async def lease(self, queue: str = "q", **how: Any) -> list[dict[str, Any]]:
        """What a lease gets."""
        found: list[dict[str, Any]] = (await self.call("POST", f"{queue}/lease", how))["items"]
        return found

    async def kill(self) -> None:
        """Ends it without a word."""
        self.task.cancel()
        await asyncio.wait((self.task,))


@contextlib.asynccontextmanager
async def worker(
    store: QueueStore,
    *,
    snapshot_every: int = SNAPSHOT_EVERY,
    max_inflight_bytes: int = 16 * MAX_REQUEST_BYTES,
    max_answer_bytes: int = MAX_BYTES,
) -> AsyncIterator[Worker]:
    """A worker that runs during the block."""
    queues = Queues(store, snapshot_every=snapshot_every, max_answer_bytes=max_answer_bytes)
    leaving = asyncio.Event()
    task = asyncio.create_task(queues.run())
    face = create_face(queues, Inflight(max_inflight_bytes), leaving, hosts=["queue", "service"])
    transport = FaceTransport(face)
    async with httpx.AsyncClient(transport=transport, base_url="http://queue") as http:
        running = Worker(queues, face, http, leaving, task)
        try:
            yield running
        finally:
            await running.kill()


def receipts(items: list[dict[str, Any]]) -> list[str]:
    """The receipts of leased items."""
    return [item["receipt"] for item in items]
