"""A group with members as processes, on real servers, to measure what movements of streams cost.

Creates streams and topics, starts and stops members (`observed_member.py`) and a steady load (`steady.py`),
pins streams, and reads the members' events from the topic `baton.events`. Every wait is bounded.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Self

import httpx
import msgspec
from aiokafka import AIOKafkaConsumer

from bench.trace import Line, read_trace
from cli.stack.processes.leash import on_leash
from shared.kafka.admin.topics import checkpoints_topic, ensure_topics, events_topic, sessions_topic
from shared.kafka.connect.cluster import Cluster
from shared.kafka.read.offsets import LATEST, list_offsets
from shared.model.events import Event, parse_event
from shared.model.names import DEFAULT_GROUP, Names
from shared.zookeeper.connection import ZooKeeper
from shared.zookeeper.stream_table import ensure_table
from tests.servers import free_port

DEADLINE_S = 60.0
SESSION_PARTITIONS = 6
LOOK_S = 0.05

Rows = dict[str, list[dict[str, Any]]]
"""Member → a row of its `/status` for each stream that it runs."""


def is_balanced(rows: Rows) -> bool:
    """Whether the members' shares differ by at most one."""
    shares = [len(mine) for mine in rows.values()]
    return max(shares) - min(shares) <= 1


def now_ms() -> float:
    """The clock of events and traces: ms since the epoch."""
    return time.time_ns() / 1e6


def start_steady(target: str, names: Names, rate: float, sizes: list[int]) -> subprocess.Popen[bytes]:
    """A process that sends a steady load (see `steady.py`)."""
    arguments = [target, names.namespace, str(rate), *map(str, sizes)]
    return subprocess.Popen(
        on_leash([sys.executable, "-m", "bench.steady", *arguments]), stdin=subprocess.DEVNULL
    )


async def running_streams(client: httpx.AsyncClient, address: str) -> list[dict[str, Any]]:
    """A row of the member's `/status` for each stream that runs there; none if it does not answer."""
    with contextlib.suppress(httpx.HTTPError):
        found: dict[str, Any] = (await client.get(f"{address}/status")).json()
        return [row for row in found["streams"] if row["state"] == "running"]
    return []


async def set_pins(znodes: ZooKeeper, names: Names, pins: Mapping[int, str]) -> None:
    """Pins streams to members, like an operator; the group must exist."""
    path, data = names.pins(DEFAULT_GROUP), msgspec.json.encode(pins)
    if not await znodes.set(path, data):
        await znodes.create(path, data)


async def follow_events(kafka: str, names: Names, note: Callable[[Event], None]) -> None:
    """Notes the members' events from the topic `baton.events`, until cancelled."""
    consumer = AIOKafkaConsumer(names.events, bootstrap_servers=kafka, auto_offset_reset="earliest")
    async with consumer:
        async for record in consumer:
            note(parse_event(record.value))


