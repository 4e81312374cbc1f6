"""Frames of a connection to a broker: answers of any size, received in any pieces."""

from __future__ import annotations

import asyncio
import struct
from io import BytesIO
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka.errors import KafkaConnectionError
from hypothesis import given
from hypothesis import strategies as st

from shared.kafka.connect.connection import MOST, SMALL, Connection

SIZES = st.sampled_from([4, 5, 100, SMALL - 8, SMALL - 4, SMALL - 3, SMALL, SMALL + 1, 3 * SMALL])


class Wire(asyncio.Transport):
    """A transport that sends nothing, and remembers whether it was closed."""

    is_open = True

    def writelines(self, list_of_data: Any) -> None:
        pass

    def close(self) -> None:
        self.is_open = False


class Question:
    """A request whose answer is the bytes after the correlation id."""

    decoded = 0
    RESPONSE_TYPE: Any = None

    def __init__(self) -> None:
        self.RESPONSE_TYPE = self

    def prepare(self, versions: Any) -> Question:
        return self

    def build_request_header(self, correlation_id: int, client_id: str) -> Any:
        return SimpleNamespace(encode=lambda: b"")

    def encode(self) -> bytes:
        return b"?"

    def parse_response_header(self, buffer: BytesIO) -> Any:
        return SimpleNamespace(correlation_id=struct.unpack(">i", buffer.read(4))[0])

    def decode(self, buffer: BytesIO) -> bytes:
        self.decoded += 1
        return buffer.read()


def connection() -> Connection:
    made = Connection("broker", 9092)
    made.connection_made(Wire())
    return made


def answer(number: int, size: int) -> bytes:
    return struct.pack(">ii", size, number) + bytes([number]) * (size - 4)


def receive(made: Connection, data: bytes, pieces: list[int]) -> None:
    """Hands the bytes over as an event loop does, in pieces of at most these sizes, in turns."""
    at = turn = 0
    while at < len(data):
        room = made.get_buffer(-1)
        size = min(len(room), pieces[turn % len(pieces)], len(data) - at)
        room[:size] = data[at : at + size]
        made.buffer_updated(size)
        at, turn = at + size, turn + 1


@given(
    sizes=st.lists(SIZES, min_size=1, max_size=5),
    pieces=st.lists(st.sampled_from([1, 3, 4, 7, 1_000, SMALL, 10 * SMALL]), min_size=1, max_size=4).filter(
        lambda pieces: max(pieces) >= 1_000
    ),
)
def test_answers_arrive_whole_and_in_order(sizes: list[int], pieces: list[int]) -> None:
    """However the bytes are cut, each request gets its own answer."""

    async def run() -> list[bytes]:
        made = connection()
        futures = [made.send(Question()) for _ in sizes]
        receive(made, b"".join(answer(n, size) for n, size in enumerate(sizes, 1)), pieces)
        return [await future for future in futures]

    assert asyncio.run(run()) == [bytes([n]) * (size - 4) for n, size in enumerate(sizes, 1)]


@pytest.mark.parametrize(
    "data",
    [
        answer(2, 8),
        struct.pack(">i", MOST + 1),
        struct.pack(">i", -1),
        b"\x15\x03\x03\x00\x02\x02\x46",
        b"\0" * 6,
    ],
    ids=["another's answer", "too large", "negative", "TLS alert", "no correlation id"],
)
async def test_what_is_no_answer_ends_the_connection(data: bytes) -> None:
    """Bytes that cannot be the next answer fail all requests under way, and nothing more is sent."""
    made = connection()
    futures = [made.send(Question()) for _ in range(2)]

    receive(made, data, [100])
    made.eof_received()

    for future in futures:
        with pytest.raises(KafkaConnectionError):
            await future
    with pytest.raises(KafkaConnectionError):
        made.send(Question())
    assert not made.connected()
    assert isinstance(made.transport, Wire)
    assert not made.transport.is_open


async def test_an_answer_that_nobody_awaits_is_skipped() -> None:
    """A request that timed out costs the next one nothing; its answer is not even decoded."""
    made, late = connection(), Question()
    made.send(late).cancel()
    future = made.send(Question())

    receive(made, answer(1, 9) + answer(2, 9), [100])

    assert await future == b"\2" * 5
    assert late.decoded == 0
