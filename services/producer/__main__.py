"""Wires the producer: settings, Kafka, ZooKeeper and the HTTP face; and the order in which it stops.

A producer answers from the start (503 until it is ready), so it may start before Kafka and ZooKeeper.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import dataclasses
import math
import sys
from collections.abc import AsyncIterator, Coroutine, Iterator
from typing import Any

from services.producer.app import create_face
from services.producer.http.access.keys import WriteKeys, parse_keys
from services.producer.http.face import ProducerFace
from services.producer.http.metrics import ProducerMetrics
from services.producer.http.public import PublicFace
from services.producer.kafka.rejects import KafkaRejects
from services.producer.kafka.sink import KafkaFragmentSink
from services.producer.registration import Registration
from services.producer.settings import ProducerSettings
from shared.kafka.connect.cluster import Cluster
from shared.model.routing import StreamTable
from shared.server.bounds import bounds_for
from shared.server.connections import Reserve
from shared.server.listener import http_server
from shared.service.runtime import main, tune_garbage_collection
from shared.zookeeper.connection import ZooKeeper

FREED_BYTES = 32 * 1024 * 1024
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
"""Options of glibc's `mallopt`: how much may be free at the heap's end, and what is mapped apart from it."""


class Producer:
    """One process that accepts fragments: its parts, and the order in which they start and stop."""

    def __init__(self, settings: ProducerSettings) -> None:
        self._settings = settings
        self._metrics = ProducerMetrics()
        self._cluster = Cluster(settings.kafka_access)
        self._sink = KafkaFragmentSink(
            self._cluster,
            ack_timeout_s=settings.ack_timeout_s,
            max_batch_bytes=settings.max_batch_bytes,
            compression=settings.compression,
            on_lost=self._on_lost,
        )
        self._zookeeper = ZooKeeper(
            settings.zookeeper, settings.zookeeper_timeout_s, settings.zookeeper_access
        )
        self._registration = Registration(self._zookeeper, settings, self._on_table)
        self._metrics.unreadable_znodes = lambda: self._registration.unreadable_znodes
        self._keys = WriteKeys(parse_keys(settings.write_keys.split(",")), settings.keys_file)
        self._rejects = KafkaRejects(
            self._cluster,
            settings.names,
            share_bytes=settings.reject_share_bytes,
            writers=self._keys.writers,
        )
        self._face = create_face(
            settings=settings,
            sink=self._sink,
            rejects=self._rejects,
            table=lambda: self._registration.table,
            table_json=lambda: self._registration.table_json,
            complaints=lambda: [self._registration.complaint(), self._sink.complaint()],
            metrics=self._metrics,
            cluster_id=lambda: self._cluster.id,
            keys=self._keys,
        )

    async def serve(self, stop: asyncio.Event) -> None:
        """Runs until `stop`; then rejects new requests, finishes those in flight, and unregisters."""
        await self._keys.step()
        tune_garbage_collection()
        _keep_freed_memory()
        try:
            async with asyncio.TaskGroup() as tasks:
                running = [tasks.create_task(work, name=name) for name, work in self._background_work()]
                async with self._listeners():
                    await stop.wait()
                    self._face.door.leave()
                # after the last request: nothing is queued any more
                await self._rejects.flush()
                for task in running:
                    task.cancel()
        finally:
            await self._cluster.close()
            await self._zookeeper.close()

    @contextlib.asynccontextmanager
    async def _listeners(self) -> AsyncIterator[None]:
        settings, private = self._settings, self._settings.private_listener
        face = self._face
        public = face if private is None else ProducerFace(face.door, PublicFace(face.app))
        listeners = [(public, settings.host, settings.port)]
        if private is not None:
            # all of it, because the page at `/try` sends its fragments to its own origin
            listeners.insert(0, (face, *private))
        bounds = bounds_for(settings, len(listeners))
        async with contextlib.AsyncExitStack() as servers:
            for face, host, port in listeners:
                server = http_server(
                    face,
                    host,
                    port,
                    bounds=dataclasses.replace(bounds, reserve=Reserve()),
                    tls=settings.tls,
                    grace_s=math.ceil(settings.ack_timeout_s) + 1,
                )
                await servers.enter_async_context(server)
            yield

    def _background_work(self) -> Iterator[tuple[str, Coroutine[Any, Any, None]]]:
        yield "kafka sink", self._sink.run()
        yield "kafka rejects", self._rejects.run()
        yield "registration", self._register()
        if self._settings.keys_file is not None:
            yield "write keys", self._keys.run()

    async def _register(self) -> None:
        await self._zookeeper.connect()
        await self._registration.run()

    def _on_table(self, table: StreamTable) -> None:
        self._sink.set_topics([self._settings.names.fragments(stream) for stream in range(table.count)])

    def _on_lost(self) -> None:
        self._metrics.lost_batches += 1


def _keep_freed_memory() -> None:
    """Has the C library keep what is freed, up to FREED_BYTES; libraries other than glibc do as they do."""
    # bodies and requests of 0.1 to 2 MB come and go: fetching their pages anew costs a quarter of a fragment
    libc = ctypes.CDLL(None)
    if hasattr(libc, "mallopt"):
        libc.mallopt(_M_TRIM_THRESHOLD, FREED_BYTES)
        libc.mallopt(_M_MMAP_THRESHOLD, FREED_BYTES)


async def run(settings: ProducerSettings, stop: asyncio.Event) -> None:
    """Runs a producer until `stop`."""
    await Producer(settings).serve(stop)


if __name__ == "__main__":
    sys.exit(main("producer", ProducerSettings, run))
