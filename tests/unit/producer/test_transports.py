"""Every transport of a body, over real connections: what was sent is stored, byte for byte."""

from __future__ import annotations

import asyncio
import gzip
import random

import pytest

from tests.unit.producer.face import zstd
from tests.unit.producer.wire import Connection, Stalled, chunked, request, serving

FRAGMENTS = [
    b'{"key":"visitor-1",  "data": {"x": 1.50e2, "big": 123456789012345678901234567890}}',
    b'{"data":"\\u0000\\ud83d\\ude00 \\/ \xc3\xa9\xf0\x9f\x98\x80", "key":"visitor-2"}',
    b'{ "key" : "visitor-1" , "id":"a" , "end" : true, "key2": null }',
]
"""All three go to stream 10, so that the order is visible."""
ARRAY = b"[" + b" ,\n ".join(FRAGMENTS) + b"]"
LINES = b"\r\n".join(FRAGMENTS) + b"\n"
CHUNKED = "transfer-encoding: chunked"
TEXT, NDJSON = "content-type: text/plain;charset=UTF-8", "content-type: application/x-ndjson"
GZIP, ZSTD = "content-encoding: gzip", "content-encoding: zstd"
MEMBERS = b"".join(gzip.compress(line + b"\n") for line in FRAGMENTS)
FRAMES = b"".join(zstd.compress(line + b"\n") for line in FRAGMENTS)
SKIPPED = b"\x50\x2a\x4d\x18\x03\x00\x00\x00abc"

BODIES = {
    "an array": request(ARRAY),
    "NDJSON": request(LINES, NDJSON),
    "text with an array": request(ARRAY, TEXT),
    "text with lines": request(LINES, TEXT),
    "a byte order mark": request(b"\xef\xbb\xbf" + LINES, TEXT),
    "identity": request(ARRAY, "content-encoding: identity"),
    "gzip": request(gzip.compress(ARRAY), GZIP),
    "x-gzip": request(gzip.compress(ARRAY), "content-encoding: x-gzip"),
    "gzip in members": request(MEMBERS, GZIP, NDJSON),
    "gzip, text": request(gzip.compress(LINES), GZIP, TEXT),
    "zstd": request(zstd.compress(ARRAY), ZSTD),
    "zstd in frames": request(FRAMES, ZSTD, NDJSON),
    "zstd with a frame to skip": request(SKIPPED + zstd.compress(LINES), ZSTD, NDJSON),
    "chunked": request(chunked(ARRAY, 1_000), CHUNKED, length=False),
    "chunked by the byte": request(chunked(ARRAY, 1), CHUNKED, length=False),
    "chunked gzip": request(chunked(gzip.compress(ARRAY), 7), CHUNKED, GZIP, length=False),
    "chunked zstd": request(chunked(zstd.compress(ARRAY), 7), CHUNKED, ZSTD, length=False),
    "chunked, with a trailer": request(
        chunked(ARRAY, 100)[:-2] + b"content-encoding: br\r\n\r\n", CHUNKED, length=False
    ),
    "an offer of HTTP/2": request(ARRAY, "connection: Upgrade, HTTP2-Settings", "upgrade: h2c"),
    "an offer of HTTP/2, chunked": request(
        chunked(ARRAY, 100), CHUNKED, "connection: Upgrade", "upgrade: h2c", length=False
    ),
}


async def assert_stored(client: Connection) -> None:
    """The next answer says that all three fragments are stored."""
    answer = await client.answer()
    assert (answer.status, answer.body) == (200, {"accepted": 3, "rejected": []})


@pytest.mark.parametrize("body", BODIES)
async def test_every_transport_delivers_what_was_sent(body: str) -> None:
    """At once; twice in a row on a kept connection; cut in halves; and byte by byte."""
    sent = BODIES[body]
    middle = len(sent) // 2
    async with serving() as server, server.connection() as client:
        client.send(sent)
        await assert_stored(client)
        client.send(sent)
        await assert_stored(client)
        await client.send_apart(sent[:middle], sent[middle:])
        await assert_stored(client)
        await client.send_apart(*(bytes([byte]) for byte in sent))
        await assert_stored(client)

    assert server.stored == FRAGMENTS * 4
    assert server.sink.logs[10][0] == (b"visitor-1", FRAGMENTS[0])
    assert server.door.inflight_bytes == 0


@pytest.mark.parametrize("seed", range(6))
async def test_pipelined_requests_are_answered_in_order(seed: int) -> None:
    """All transports and rejections in turn on one connection; at once (seed 0), or cut at random places."""
    choose = random.Random(seed)
    names = choose.sample(sorted(BODIES), k=len(BODIES))
    sent = b"".join(BODIES[name] + request(b"nonsense") for name in names)
    cuts = sorted(choose.sample(range(len(sent)), k=60 if seed else 0))
    pieces = [sent[start:end] for start, end in zip([0, *cuts], [*cuts, len(sent)], strict=True)]
    async with serving() as server, server.connection() as client:
        sending = asyncio.create_task(client.send_apart(*pieces))
        for _ in names:
            await assert_stored(client)
            assert (await client.answer()).status == 400
        await sending

    assert server.stored == FRAGMENTS * len(names)


@pytest.mark.parametrize(
    "sent",
    [
        request(ARRAY).replace(b"HTTP/1.1", b"HTTP/1.0", 1),
        request(ARRAY, "connection: close, Upgrade", "upgrade: h2c"),
    ],
    ids=["HTTP/1.0", "a declined upgrade"],
)
async def test_a_connection_is_closed_if_the_client_wants_it(sent: bytes) -> None:
    """After the answer; further requests on it are not read."""
    async with serving() as server, server.connection() as client:
        client.send(sent + sent)
        await assert_stored(client)
        rest = await client.rest()

    assert (rest, server.stored) == (b"", FRAGMENTS)


async def test_a_client_that_closed_its_half_is_answered() -> None:
    """It may do so right after its last request."""
    async with serving() as server, server.connection() as client:
        client.send(request(ARRAY), request(ARRAY))
        client.writer.write_eof()
        await assert_stored(client)
        await assert_stored(client)
        rest = await client.rest()

    assert (rest, server.stored) == (b"", FRAGMENTS * 2)


async def test_expect_100_continue_is_answered_unless_the_request_is_rejected_unread() -> None:
    """The client then sends the body; a rejected client does not need to."""
    sent = request(ARRAY, "expect: 100-continue")
    oversized = request(b"x" * 2_000_000, "expect: 100-continue")
    async with serving() as server, server.connection() as client:
        client.send(sent[: -len(ARRAY)])
        invited = await client.answer()
        client.send(ARRAY)
        await assert_stored(client)
        client.send(oversized[:-2_000_000])
        rejected = await client.answer()

    assert (invited.status, rejected.status) == (100, 413)
    assert server.stored == FRAGMENTS


async def test_a_graceful_stop_finishes_requests_in_flight_and_rejects_new_ones() -> None:
    """In flight: 200 once stored. New, on a kept connection: 503 with Retry-After. Then nothing listens."""
    sink = Stalled()
    async with serving(sink=sink) as server, server.connection() as first, server.connection() as second:
        first.send(request(ARRAY))
        await sink.waiting.wait()

        server.door.leave()
        second.send(request(ARRAY))
        rejected = await second.answer()
        sink.release.set()
        await assert_stored(first)
        port = server.port

    assert (rejected.status, rejected.headers["retry-after"]) == (503, "1")
    assert rejected.body["type"] == "urn:baton:leaving"
    assert server.stored == FRAGMENTS
    with pytest.raises(ConnectionError):
        await asyncio.open_connection("127.0.0.1", port)
