"""Wires the queue service: settings, Kafka, the queues and their HTTP face; and closes them.

It answers requests from the start (503 until Kafka is there). It owns nothing, so it leaves without a word.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from services.queue.app import create_face
from services.queue.http.keys import QueueKeys
from services.queue.kafka.store import KafkaQueueStore
from services.queue.settings import QueueServiceSettings
from services.queue.worker.queues import Queues
from shared.server.bounds import bounds_for
from shared.server.listener import http_server
from shared.service.inflight import Inflight
from shared.service.runtime import main, tune_garbage_collection


async def serve(settings: QueueServiceSettings, stop: asyncio.Event) -> None:
    """Runs a worker of all queues until `stop`."""
    leaving = asyncio.Event()
    async with KafkaQueueStore.connected(
        settings.kafka_access,
        settings.names,
        replication=settings.replication,
        ack_timeout_s=settings.ack_timeout_s,
        max_cache_bytes=settings.max_cache_bytes,
    ) as store:
        queues = Queues(store, max_answer_bytes=settings.max_answer_bytes)
        keys = QueueKeys(Path(settings.queue_keys_file) if settings.queue_keys_file else None)
        await keys.step()
        running = [
            asyncio.create_task(queues.run(), name="queues"),
            asyncio.create_task(keys.run(), name="keys"),
        ]
        inflight = Inflight(settings.max_inflight_bytes)
        face = create_face(queues, inflight, leaving, keys, settings.own_hosts)
        tune_garbage_collection()
        try:
            async with http_server(
                face, settings.host, settings.port, bounds=bounds_for(settings), tls=settings.tls
            ):
                await stop.wait()
                leaving.set()
        finally:
            for task in running:
                task.cancel()
            await asyncio.wait(running)


if __name__ == "__main__":
    sys.exit(main("queue", QueueServiceSettings, serve))
