"""The producer's part of ZooKeeper: the stream table that it routes by, and its own registration.

The first producer creates the table and its topics. Each producer watches the table and keeps its ephemeral
znode `producers/<id>` across ZooKeeper sessions. Once it has a table, a producer works without ZooKeeper.
Used by `__main__.py`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import os
import time
from collections.abc import Callable

import msgspec

from services.producer.settings import DEFAULT_STREAMS, ProducerSettings
from shared.backoff import Backoff
from shared.errors import Unavailable, ZooKeeperUnavailable
from shared.kafka.admin.append_times import TimesNotOfBroker, check_append_times
from shared.kafka.admin.topics import ensure_topics, rejected_topic
from shared.model.cluster import ProducerNode
from shared.model.routing import StreamTable, parse_table
from shared.zookeeper.stream_table import REREAD_S, TableUnreadable, ensure_table
from shared.zookeeper.unreadable import UnreadableZnodes
from shared.zookeeper.znodes import Znode, Znodes

CLOCK_S = 60.0
"""So often the topics are asked again whose time their records bear: an operator may change that."""
logger = logging.getLogger(__name__)


class Registration:
    """Keeps `table` current and the producer registered while `run()` runs; `on_table` gets every table."""

    def __init__(
        self, znodes: Znodes, settings: ProducerSettings, on_table: Callable[[StreamTable], None]
    ) -> None:
        self._znodes = znodes
        self._settings = settings
        self._on_table = on_table
        self._changed = asyncio.Event()
        self._entry = msgspec.json.encode(
            ProducerNode(
                address=settings.address,
                private_address=settings.private_address,
                pid=os.getpid(),
                since=time.time_ns() // 1_000_000,
            )
        )
        self._unreadable = UnreadableZnodes()
        self.table: StreamTable | None = None
        """The last readable one."""
        self.table_json = b""
        self._failure = "no stream table yet"
        self._clock_checked_s = -math.inf

    def __repr__(self) -> str:
        return f"<Registration of {self._settings.id}: {self.complaint() or f'{self.table_json[:40]!r}…'}>"

    @property
    def unreadable_znodes(self) -> int:
        """1 while the stream table cannot be decoded, else 0."""
        return len(self._unreadable)

    def complaint(self) -> str:
        """Why there is no table to route by; empty if there is one."""
        return "" if self.table is not None else self._failure

    async def run(self) -> None:
        """Steps now, at every change, and every few seconds until cancelled; retries Unavailable.

        Raises WrongNumberOfStreams or InvalidInput if the settings contradict the stored table.
        """
        backoff = Backoff(first_s=0.2, cap_s=REREAD_S)
        while True:
            try:
                await self.step()
            except Unavailable as error:
                self._failure = error.reason
                logger.warning("stream table or registration failed", extra={"why": error.detail})
                await asyncio.sleep(backoff.next_s())
                continue
            backoff.reset()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(REREAD_S):
                    await self._changed.wait()

    async def step(self) -> None:
        """Reads (or creates) the table, and registers the producer unless it is registered.

        Raises what `run` raises, and Unavailable. Without the broker's time in the topics there is no table.
        """
        self._changed.clear()
        names = self._settings.names
        found = await self._znodes.get(names.table, watch=self._on_change)
        table = self._decoded(found)
        await self._check_clock()
        if found is None or self.table is None:
            await self._ensure_table()
            # again, for the watch: there was nothing to watch before
            found = await self._znodes.get(names.table, watch=self._on_change)
            if found is None:
                raise ZooKeeperUnavailable("the stream table was deleted right after it was created")
            table = self._decoded(found)
        if table is not None and found.data != self.table_json:
            # the bytes are kept as well: `GET /table` returns the znode unchanged
            self.table, self.table_json = table, found.data
            logger.info("stream table read", extra={"streams": table.count, "version": table.version})
            self._on_table(table)
        await self._register()

    async def _check_clock(self) -> None:
        """Before the table is made, and now and then. Raises TimesNotOfBroker: until then, nothing is
        accepted."""
        now_s = time.monotonic()
        if self.table is not None and now_s - self._clock_checked_s < CLOCK_S:
            return
        try:
            await check_append_times(self._settings.kafka_access, self._settings.names)
        except TimesNotOfBroker:
            self.table, self.table_json = None, b""
            raise
        except Unavailable:
            # what was right a minute ago still is; a producer with a table needs no administrator of Kafka
            if self.table is None:
                raise
            return
        self._clock_checked_s = now_s

    def _decoded(self, found: Znode | None) -> StreamTable | None:
        """The table in its znode; None if there is none, or if it is unreadable: the last good one stays.

        Raises TableUnreadable if there is no last good one.
        """
        if found is None:
            return None
        table = self._unreadable.decode(self._settings.names.table, found.data, parse_table)
        if table is None and self.table is None:
            raise TableUnreadable
        return table

    async def _ensure_table(self) -> None:
        settings = self._settings
        await ensure_table(
            self._znodes,
            settings.names,
            kafka=settings.kafka_access,
            # a table that was deleted is created again with as many streams as it had
            streams=self.table.count if self.table else settings.streams,
            default_streams=DEFAULT_STREAMS,
            retention_ms=settings.retention_ms,
            replication=settings.replication,
        )
        # created here with the other topics, so that rejects only have to write
        await ensure_topics(settings.kafka_access, [rejected_topic(settings.names)], settings.replication)

    async def _register(self) -> None:
        path = self._settings.names.producer(self._settings.id)
        session = self._znodes.session
        if session is None:
            raise ZooKeeperUnavailable
        found = await self._znodes.get(path, watch=self._on_change)
        if found is not None and found.ephemeral_of == session.id:
            return
        if found is not None:
            # of our earlier ZooKeeper session: the znode would vanish together with that session
            await self._znodes.delete(path, found.version, within=session.id)
        await self._znodes.make_path(self._settings.names.producers)
        await self._znodes.create(path, self._entry, ephemeral=True, within=session.id)
        # watch our own znode too: if it is deleted, we register again
        await self._znodes.get(path, watch=self._on_change)

    def _on_change(self, _: str) -> None:
        self._changed.set()