class Group:
    """An async context manager that creates the group and in the end stops everything it started."""

    def __init__(
        self, kafka: str, zookeeper: str, namespace: str, streams: int, settings: Mapping[str, str]
    ) -> None:
        self.kafka, self.zookeeper, self.names, self.streams = kafka, zookeeper, Names(namespace), streams
        self.events: list[Event] = []
        self.znodes = ZooKeeper(zookeeper, 6.0)
        self._settings = dict(settings)
        self._ports: dict[str, int] = {}
        self._members: dict[str, subprocess.Popen[bytes]] = {}
        self._load: subprocess.Popen[bytes] | None = None
        self._leaving = contextlib.AsyncExitStack()
        self._folder = Path()
        self._client = httpx.AsyncClient(timeout=5)

    def __repr__(self) -> str:
        return f"<Group {self.names.namespace}: {', '.join(self._members)}>"

    async def __aenter__(self) -> Self:
        self._folder = Path(self._leaving.enter_context(tempfile.TemporaryDirectory(prefix="baton-trace-")))
        await self._leaving.enter_async_context(self.znodes)
        await self._leaving.enter_async_context(self._client)
        await self.znodes.connect(10)
        await self._make()
        events = follow_events(self.kafka, self.names, self.events.append)
        reading = asyncio.create_task(events, name="events")
        self._leaving.callback(reading.cancel)
        return self

    async def __aexit__(self, *_: object) -> None:
        try:
            if self._load is not None:
                self._load.kill()
                self._load.wait()
            await asyncio.gather(*(self.stop(name) for name in list(self._members)))
        finally:
            await self._leaving.aclose()

    async def _make(self) -> None:
        names = self.names
        await ensure_table(
            self.znodes,
            names,
            kafka=self.kafka,
            streams=self.streams,
            default_streams=self.streams,
            retention_ms=604_800_000,
            replication=1,
        )
        topics = [
            sessions_topic(names, DEFAULT_GROUP, SESSION_PARTITIONS, -1),
            checkpoints_topic(names, DEFAULT_GROUP, self.streams),
            events_topic(names),
        ]
        await ensure_topics(self.kafka, topics, 1)
        partitions = [(names.fragments(n), 0) for n in range(self.streams)]
        async with Cluster(self.kafka) as cluster:  # waits for leaders, which new partitions lack for seconds
            await list_offsets(cluster, [*partitions, (names.events, 0)], LATEST)

    def start(self, name: str) -> None:
        """Starts a member; after a stop it gets the same port again."""
        port = self._ports.setdefault(name, free_port())
        settings = {
            "BATON_KAFKA": self.kafka,
            "BATON_ZOOKEEPER": self.zookeeper,
            "BATON_NAMESPACE": self.names.namespace,
            "BATON_MEMBER": name,
            "BATON_PORT": str(port),
            "BATON_LOG_LEVEL": "ERROR",  # measured without the cost of logs
        }
        with self._log(name).open("ab") as log:
            self._members[name] = subprocess.Popen(
                on_leash([sys.executable, "-m", "bench.observed_member", str(self._folder)]),
                env=os.environ | settings | self._settings,
                stdin=subprocess.DEVNULL,
                stderr=log,
            )

    async def stop(self, name: str) -> None:
        """Sends SIGTERM and waits for the member's exit."""
        process = self._members.pop(name)
        process.terminate()
        await asyncio.to_thread(process.wait, DEADLINE_S)

    def kill(self, name: str) -> None:
        """Sends SIGKILL."""
        process = self._members.pop(name)
        process.kill()
        process.wait()

    def start_load(self, rate: float, open_bytes: int | list[int]) -> None:
        """Starts a steady load of `rate` fragments per second over all streams (see `steady.py`)."""
        sizes = [open_bytes] * self.streams if isinstance(open_bytes, int) else open_bytes
        self._load = start_steady(self.kafka, self.names, rate, sizes)

    def move_plainly(self, plainly: bool) -> None:
        """Switches the members to the baseline's way of moving streams, or back."""
        switch = self._folder / "plain"
        if plainly:
            switch.touch()
        else:
            switch.unlink(missing_ok=True)

    async def pin(self, pins: Mapping[int, str]) -> None:
        """Pins streams to members, like an operator."""
        async with asyncio.timeout(DEADLINE_S):
            # the first member creates the group's znodes
            while await self.znodes.get(self.names.claims(DEFAULT_GROUP)) is None:
                self._check_members()
                await asyncio.sleep(LOOK_S)
        await set_pins(self.znodes, self.names, pins)

    async def until(self, is_so: Callable[[Rows], bool]) -> float:
        """The time (ms) when all streams run and their rows in `/status` satisfy `is_so`."""
        async with asyncio.timeout(DEADLINE_S):
            while True:
                self._check_members()
                running = {
                    name: await running_streams(self._client, f"http://127.0.0.1:{self._ports[name]}")
                    for name in self._members
                }
                at_ms = now_ms()
                if sum(map(len, running.values())) == self.streams and is_so(running):
                    return at_ms
                await asyncio.sleep(LOOK_S)

    async def until_balanced(self) -> float:
        """The time (ms) when every stream runs and the members' shares differ by at most one."""
        return await self.until(is_balanced)

    async def until_event(self, matches: Callable[[Event], bool], since: int) -> Event:
        """The first matching event with index `since` or later."""
        async with asyncio.timeout(DEADLINE_S):
            while True:
                for event in self.events[since:]:
                    if matches(event):
                        return event
                await asyncio.sleep(LOOK_S / 10)

    def trace(self) -> list[Line]:
        """The members' traces so far."""
        return read_trace(self._folder)

    def _log(self, name: str) -> Path:
        return self._folder / f"{name}.log"

    def _check_members(self) -> None:
        for name, process in self._members.items():
            if process.poll() is not None:
                output = self._log(name).read_text(errors="replace")[-2000:]
                raise RuntimeError(f"member {name} has died: {output}")
