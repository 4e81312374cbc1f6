"""Wires the producer: settings, Kafka, ZooKeeper, the HTTP face; and the order in which it stops.

With BATON_WORKERS above 1 the process that was started only looks after its workers.
It answers from the start (503 until it is ready), so that it may start before Kafka and ZooKeeper.
"""

from __future__ import annotations

import asyncio
import functools
import gc
import math
import sys
from typing import Any

from services.producer.adapters.kafka_rejects import KafkaRejects
from services.producer.adapters.kafka_sink import KafkaFragmentSink
from services.producer.adapters.uvicorn_protocol import BoundedHttpProtocol, Bounds
from services.producer.app import create_app
from services.producer.keys import WriteKeys, parse_keys
from services.producer.metrics import ProducerMetrics
from services.producer.presence import Presence
from services.producer.settings import ProducerSettings
from services.producer.tallies import Tallies
from services.producer.workers import STOP_GRACE_S, Worker, Workers
from shared.routing import StreamTable
from shared.runtime import http_server, main
from shared.zookeeper import ZooKeeper

KEEP_ALIVE_S = 65
"""Above the 60 s after which load balancers drop idle connections: they must be the ones to close."""


async def run(settings: ProducerSettings, stop: asyncio.Event) -> None:
    """Runs a producer, or one of its workers, or (the parent) all of them until `stop`."""
    worker = Worker.from_argv(sys.argv)
    if worker is not None:
        worker.name_in_logs()
        worker.follow_parent(stop, settings.ack_timeout_s + STOP_GRACE_S)
        await serve(worker.settings(settings), stop, worker)
    elif settings.workers > 1:
        await Workers(settings, [sys.executable, *sys.orig_argv[1:]]).run(stop)
    else:
        await serve(settings, stop)


async def serve(settings: ProducerSettings, stop: asyncio.Event, worker: Worker | None = None) -> None:
    """Runs a producer until `stop`; then refuses new requests, finishes those in flight, and leaves."""
    metrics = ProducerMetrics()
    tallies = None
    if worker is not None:
        tallies = Tallies(worker.folder, worker.number, metrics.collect)
        metrics.registry = tallies.registry

    def on_replaced() -> None:
        metrics.replaced += 1

    sink = KafkaFragmentSink(
        settings.kafka,
        ack_timeout_s=settings.ack_timeout_s,
        max_batch_bytes=settings.max_batch_bytes,
        compression=settings.compression,
        on_replaced=on_replaced,
    )
    rejects = KafkaRejects(settings.kafka, settings.names)

    def on_table(table: StreamTable) -> None:
        sink.set_topics([settings.names.fragments(stream) for stream in range(table.count)])
        if worker is not None:
            worker.was_ready.touch()

    zookeeper = ZooKeeper(settings.zookeeper, settings.zookeeper_timeout_s)
    presence = Presence(zookeeper, settings, on_table)
    keys = WriteKeys(parse_keys(settings.write_keys.split(",")), settings.keys_file)
    await keys.step()
    door = create_app(
        settings=settings,
        sink=sink,
        rejects=rejects,
        table=lambda: presence.table,
        table_json=lambda: presence.table_json,
        complaints=lambda: [presence.complaint(), sink.complaint()],
        metrics=metrics,
        keys=keys,
    )
    bounds = Bounds(
        header_timeout_s=settings.header_timeout_s,
        body_timeout_s=settings.read_timeout_s,
        headers_for=door.headers,
        on_refused=metrics.refuse,
    )
    grace_s = math.ceil(settings.ack_timeout_s) + 1
    options: dict[str, Any] = {
        "is_shared": worker is not None,
        "http": functools.partial(BoundedHttpProtocol, bounds=bounds),
        "ws": "none",
        "lifespan": "off",
        "proxy_headers": False,
        "timeout_keep_alive": KEEP_ALIVE_S,
        "timeout_graceful_shutdown": grace_s,
    }

    async def keep_present() -> None:
        await zookeeper.connect()
        await presence.run()

    # what is imported stays: looking at it again in every full collection costs 10 % of a request
    gc.collect()
    gc.freeze()
    try:
        async with asyncio.TaskGroup() as tasks:
            running = [
                tasks.create_task(sink.run(), name="kafka sink"),
                tasks.create_task(rejects.run(), name="kafka rejects"),
                tasks.create_task(keep_present(), name="presence"),
                *([tasks.create_task(keys.run(), name="write keys")] if settings.keys_file else []),
                *([tasks.create_task(tallies.run(), name="tallies")] if tallies else []),
            ]
            async with http_server(door, settings.host, settings.port, **options):
                await stop.wait()
                door.leave()
            await rejects.flush()
            if tallies is not None:
                tallies.write()
            for task in running:
                task.cancel()
    finally:
        await zookeeper.close()


if __name__ == "__main__":
    sys.exit(main("producer", ProducerSettings, run))
