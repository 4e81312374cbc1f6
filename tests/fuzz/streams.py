"""Streams of bytes that a client may send to the server, and a connection that answers them.

A seed gives a handful of good requests in a row, mutated, and cut at random places. The connection is in
memory: the real one and the real door, and a transport that behaves like uvloop's.
"""

from __future__ import annotations

import asyncio
import random

from tests.fakes.http import connected
from tests.unit.producer.wire import Server, chunked, request

FRAGMENT = b'{"key":"visitor-1"}'
MAX_TURNS = 5_000
GOOD = [
    request(FRAGMENT),
    request(FRAGMENT, "connection: close"),
    request(FRAGMENT, "expect: 100-continue"),
    request(FRAGMENT, "connection: Upgrade", "upgrade: h2c"),
    request(b"nonsense"),
    request(FRAGMENT).replace(b"HTTP/1.1", b"HTTP/1.0"),
    request(chunked(FRAGMENT, 5), "transfer-encoding: chunked", length=False),
    request(b"{}", path="/markers"),
    b"GET /livez HTTP/1.1\r\nhost: producer\r\n\r\n",
    b"HEAD /livez HTTP/1.1\r\nhost: producer\r\n\r\n",
    request(FRAGMENT) * 80,
    b"CONNECT producer:80 HTTP/1.1\r\nhost: producer\r\n\r\n",
    request(FRAGMENT, "x: " + "y" * 33_000),
]
ODD = [
    b"\r\n",
    b"\r\n\r\n",
    b"\0",
    b"\xff",
    b" ",
    b":",
    b"0",
    b"HTTP/1.1",
    b"chunked",
    b"content-length: 9\r\n",
]


def stream_of(seed: int) -> list[bytes]:
    """The stream of this seed, in the pieces in which it arrives."""
    choose = random.Random(seed)
    data = bytearray(b"".join(choose.choices(GOOD, k=choose.randint(1, 6))))
    for _ in range(choose.choice([0, 1, 1, 2, 5])):
        at = choose.randrange(len(data) + 1)
        match choose.randrange(4):
            case 0:
                data[at : at + 1] = bytes([choose.randrange(256)])
            case 1:
                data[at:at] = choose.choice(ODD)
            case 2:
                del data[at : at + choose.randint(1, 40)]
            case _:
                data[at:at] = data[at : at + choose.randint(1, 200)]
    cuts = sorted(choose.choices(range(len(data) + 1), k=choose.choice([0, 1, 3, 10])))
    pieces = [bytes(data[start:end]) for start, end in zip([0, *cuts], [*cuts, len(data)], strict=True)]
    return [piece for piece in pieces if piece]


async def connect(server: Server, pieces: list[bytes], *, leaves: bool) -> bytes:
    """Everything that a connection answers; the client then listens, or disconnects after the pieces.

    Raises AssertionError if the connection does not end.
    """
    connection, wire = connected(server.face, server.bounds)
    tasks = connection._state.tasks
    left = list(pieces)
    is_all_sent = False
    for _ in range(MAX_TURNS):
        if wire.is_lost and not tasks:
            break
        if wire.reads and not wire.is_closing() and not is_all_sent:
            if left:
                connection.data_received(left.pop(0))
            elif leaves:
                wire.abort()
            else:
                is_all_sent = True
                if not connection.eof_received():
                    wire.close()
        await asyncio.sleep(0)
    assert wire.is_lost, "it does not end"
    assert not tasks
    assert not connection.requests.last
    assert connection._patience.is_over
    return bytes(wire.written)
