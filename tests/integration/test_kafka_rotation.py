"""Sessions, passwords and tokens that end or are replaced while a client runs."""

from __future__ import annotations

import asyncio
import itertools
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from shared.errors import KafkaDenied
from shared.kafka.admin.users import set_password
from shared.kafka.connect.cluster import WRITE_LANES, Cluster
from shared.kafka.read.fetcher import Fetcher
from shared.kafka.send.transactional import TransactionalWriter
from shared.service.private_files import write_private
from tests.integration.test_kafka_locked import append, new_topic
from tests.secured_kafka import ADMIN, PASSWORD, SESSION_MS, SecuredKafka
from tests.waiting import until


async def test_sessions_that_end_while_records_stream_lose_none(
    secured_kafka: SecuredKafka, namespace: str
) -> None:
    """Reader and writer work for several sessions; every record arrives, in order."""
    topic = await new_topic(secured_kafka, f"{namespace}.topic")
    access = secured_kafka.by_secret("SCRAM-SHA-512")
    async with AsyncExitStack() as stack:
        writing = await stack.enter_async_context(Cluster(access))
        reading = await stack.enter_async_context(Cluster(access))
        fetcher = Fetcher(reading, is_committed=True)
        stack.push_async_callback(fetcher.close)
        reader = fetcher.read(topic, 0, 0)
        writer = TransactionalWriter(writing, f"id.{namespace}", timeout_ms=10_000)
        await writer.open()
        loop = asyncio.get_running_loop()
        ends_s = loop.time() + 3.5 * SESSION_MS / 1000
        written = 0

        async def write() -> None:
            nonlocal written
            for n in itertools.takewhile(lambda _: loop.time() < ends_s, itertools.count()):
                await append(writing, writer, topic, b"%d" % n)
                written = n + 1

        async def read() -> list[bytes]:
            found: dict[int, bytes] = {}
            while not writes.done() or len(found) < written:
                for record in await reader.take(0.5, 1000):
                    # after a new connection, a reader gets its last record again
                    assert record.offset >= max(found, default=0)
                    found[record.offset] = record.value
            return list(found.values())

        writes = asyncio.create_task(write())
        found = await read()
        await writes
        opened = {lane: count for lane, count in connections(writing).items() if count > 1}

    assert found == [b"%d" % n for n in range(written)]
    assert written > 20
    assert sum(count for lane, count in opened.items() if lane in WRITE_LANES) >= 4


def connections(cluster: Cluster) -> dict[str, int]:
    """How many connections each lane has opened."""
    return {lane: channel.connections for (_, lane), channel in cluster._channels.items()}


async def test_a_password_is_replaced_while_a_client_runs(secured_kafka: SecuredKafka) -> None:
    """With both in the file it does not matter when Kafka's changes; a wrong one is mended at any time."""
    user = "rotating"
    access = secured_kafka.by_secret("SCRAM-SHA-512", user)
    file = Path(access.password_file)

    async with Cluster(access) as cluster, Cluster(secured_kafka.root) as root:
        await cluster.refresh()
        write_private(file, f"new secret\n{PASSWORD}\n".encode())
        await outlives_a_session(cluster)
        await set_password(root, user, "new secret")
        await outlives_a_session(cluster)
        write_private(file, b"new secret\n")
        await outlives_a_session(cluster)

        write_private(file, b"mistyped\n")
        with pytest.raises(KafkaDenied, match="refuses the user or the password"):
            await outlives_a_session(cluster)
        write_private(file, b"new secret\n")
        await outlives_a_session(cluster)


async def outlives_a_session(cluster: Cluster) -> None:
    for _ in range(int(SESSION_MS / 100 * 1.2)):
        await cluster.refresh()
        await asyncio.sleep(0.1)


async def test_a_token_is_replaced_before_it_ends(secured_kafka: SecuredKafka) -> None:
    """The next one is read in time; without one the client says so, and goes on once there is one again."""
    life_s = 4.0
    access = secured_kafka.by_secret("OAUTHBEARER", ADMIN, secured_kafka.token(ADMIN, ends_in_s=life_s))
    file = Path(access.token_file)

    async with Cluster(access) as cluster:
        for _ in range(3):
            await outlives_a_session(cluster)
            write_private(file, secured_kafka.token(ADMIN, ends_in_s=life_s).encode())

        async def denial() -> str:
            try:
                await cluster.refresh()
            except KafkaDenied as error:
                return error.detail
            return ""

        assert "token for Kafka has expired" in await until(denial, within_s=4 * life_s)
        write_private(file, secured_kafka.token(ADMIN).encode())
        await outlives_a_session(cluster)
