"""Every way in which a body may travel, over real connections: what arrives is what was sent."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import json
import random
import sys

import httpx
import pytest

from tests.unit.producer.wire import DEADLINE_S, Connection, Stalled, chunked, request, serving

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

FRAGMENTS = [
    b'{"key":"visitor-1",  "data": {"x": 1.50e2, "big": 123456789012345678901234567890}}',
    b'{"data":"\\u0000\\ud83d\\ude00 \\/ \xc3\xa9\xf0\x9f\x98\x80", "key":"visitor-2"}',
    b'{ "key" : "visitor-1" , "id":"a" , "end" : true, "key2": null }',
]
"""All three go to stream 10, so that their order shows."""
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


async def assert_taken(client: Connection) -> None:
    """The next answer says that all three are stored."""
    answer = await client.answer()
    assert (answer.status, answer.body) == (200, {"accepted": 3, "rejected": []})


@pytest.mark.parametrize("body", BODIES)
async def test_every_transport_delivers_what_was_sent(body: str) -> None:
    """At once; twice in a row on a kept connection; cut in halves; and byte by byte."""
    sent = BODIES[body]
    middle = len(sent) // 2
    async with serving() as server, server.connection() as client:
        client.send(sent)
        await assert_taken(client)
        client.send(sent)
        await assert_taken(client)
        await client.send_apart(sent[:middle], sent[middle:])
        await assert_taken(client)
        await client.send_apart(*(bytes([byte]) for byte in sent))
        await assert_taken(client)

    assert server.stored == FRAGMENTS * 4
    assert server.sink.logs[10][0] == (b"visitor-1", FRAGMENTS[0])
    assert server.door.inflight_bytes == 0


async def test_one_object_of_text_is_one_fragment() -> None:
    """As a beacon sends it, on one line or on several."""
    one, pretty = FRAGMENTS[0], json.dumps({"key": "visitor-1", "data": {}}, indent=1).encode()
    async with serving() as server, server.connection() as client:
        client.send(request(one, TEXT) + request(pretty, TEXT))
        answers = [await client.answer(), await client.answer()]

    assert [answer.body["accepted"] for answer in answers] == [1, 1]
    assert server.stored == [one, pretty]


async def test_pipelined_requests_are_answered_in_order() -> None:
    """All transports in one go, with a refusal between them."""
    refused = request(b"nonsense")
    async with serving() as server, server.connection() as client:
        client.send(b"".join(sent + refused for sent in BODIES.values()))
        for _ in BODIES:
            await assert_taken(client)
            assert (await client.answer()).status == 400

    assert server.stored == FRAGMENTS * len(BODIES)


@pytest.mark.parametrize("seed", range(5))
async def test_odd_places_to_cut_make_no_difference(seed: int) -> None:
    """All transports behind each other on one connection, cut where it pleases."""
    choose = random.Random(seed)
    names = choose.sample(sorted(BODIES), k=len(BODIES))
    sent = b"".join(BODIES[name] for name in names)
    cuts = sorted(choose.sample(range(len(sent)), k=60))
    pieces = [sent[start:end] for start, end in zip([0, *cuts], [*cuts, len(sent)], strict=True)]
    async with serving() as server, server.connection() as client:
        sending = asyncio.create_task(client.send_apart(*pieces))
        for _ in names:
            await assert_taken(client)
        await sending

    assert server.stored == FRAGMENTS * len(names)


async def test_http_1_0_is_answered_and_closed() -> None:
    """Without keep-alive the connection ends with the answer."""
    sent = request(ARRAY).replace(b"HTTP/1.1", b"HTTP/1.0", 1)
    async with serving() as server, server.connection() as client:
        client.send(sent)
        await assert_taken(client)
        rest = await client.rest()

    assert (rest, server.stored) == (b"", FRAGMENTS)


async def test_a_declined_upgrade_does_not_keep_the_connection() -> None:
    """Where the client wants it closed, it is; what comes behind is not read."""
    sent = request(ARRAY, "connection: close, Upgrade", "upgrade: h2c")
    async with serving() as server, server.connection() as client:
        client.send(sent + sent)
        await assert_taken(client)
        rest = await client.rest()

    assert (rest, server.stored) == (b"", FRAGMENTS)


async def test_who_has_sent_all_and_only_listens_is_answered() -> None:
    """A client may close its half of the connection behind its requests."""
    async with serving() as server, server.connection() as client:
        client.send(request(ARRAY), request(ARRAY))
        client.writer.write_eof()
        await assert_taken(client)
        await assert_taken(client)
        rest = await client.rest()

    assert (rest, server.stored) == (b"", FRAGMENTS * 2)


async def test_a_body_is_asked_for_where_the_client_waits() -> None:
    """`Expect: 100-continue` is answered before the body, but not where the request is refused unread."""
    sent = request(ARRAY, "expect: 100-continue")
    refused = request(b"x" * 2_000_000, "expect: 100-continue")
    async with serving() as server, server.connection() as client:
        client.send(sent[: -len(ARRAY)])
        invited = await client.answer()
        client.send(ARRAY)
        await assert_taken(client)
        client.send(refused[:-2_000_000])
        answer = await client.answer()

    assert (invited.status, answer.status) == (100, 413)
    assert server.stored == FRAGMENTS


async def test_a_client_library_is_understood() -> None:
    """httpx over one connection, with what it makes of JSON, of text, and of a generator."""
    packed = {"content-type": "application/json", "content-encoding": "zstd"}
    async with serving() as server, httpx.AsyncClient(base_url=f"http://127.0.0.1:{server.port}") as client:
        answers = [
            await client.post("/fragments", json=[{"key": "visitor-1"}]),
            await client.post("/fragments", content=LINES, headers={"content-type": "text/plain"}),
            await client.post("/fragments", content=zstd.compress(ARRAY), headers=packed),
        ]

    assert [answer.json()["accepted"] for answer in answers] == [1, 3, 3]
    assert server.stored[1:] == FRAGMENTS * 2


async def test_a_graceful_stop_finishes_what_is_in_flight_and_refuses_what_is_new() -> None:
    """In flight: 200 once stored. New, on a kept connection: 503 with Retry-After. Then nobody listens."""
    sink = Stalled()
    async with serving(sink=sink) as server, server.connection() as first, server.connection() as second:
        first.send(request(ARRAY))
        await sink.waiting.wait()

        server.door.leave()
        second.send(request(ARRAY))
        refused = await second.answer()
        sink.release.set()
        await assert_taken(first)
        port = server.port

    assert (refused.status, refused.headers["retry-after"]) == (503, "1")
    assert refused.body["type"] == "urn:baton:leaving"
    assert server.stored == FRAGMENTS
    with pytest.raises(ConnectionError):
        await asyncio.open_connection("127.0.0.1", port)


async def test_the_server_waits_for_answers_that_are_under_way() -> None:
    """It stops while a request waits for Kafka: nobody else gets in, and that request is answered."""
    sink = Stalled()

    async def release_when_nobody_listens(port: int) -> None:
        with contextlib.suppress(ConnectionError):
            while True:
                _, another = await asyncio.open_connection("127.0.0.1", port)
                another.close()
        sink.release.set()

    async with asyncio.timeout(DEADLINE_S), asyncio.TaskGroup() as tasks, serving(sink=sink) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        client = Connection(reader, writer)
        client.send(request(ARRAY))
        await sink.waiting.wait()
        tasks.create_task(release_when_nobody_listens(server.port))
    await assert_taken(client)
    rest = await client.rest()
    writer.close()

    assert (rest, server.stored) == (b"", FRAGMENTS)
