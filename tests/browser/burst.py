"""Fragments that come faster than a member can read them, written into the log of one stream."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import threading
import time
from collections.abc import Iterator

import msgspec

from shared.kafka.connect.cluster import Cluster
from shared.kafka.send.sender import Sender
from shared.model.names import Names
from shared.model.routing import initial_table

AT_ONCE = 20_000
PAUSE_S = 0.05
KEYS = 40
HOT = 0.7
"""Part of the fragments that the first key has."""


@contextlib.contextmanager
def burst(kafka: str, names: Names, streams: int, stream: int) -> Iterator[None]:
    """Writes during the block; what has been written is still to be read afterwards."""
    stopped = threading.Event()
    writer = threading.Thread(target=lambda: asyncio.run(_write(kafka, names, streams, stream, stopped)))
    writer.start()
    try:
        yield
    finally:
        stopped.set()
        writer.join()


async def _write(kafka: str, names: Names, streams: int, stream: int, stopped: threading.Event) -> None:
    table, topic = initial_table(streams), names.fragments(stream)
    every = (f"guest-{n}" for n in itertools.count())
    keys = list(itertools.islice((key for key in every if table.stream_for(key.encode()) == stream), KEYS))
    async with Cluster(kafka) as cluster:
        sender = Sender(cluster, deliver_s=30.0, max_batch_bytes=512 * 1024, compression="zstd")
        try:
            chosen = [keys[0] if n < AT_ONCE * HOT else keys[n % KEYS] for n in range(AT_ONCE)]
            now_ms = time.time_ns() // 1_000_000
            records: list[tuple[bytes, bytes, list[tuple[str, bytes]]]] = [
                (
                    key.encode(),
                    msgspec.json.encode({"key": key, "time": now_ms, "data": {"path": f"/{n}"}}),
                    [],
                )
                for n, key in enumerate(chosen)
            ]
            while not stopped.is_set():
                await sender.send((topic, 0), records)
                await asyncio.sleep(PAUSE_S)
        finally:
            await sender.close()
