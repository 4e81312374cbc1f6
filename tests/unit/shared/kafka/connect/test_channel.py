"""One connection: what fails on it fails alone, and whatever comes over it cannot hurt."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import random
import struct
from collections.abc import AsyncIterator, Callable
from io import BytesIO
from typing import Any

import pytest
from aiokafka.errors import KafkaConnectionError
from aiokafka.protocol.admin import ApiVersionResponse_v0

from shared.errors import KafkaUnavailable
from shared.kafka.connect.access import access_of
from shared.kafka.connect.channel import Channel
from shared.kafka.connect.security import Gate
from shared.kafka.wire.alter_configs import ChangedSettings, ChangeSettings
from shared.kafka.wire.fetch import FetchRequest, FetchResponse
from shared.kafka.wire.metadata import MetadataRequest, MetadataResponse
from shared.kafka.wire.produce import ProduceRequest, ProduceResponse
from shared.kafka.wire.transactions import (
    AddedOffsets,
    AddedPartitions,
    AddOffsets,
    AddPartitions,
    CommitOffset,
    CommittedOffsets,
    Ended,
    EndTransaction,
    FindCoordinators,
    FoundCoordinators,
    InitProducerId,
    ProducerId,
)
from tests.fakes.kafka import FakeKafka
from tests.fakes.virtual_time import virtual_time

ME = 7, 0
REQUESTS: list[Any] = [
    MetadataRequest(["a"]),
    FetchRequest({}, 0, 1),
    ProduceRequest(1_000, [(("a", 0), (b"", b""))]),
    FindCoordinators(["t"]),
    InitProducerId("t", 1_000),
    AddPartitions("t", ME, [("a", 0)]),
    AddOffsets("t", ME, "g"),
    CommitOffset("t", ME, "g", ("a", 0), 1, ""),
    EndTransaction("t", ME, is_commit=True),
    ChangeSettings("a", {}),
]
ANSWERS: list[Any] = [
    MetadataResponse,
    FetchResponse,
    ProduceResponse,
    FoundCoordinators,
    ProducerId,
    AddedPartitions,
    AddedOffsets,
    CommittedOffsets,
    Ended,
    ChangedSettings,
]
CORRELATION_AT = 8
"""Where a framed request has its correlation id."""
VERSIONS = [(key, 0, 30) for key in range(60)]


@virtual_time
async def test_a_late_answer_fails_its_own_request_alone() -> None:
    """Those behind it on the connection are answered; new ones take another connection at once."""
    kafka, loop = FakeKafka(), asyncio.get_running_loop()
    kafka.create("a")
    channel = Channel("fake", 1, kafka.connect)
    await channel.request(MetadataRequest(["a"]), 1.0)
    kafka.muted.add(1)
    late = asyncio.create_task(channel.request(MetadataRequest(["a"]), 2.0))
    behind = asyncio.create_task(channel.request(MetadataRequest(["a"]), 60.0))
    with pytest.raises(KafkaUnavailable, match="did not answer in time"):
        await late
    kafka.muted.clear()
    began_s = loop.time()
    await channel.request(MetadataRequest(["a"]), 1.0)
    took_s = loop.time() - began_s
    kafka.wake()
    await behind
    await asyncio.sleep(1)

    assert took_s < 0.1
    assert [connection.connected() for connection in kafka.connections] == [False, True]
    await channel.close()


@virtual_time
async def test_connecting_again_waits_ever_longer_up_to_a_second() -> None:
    """A broker that comes back is not stormed; the first success resets the wait."""
    attempts: list[float] = []
    loop = asyncio.get_running_loop()

    async def connect(host: str, port: int) -> Any:
        attempts.append(loop.time())
        raise KafkaConnectionError("nobody listens")

    channel = Channel("fake", 1, connect)
    for _ in range(20):
        with pytest.raises(KafkaUnavailable):
            await channel.request(MetadataRequest(["a"]), 1.0)
    waits = [after - before for before, after in itertools.pairwise(attempts)]

    assert waits[0] <= 0.02
    assert all(0.5 <= wait <= 1.0 for wait in waits[-10:])
    await channel.close()


@contextlib.asynccontextmanager
async def answering(answer: Callable[[bytes], bytes]) -> AsyncIterator[Channel]:
    """A channel to a server that sends these bytes after the correlation id, on real sockets."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError), contextlib.closing(writer):
            while True:
                (size,) = struct.unpack(">i", await reader.readexactly(4))
                request = await reader.readexactly(size)
                correlation = request[CORRELATION_AT - 4 : CORRELATION_AT]
                is_hello = request[:2] == struct.pack(">h", 18)
                hello = ApiVersionResponse_v0(0, VERSIONS).encode()
                body = correlation + hello if is_hello else answer(correlation)
                writer.write(struct.pack(">i", len(body)) + body)

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()[:2]
    channel = Channel(host, port, Gate(access_of(f"{host}:{port}")))
    try:
        yield channel
    finally:
        await channel.close()
        server.close()


@pytest.mark.parametrize("request_", REQUESTS, ids=lambda request: type(request).__name__)
@pytest.mark.filterwarnings("ignore")
async def test_an_unreadable_answer_is_a_missing_one(request_: Any) -> None:
    """Cut short, or to another request: the connection is given up, and the next request has a new one."""
    bodies = [lambda correlation: correlation, lambda correlation: b"\xff" * 64, lambda correlation: b""]
    for body in bodies:
        async with answering(body) as channel:
            for opened in (1, 2):
                with pytest.raises(KafkaUnavailable):
                    await channel.request(request_, 5.0)
                assert channel.connections == opened


@pytest.mark.parametrize("kind", ANSWERS, ids=lambda kind: kind.__name__)
def test_random_bytes_are_decoded_or_refused(kind: Any) -> None:
    """Soon, and without taking memory for what a length only claims."""
    chance = random.Random(7)
    for size in range(200):
        with contextlib.suppress(Exception):
            kind.decode(BytesIO(chance.randbytes(size)))
