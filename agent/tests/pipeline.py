"""A producer and a consumer as real processes on the test run's servers, and the sessions that they deliver.

There is one stream and one partition of sessions, so a test reads each of them at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx

from shared.model.names import Names
from shared.model.sessions import Session
from tests.e2e.readers import Where
from tests.e2e.service import Service
from tests.servers import free_port

DEADLINE_S = 300.0
END_OF_TIME_MS = 9_000_000_000_000


def until(reached: Callable[[], Any], message: Callable[[], object], within_s: float = DEADLINE_S) -> Any:
    """The first true result of `reached`; fails at the deadline with `message()`."""
    deadline = time.monotonic() + within_s
    while not (found := reached()):
        assert time.monotonic() < deadline, message()
        time.sleep(0.03)
    return found


class Pipeline:
    """The two processes, the log between them, and the sessions behind them."""

    def __init__(self, kafka: str, zookeeper: str, namespace: str, home: Path) -> None:
        self._home = home
        self._where = Where(kafka, Names(namespace), 1, 1)
        self._environment = {
            "BATON_KAFKA": kafka,
            "BATON_ZOOKEEPER": zookeeper,
            "BATON_NAMESPACE": namespace,
            "BATON_STREAMS": "1",
            "BATON_SESSION_PARTITIONS": "1",
            "BATON_SETTLE_S": "1",
            "BATON_COMMIT_S": "0.1",
        }
        self.url = ""

    @contextlib.contextmanager
    def running(self) -> Iterator[Pipeline]:
        """Runs one producer, at `url`, and one consumer for the block."""
        with self.producer() as self.url, self._process("consumer", f"http://127.0.0.1:{free_port()}"):
            yield self

    @contextlib.contextmanager
    def producer(self, **settings: object) -> Iterator[str]:
        """Runs a producer with these settings (`write_keys="x"` → BATON_WRITE_KEYS); yields its base URL."""
        url = f"http://127.0.0.1:{free_port()}"
        with self._process("producer", url, **settings):
            yield url

    @contextlib.contextmanager
    def _process(self, service: str, url: str, **settings: object) -> Iterator[None]:
        port = url.rpartition(":")[2]
        given = {f"BATON_{name.upper()}": str(value) for name, value in settings.items()}
        environment = self._environment | given | {"BATON_PORT": port}
        process = Service(f"services.{service}", self._home / f"{service}-{port}.log", environment)
        process.start()
        try:
            until(lambda: _is_ready(url), lambda: f"{service} is not ready: {process.tail()}")
            yield
        finally:
            process.end()

    def log(self, key: str) -> list[dict[str, Any]]:
        """All fragments of a key in Kafka, including repeats."""
        records = asyncio.run(self._where.log(0))
        fragments = [json.loads(record.value) for record in records if record.key is not None]
        return [fragment for fragment in fragments if fragment["key"] == key]

    def until_stored(self, key: str, count: int) -> None:
        """Waits until Kafka has `count` different fragments of the key."""
        until(
            lambda: len({fragment["id"] for fragment in self.log(key)}) >= count,
            lambda: f"{len({fragment['id'] for fragment in self.log(key)})} of {count} fragments are stored",
        )

    def sessions(self, key: str) -> list[Session]:
        """The sessions of a key, after a marker has closed the open ones."""
        (marker,) = httpx.post(f"{self.url}/markers", json={"time": END_OF_TIME_MS}).json()["markers"]

        def position() -> int:
            heads = asyncio.run(self._where.heads())
            return heads[0].position if 0 in heads else -1

        until(lambda: position() > marker["offset"], lambda: f"the consumer is at {position()}: {marker}")
        return [session for session in asyncio.run(self._where.delivered()) if session.key == key]


def _is_ready(url: str) -> bool:
    with contextlib.suppress(httpx.TransportError):
        return httpx.get(f"{url}/readyz").status_code == 200
    return False
