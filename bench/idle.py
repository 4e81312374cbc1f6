"""What idling costs a member with 288 and with 1,000 streams, and what fetch sessions save.

`python -m bench idle`. The member is a process. For the sessions one fetcher in this process reads as many
empty partitions with and without them; the kernel counts the bytes.
"""

from __future__ import annotations

import asyncio
import os
import socket
import struct
import time
from pathlib import Path
from typing import Any

from bench import members
from bench.report import Row
from shared.kafka.connect.access import access_of
from shared.kafka.connect.cluster import Cluster
from shared.kafka.connect.connection import Connection
from shared.kafka.connect.security import Gate
from shared.kafka.read.fetch_session import FetchSession
from shared.kafka.read.fetcher import Fetcher
from shared.kafka.wire.fetch import FetchRequest
from shared.model.names import Names

STREAMS = (288, 1_000)
TARGETS = {288: "≤ 1", 1_000: "≤ 3"}
MOST_SOCKETS = 12
SETTLE_S = 10.0
MEASURED_S = 20.0
ROUNDS = 5


def cpu_s(pid: int) -> float:
    """Seconds of CPU that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def sockets(pid: int) -> int:
    """How many sockets a process has open, those that listen included."""
    folder = Path(f"/proc/{pid}/fd")
    return sum(os.readlink(one).startswith("socket:") for one in folder.iterdir())


def member(kafka: str, zookeeper: str, streams: int) -> list[Row]:
    """One member with that many empty streams."""
    namespace = f"bench-idle-{streams}"
    asyncio.run(members.make(kafka, zookeeper, namespace, streams, 0))
    with members.member(kafka, zookeeper, namespace, "idle") as (process, url):
        asyncio.run(members.until_running([url], [streams]))
        time.sleep(SETTLE_S)  # a measurement, not a synchronisation
        shares = []
        for _ in range(ROUNDS):
            before_s, began_s = cpu_s(process.pid), time.monotonic()
            time.sleep(MEASURED_S)
            shares.append((cpu_s(process.pid) - before_s) / (time.monotonic() - began_s) * 100)
        memory, open_sockets = members.memory_mb(process.pid), sockets(process.pid)
    name = f"idle member, {streams} empty streams"
    return [
        Row(name=f"{name}: CPU", unit="% of a core", baton=shares, baseline=[], target=TARGETS[streams]),
        Row(name=f"{name}: memory", unit="MB", baton=[memory], baseline=[], target=""),
        Row(name=f"{name}: sockets", unit="", baton=[open_sockets], baseline=[], target=f"≤ {MOST_SOCKETS}"),
    ]


class Sessionless(FetchSession):
    """Names everything in each request."""

    def answered(self, session_id: int) -> None:
        self.reset()

    def request(self, wishes: Any, wait_ms: int, max_bytes: int) -> FetchRequest:
        return FetchRequest(wishes, wait_ms, max_bytes)


async def _read(
    kafka: str, namespace: str, streams: int, broker: int, *, with_session: bool
) -> dict[str, float]:
    """CPU of client and broker, and bytes, while nothing comes."""
    names = Names(namespace)
    connections: list[Connection] = []
    gate = Gate(access_of(kafka))

    async def connect(host: str, port: int) -> Connection:
        connections.append(await gate(host, port))
        return connections[-1]

    async with Cluster(kafka, connect) as cluster:
        await cluster.know([names.fragments(n) for n in range(streams)])
        fetcher = Fetcher(cluster)
        for n in range(streams):
            fetcher.read(names.fragments(n), 0, 0)
        if not with_session:
            for _, poll in fetcher._lanes.values():
                poll._session = Sessionless(is_committed=False)
        await asyncio.sleep(SETTLE_S / 2)
        own_s, brokers_s, began_s = time.process_time(), cpu_s(broker), time.monotonic()
        before = sum(map(_bytes_of, connections))
        await asyncio.sleep(MEASURED_S)
        seconds = time.monotonic() - began_s
        found = {
            "CPU of the client, % of a core": (time.process_time() - own_s) / seconds * 100,
            "CPU of the broker, % of a core": (cpu_s(broker) - brokers_s) / seconds * 100,
            "on the wire, KB/s": (sum(map(_bytes_of, connections)) - before) / seconds / 1_000,
        }
        await fetcher.close()
    return found


def _bytes_of(connection: Connection) -> int:
    """Bytes sent (and acknowledged) and received, by Linux's `tcp_info`; 0 once it is closed."""
    if connection.transport is None or not connection.connected():
        return 0
    info = connection.transport.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
    acknowledged, received = struct.unpack_from("=QQ", info, 120)
    return int(acknowledged + received)


def fetch_sessions(kafka: str, broker: int, streams: int) -> list[Row]:
    """Reading empty partitions with a fetch session, compared with reading them without one."""
    namespace = f"bench-idle-{streams}"
    with_it = asyncio.run(_read(kafka, namespace, streams, broker, with_session=True))
    without = asyncio.run(_read(kafka, namespace, streams, broker, with_session=False))
    return [
        Row(
            name=f"fetch session, {streams} empty streams, against none: {name.partition(',')[0]}",
            unit=name.rpartition(", ")[2],
            baton=[with_it[name]],
            baseline=[without[name]],
            target="",
        )
        for name in with_it
    ]


def run(kafka: str, zookeeper: str, broker: int) -> list[Row]:
    """All figures; `broker`: process id of the broker."""
    rows = []
    for streams in STREAMS:
        rows += member(kafka, zookeeper, streams)
        rows += fetch_sessions(kafka, broker, streams)
    return rows
