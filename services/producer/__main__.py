"""Wires the producer: settings, Kafka, ZooKeeper, the HTTP face; and the order in which it stops.

With BATON_WORKERS above 1 the process that was started only looks after its workers.
It answers from the start (503 until it is ready), so that it may start before Kafka and ZooKeeper.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import gc
import math
import sys
from collections.abc import Coroutine, Iterator
from typing import Any

from services.producer.app import create_app
from services.producer.http.keys import WriteKeys, parse_keys
from services.producer.http.metrics import ProducerMetrics
from services.producer.http.protocol import BoundedHttpProtocol, Bounds
from services.producer.kafka.rejects import KafkaRejects
from services.producer.kafka.sink import KafkaFragmentSink
from services.producer.process.registration import Registration
from services.producer.process.worker_metrics import WorkerMetrics
from services.producer.process.workers import STOP_GRACE_S, Worker, Workers
from services.producer.settings import ProducerSettings
from shared.model.routing import StreamTable
from shared.service.runtime import http_server, main
from shared.zookeeper.connection import ZooKeeper

KEEP_ALIVE_S = 65
"""Above the 60 s after which load balancers drop idle connections: they must be the ones to close."""


class Producer:
    """One process that takes fragments: its parts, wired, and the order in which they start and stop."""

    def __init__(self, settings: ProducerSettings, worker: Worker | None = None) -> None:
        self._settings = settings
        self._worker = worker
        self._metrics = ProducerMetrics()
        self._tallies = None
        if worker is not None:
            self._tallies = WorkerMetrics(worker.folder, worker.number, self._metrics.collect)
            self._metrics.registry = self._tallies.registry
        self._sink = KafkaFragmentSink(
            settings.kafka,
            ack_timeout_s=settings.ack_timeout_s,
            max_batch_bytes=settings.max_batch_bytes,
            compression=settings.compression,
            on_replaced=self._on_replaced,
        )
        self._rejects = KafkaRejects(settings.kafka, settings.names)
        self._zookeeper = ZooKeeper(settings.zookeeper, settings.zookeeper_timeout_s)
        self._presence = Registration(self._zookeeper, settings, self._on_table)
        self._keys = WriteKeys(parse_keys(settings.write_keys.split(",")), settings.keys_file)
        self._door = create_app(
            settings=settings,
            sink=self._sink,
            rejects=self._rejects,
            table=lambda: self._presence.table,
            table_json=lambda: self._presence.table_json,
            complaints=lambda: [self._presence.complaint(), self._sink.complaint()],
            metrics=self._metrics,
            keys=self._keys,
        )

    async def serve(self, stop: asyncio.Event) -> None:
        """Runs until `stop`; then refuses new requests, finishes those in flight, and leaves."""
        await self._keys.step()
        # what is imported stays: looking at it again in every full collection costs 10 % of a request
        gc.collect()
        gc.freeze()
        # requests make no rings: looking for them among all that are under way costs 5 % of one
        gc.set_threshold(20_000, 20, 20)
        try:
            async with asyncio.TaskGroup() as tasks:
                running = [tasks.create_task(work, name=name) for name, work in self._side_work()]
                async with http_server(
                    self._door, self._settings.host, self._settings.port, **self._server_options()
                ):
                    await stop.wait()
                    self._door.leave()
                await self._rejects.flush()
                if self._tallies is not None:
                    with contextlib.suppress(OSError):
                        self._tallies.write()
                for task in running:
                    task.cancel()
        finally:
            await self._zookeeper.close()

    def _side_work(self) -> Iterator[tuple[str, Coroutine[Any, Any, None]]]:
        yield "kafka sink", self._sink.run()
        yield "kafka rejects", self._rejects.run()
        yield "presence", self._keep_present()
        if self._settings.keys_file is not None:
            yield "write keys", self._keys.run()
        if self._tallies is not None:
            yield "tallies", self._tallies.run()

    def _server_options(self) -> dict[str, Any]:
        bounds = Bounds(
            header_timeout_s=self._settings.header_timeout_s,
            body_timeout_s=self._settings.read_timeout_s,
            headers_for=self._door.headers,
            on_refused=self._metrics.refuse,
        )
        return {
            "is_shared": self._worker is not None,
            "http": functools.partial(BoundedHttpProtocol, bounds=bounds),
            "ws": "none",
            "lifespan": "off",
            "proxy_headers": False,
            "timeout_keep_alive": KEEP_ALIVE_S,
            "timeout_graceful_shutdown": math.ceil(self._settings.ack_timeout_s) + 1,
        }

    async def _keep_present(self) -> None:
        await self._zookeeper.connect()
        await self._presence.run()

    def _on_table(self, table: StreamTable) -> None:
        self._sink.set_topics([self._settings.names.fragments(stream) for stream in range(table.count)])
        if self._worker is not None:
            self._worker.was_ready.touch()

    def _on_replaced(self) -> None:
        self._metrics.replaced += 1


async def run(settings: ProducerSettings, stop: asyncio.Event) -> None:
    """Runs a producer, or one of its workers, or (the parent) all of them until `stop`."""
    worker = Worker.from_argv(sys.argv)
    if worker is not None:
        worker.name_in_logs()
        worker.follow_parent(stop, settings.ack_timeout_s + STOP_GRACE_S)
        await Producer(worker.settings(settings), worker).serve(stop)
    elif settings.workers > 1:
        await Workers(settings, [sys.executable, *sys.orig_argv[1:]]).run(stop)
    else:
        await Producer(settings).serve(stop)


if __name__ == "__main__":
    sys.exit(main("producer", ProducerSettings, run))
