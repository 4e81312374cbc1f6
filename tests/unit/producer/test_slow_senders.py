"""Clients that send slowly, too much, or not HTTP: over real connections, with short timeouts.

Each test waits until the server answers or closes; only `trickle` sleeps, between its pieces.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

import pytest

from shared.server.bounds import Bounds
from shared.server.reader import MAX_HEADER_BYTES
from tests.unit.producer.wire import Answered, Connection, Stalled, chunked, request, serving
from tests.waiting import DEADLINE_S

FRAGMENT = b'{"key":"visitor-1"}'
SHORT_S = 0.1
SLOW_HEADERS = Bounds(header_timeout_s=SHORT_S, body_timeout_s=DEADLINE_S)
SLOW_BODY = Bounds(header_timeout_s=DEADLINE_S, body_timeout_s=SHORT_S)
CHUNKED_HEAD = request(b"", "transfer-encoding: chunked", length=False)


async def assert_last_problem(client: Connection, status: int, kind: str) -> Answered:
    """The next answer is a problem document, and then the connection ends; returns the answer."""
    answer = await client.answer()
    assert answer.status == status
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.headers["connection"] == "close"
    assert answer.body["type"] == f"urn:baton:{kind}"
    assert answer.body["detail"]
    assert await client.rest() == b""
    return answer


async def trickle(client: Connection, piece: bytes, until: Callable[[], bool] = lambda: False) -> None:
    """Sends the piece again and again, at intervals of a hundredth of the timeout."""
    while not until():
        client.send(piece)
        await asyncio.sleep(SHORT_S / 100)


async def test_a_connection_that_sends_nothing_is_closed() -> None:
    """After the timeout for headers."""
    async with serving(SLOW_HEADERS) as server, server.connection() as client:
        assert await client.rest() == b""


@pytest.mark.parametrize("is_kept_alive", [False, True])
@pytest.mark.parametrize("begun", [b"P", b"POST /frag", b"POST /fragments HTTP/1.1\r\nhost: x\r\nx-a"])
async def test_headers_that_do_not_end_get_a_408(begun: bytes, is_kept_alive: bool) -> None:
    """On a new connection, and on one that was kept alive."""
    async with serving(SLOW_HEADERS) as server, server.connection() as client:
        if is_kept_alive:
            client.send(request(FRAGMENT))
            assert (await client.answer()).status == 200
        client.send(begun)
        await assert_last_problem(client, 408, "slow-request")

    assert server.metrics.requests == ({200: 1, 408: 1} if is_kept_alive else {408: 1})


@pytest.mark.parametrize(
    ("bounds", "begun", "piece"),
    [
        (SLOW_HEADERS, b"POST /fragments HTTP/1.1\r\nhost: x\r\n", b"x: y\r\n"),
        (SLOW_BODY, CHUNKED_HEAD, b"1\r\n \r\n"),
    ],
    ids=["headers", "body"],
)
async def test_a_request_that_trickles_gets_a_408(bounds: Bounds, begun: bytes, piece: bytes) -> None:
    """The timeout for headers counts from their first byte, the one for the body from the headers."""
    async with serving(bounds) as server, server.connection() as client:
        client.send(begun)
        trickling = asyncio.create_task(trickle(client, piece))
        await assert_last_problem(client, 408, "slow-request")
        trickling.cancel()

    assert server.door.inflight_bytes == 0


@pytest.mark.parametrize("begun", [b"", b'{"key":'])
@pytest.mark.parametrize("path", ["/fragments", "/markers"])
async def test_a_body_that_does_not_end_gets_a_408(begun: bytes, path: str) -> None:
    """At the door and behind it. A page may read the answer, and the bytes no longer count."""
    async with serving(SLOW_BODY) as server, server.connection() as client:
        # a page may not post markers at all
        origin = ["origin: https://shop.example"] if path == "/fragments" else []
        head = request(FRAGMENT, *origin, path=path)[: -len(FRAGMENT)]
        client.send(head + begun)
        answer = await assert_last_problem(client, 408, "slow-request")

    assert answer.headers.get("access-control-allow-origin") == ("*" if path == "/fragments" else None)
    assert server.stored == []
    assert server.door.inflight_bytes == 0


async def test_an_idle_connection_stays_open() -> None:
    """Between requests only the keep-alive timeout applies: it outlives a slow connection."""
    async with serving(SLOW_HEADERS) as server, server.connection() as idle, server.connection() as slow:
        idle.send(request(FRAGMENT))
        first = await idle.answer()
        slow.send(b"P")
        timed_out = await slow.answer()
        idle.send(request(FRAGMENT))
        second = await idle.answer()

    assert (first.status, timed_out.status, second.status) == (200, 408, 200)


async def test_idle_time_counts_from_the_last_byte_of_a_rejected_body() -> None:
    """A connection that was answered early, and then got the whole body, ends like every idle one."""
    oversized = request(b" " * 2_000_000)
    async with serving(keep_alive_s=SHORT_S) as server, server.connection() as client:
        client.send(oversized[:1_000])
        answer = await client.answer()
        client.send(oversized[1_000:])
        rest = await client.rest()

    assert (answer.status, rest) == (413, b"")


async def test_a_client_that_does_not_read_its_answers_is_cut_off() -> None:
    """With many answers of 300 KB unread, the server ends the connection instead of waiting."""
    rejected = request(b"{}\n" * 2_500, "content-type: application/x-ndjson")
    async with serving(SLOW_BODY) as server, server.connection() as client:
        sending = asyncio.create_task(client.send_apart(*[rejected] * 100))
        async with asyncio.timeout(DEADLINE_S):
            with contextlib.suppress(ConnectionError):
                await sending
                await trickle(client, b"\r\n", until=client.writer.is_closing)
        rest = await client.rest()

    assert rest.count(b"fragments-rejected") < 100


@pytest.mark.parametrize("status", [413, 415, 503])
async def test_the_server_does_not_wait_for_the_rest_of_a_rejected_body(status: int) -> None:
    """A request that is rejected unread is answered at once, and the connection ends after the timeout."""
    length = 9_999_999 if status == 413 else len(FRAGMENT)
    kind = "text/html" if status == 415 else "application/json"
    head = request(b"", f"content-length: {length}", f"content-type: {kind}", length=False)
    async with serving(SLOW_BODY) as server, server.connection() as client:
        if status == 503:
            server.door.leave()
        client.send(head)
        answer = await client.answer()
        rest = await client.rest()

    assert (answer.status, rest) == (status, b"")
    assert "connection" not in answer.headers


async def test_a_rejected_body_that_does_arrive_leaves_the_connection_open() -> None:
    """Its bytes are dropped, and the next request on the connection is answered."""
    async with serving(max_request_bytes=40_000) as server, server.connection() as client:
        client.send(request(b" " * 1_000_000), request(FRAGMENT))
        rejected, stored = await client.answer(), await client.answer()

    assert (rejected.status, stored.status) == (413, 200)
    assert server.stored == [FRAGMENT]


HEADER_LINE = "x-padding: " + "x" * 1_000
MANY = [HEADER_LINE] * (MAX_HEADER_BYTES // len(HEADER_LINE) + 1)


async def test_headers_within_the_limit_are_accepted() -> None:
    """A little less than 32 KB, at once or in pieces, with a body that is larger than the limit."""
    whole = request(FRAGMENT + b" " * 200_000, *MANY[:-2])
    async with serving() as server, server.connection() as client:
        client.send(whole)
        at_once = await client.answer()
        await client.send_apart(whole[:10_000], whole[10_000:31_000], whole[31_000:])
        in_pieces = await client.answer()

    assert (at_once.status, in_pieces.status) == (200, 200)


LARGE_HEADS = {
    "many lines": request(FRAGMENT, *MANY),
    "tiny lines": request(FRAGMENT, *(["x: y"] * 7_000)),
    "a long line": request(FRAGMENT, "x-long: " + "x" * MAX_HEADER_BYTES),
    "a long URL": request(FRAGMENT, path="/fragments?" + "x" * MAX_HEADER_BYTES),
    "a URL that does not end": b"POST /fragments?" + b"x" * (MAX_HEADER_BYTES + 100),
    "a line that does not end": b"POST /fragments HTTP/1.1\r\nx-endless: " + b"x" * 1_000_000,
    "trailers that do not end": CHUNKED_HEAD + b"0\r\n" + b"x: y\r\n" * 100_000,
    "a chunk extension that does not end": CHUNKED_HEAD + b"1;x=" + b"y" * 1_000_000,
}


@pytest.mark.parametrize("name", LARGE_HEADS)
@pytest.mark.parametrize("size", [1_000, 1_000_000])
async def test_headers_above_the_limit_get_a_431(name: str, size: int) -> None:
    """As soon as they are too large, whether they come at once or in pieces; trailers count too."""
    head = LARGE_HEADS[name]
    async with serving() as server, server.connection() as client:
        sending = asyncio.create_task(
            client.send_apart(*(head[at : at + size] for at in range(0, len(head), size)))
        )
        await assert_last_problem(client, 431, "headers-too-large")
        sending.cancel()

    assert server.stored == []
    assert server.metrics.requests[431] == 1


async def test_trailers_do_not_count_for_the_next_request() -> None:
    """20 KB of trailers and then 20 KB of headers: each has the whole limit."""
    lines = [HEADER_LINE] * 20
    trailers = "\r\n".join([*lines, "", ""]).encode()
    first = CHUNKED_HEAD + chunked(FRAGMENT, 100)[:-2]
    second = request(FRAGMENT, *lines)
    async with serving() as server, server.connection() as client:
        await client.send_apart(first, trailers, second[:20_000], second[20_000:])
        answers = [await client.answer(), await client.answer()]

    assert [answer.status for answer in answers] == [200, 200]


@pytest.mark.parametrize(
    "garbage",
    [
        b"nonsense\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        request(FRAGMENT, "transfer-encoding: chunked"),
        CHUNKED_HEAD + b"zz\r\n",
        request(FRAGMENT, "content-length: -1", length=False),
        request(FRAGMENT, "content-length: 5"),
        request(FRAGMENT, " : "),
        request(FRAGMENT, path="/frag\u00e4ments"),
    ],
)
async def test_bytes_that_are_not_http_get_a_400(garbage: bytes) -> None:
    """As a problem document, and the connection ends."""
    async with serving() as server, server.connection() as client:
        client.send(garbage)
        await assert_last_problem(client, 400, "malformed-request")

    assert server.stored == []


async def test_garbage_after_a_request_does_not_replace_its_answer() -> None:
    """The request gets its own answer, and then the connection ends without another."""
    sink = Stalled()
    async with serving(sink=sink) as server, server.connection() as client:
        client.send(request(FRAGMENT) + b"nonsense\r\n\r\n")
        await sink.waiting.wait()
        sink.release.set()
        answer = await client.answer()
        rest = await client.rest()

    assert (answer.status, rest) == (200, b"")
    assert answer.headers["connection"] == "close"
    assert server.stored == [FRAGMENT]


async def test_a_malformed_body_behind_a_running_request_gets_no_answer() -> None:
    """Its 400 would arrive first and look like the running request's answer, so the connection just ends."""
    sink = Stalled()
    async with serving(sink=sink) as server, server.connection() as client:
        client.send(request(FRAGMENT) + CHUNKED_HEAD + b"zz\r\n")
        rest = await client.rest()
        sink.release.set()

    assert rest == b""
    assert server.stored == [FRAGMENT]
