"""Clients that send slowly, too much, or no HTTP: over real connections, with short time-outs.

Each test waits for the server to answer or to close; only who trickles sleeps between his bytes.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

import pytest

from services.producer.http.protocol import MAX_HEADER_BYTES, Bounds
from tests.unit.producer.wire import DEADLINE_S, Answered, Connection, Stalled, chunked, request, serving

FRAGMENT = b'{"key":"visitor-1"}'
SHORT_S = 0.1
SLOW_HEADERS = Bounds(header_timeout_s=SHORT_S, body_timeout_s=DEADLINE_S)
SLOW_BODY = Bounds(header_timeout_s=DEADLINE_S, body_timeout_s=SHORT_S)


def assert_last_problem(answer: Answered, status: int, kind: str) -> None:
    """A problem document that ends the connection."""
    assert answer.status == status
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.headers["connection"] == "close"
    assert answer.body["type"] == f"urn:baton:{kind}"
    assert answer.body["detail"]


async def test_a_connection_that_sends_nothing_is_closed() -> None:
    """Whoever connects has the header time-out to say something."""
    async with serving(SLOW_HEADERS) as server, server.connection() as client:
        assert await client.rest() == b""


@pytest.mark.parametrize("begun", [b"P", b"POST /frag", b"POST /fragments HTTP/1.1\r\nhost: x\r\nx-a"])
async def test_headers_that_do_not_end_are_given_up(begun: bytes) -> None:
    """408 when the headers are not there in time, on a new connection and on one that was kept alive."""
    async with serving(SLOW_HEADERS) as server, server.connection() as client:
        client.send(begun)
        assert_last_problem(await client.answer(), 408, "slow-request")
        assert await client.rest() == b""
    async with serving(SLOW_HEADERS) as server, server.connection() as client:
        client.send(request(FRAGMENT))
        kept_alive = await client.answer()
        client.send(begun)
        slow = await client.answer()

    assert kept_alive.status == 200
    assert_last_problem(slow, 408, "slow-request")
    assert server.metrics.requests == {200: 1, 408: 1}


async def test_headers_that_trickle_are_given_up() -> None:
    """The time-out counts from the first byte, not from the last one."""
    async with serving(SLOW_HEADERS) as server, server.connection() as client:
        client.send(b"POST /fragments HTTP/1.1\r\nhost: x\r\n")
        trickling = asyncio.create_task(trickle(client, b"x: y\r\n"))
        answer = await client.answer()
        trickling.cancel()

    assert_last_problem(answer, 408, "slow-request")


@pytest.mark.parametrize("begun", [b"", b'{"key":'])
@pytest.mark.parametrize("path", ["/fragments", "/markers"])
async def test_a_body_that_does_not_end_is_given_up(begun: bytes, path: str) -> None:
    """408 when the body is not there in time, whoever would have read it; its bytes count no more."""
    async with serving(SLOW_BODY) as server, server.connection() as client:
        client.send(request(FRAGMENT, path=path)[: -len(FRAGMENT)] + begun)
        answer = await client.answer()
        rest = await client.rest()

    assert_last_problem(answer, 408, "slow-request")
    assert rest == b""
    assert server.stored == []
    assert server.door.inflight_bytes == 0


async def test_a_page_may_read_that_its_body_was_too_slow() -> None:
    """The refusal comes from outside the door, and carries what its answers carry for a page."""
    async with serving(SLOW_BODY) as server, server.connection() as client:
        client.send(request(FRAGMENT, "origin: https://shop.example")[: -len(FRAGMENT)])
        answer = await client.answer()

    assert answer.status == 408
    assert answer.headers["access-control-allow-origin"] == "*"


async def test_a_body_that_trickles_is_given_up() -> None:
    """The time-out counts from the headers, not from the last chunk."""
    async with serving(SLOW_BODY) as server, server.connection() as client:
        client.send(request(b"", "transfer-encoding: chunked", length=False))
        trickling = asyncio.create_task(trickle(client, b"1\r\n \r\n"))
        answer = await client.answer()
        trickling.cancel()

    assert_last_problem(answer, 408, "slow-request")
    assert server.door.inflight_bytes == 0


async def test_an_idle_connection_stays() -> None:
    """Between requests there is no hurry: one that has been answered outlives another's time-out."""
    async with serving(SLOW_HEADERS) as server, server.connection() as idle, server.connection() as slow:
        idle.send(request(FRAGMENT))
        first = await idle.answer()
        slow.send(b"P")
        given_up = await slow.answer()
        idle.send(request(FRAGMENT))
        second = await idle.answer()

    assert (first.status, given_up.status, second.status) == (200, 408, 200)


async def test_idle_time_counts_from_the_last_byte_of_a_refused_body() -> None:
    """A connection that was answered early, and whose body then came whole, ends like every idle one."""
    refused = request(b" " * 2_000_000)
    async with serving(keep_alive_s=SHORT_S) as server, server.connection() as client:
        client.send(refused[:1_000])
        answer = await client.answer()
        client.send(refused[1_000:])
        rest = await client.rest()

    assert (answer.status, rest) == (413, b"")


async def test_a_client_that_does_not_take_its_answers_is_cut_off() -> None:
    """Answers of 300 KB that nobody reads: the connection ends instead of waiting for ever."""
    refused = request(b"{}\n" * 2_500, "content-type: application/x-ndjson")
    async with serving(SLOW_BODY) as server, server.connection() as client:
        sending = asyncio.create_task(client.send_apart(*[refused] * 100))
        async with asyncio.timeout(DEADLINE_S):
            with contextlib.suppress(ConnectionError):
                await sending
                await trickle(client, b"\r\n", until=client.writer.is_closing)
        rest = await client.rest()

    assert rest.count(b"fragments-rejected") < 100


async def trickle(client: Connection, piece: bytes, until: Callable[[], bool] = lambda: False) -> None:
    """Sends the piece again and again, a hundredth of the time-out apart."""
    while not until():
        client.send(piece)
        await asyncio.sleep(SHORT_S / 100)


@pytest.mark.parametrize("status", [413, 415, 503])
async def test_the_rest_of_a_refused_body_is_not_waited_for(status: int) -> None:
    """What was refused before it was read is answered at once, and the connection ends with the time-out."""
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


async def test_a_refused_body_that_does_come_leaves_the_connection_open() -> None:
    """Its bytes are dropped, and the next request on the connection is answered."""
    async with serving(max_request_bytes=40_000) as server, server.connection() as client:
        client.send(request(b" " * 1_000_000), request(FRAGMENT))
        refused, stored = await client.answer(), await client.answer()

    assert (refused.status, stored.status) == (413, 200)
    assert server.stored == [FRAGMENT]


HEADER_LINE = "x-padding: " + "x" * 1_000
MANY = [HEADER_LINE] * (MAX_HEADER_BYTES // len(HEADER_LINE) + 1)


async def test_headers_within_the_limit_are_taken() -> None:
    """32 KB less a little, however they are cut, with a body behind them that is larger than the limit."""
    whole = request(FRAGMENT + b" " * 200_000, *MANY[:-2])
    async with serving() as server, server.connection() as client:
        client.send(whole)
        at_once = await client.answer()
        await client.send_apart(whole[:10_000], whole[10_000:31_000], whole[31_000:])
        in_pieces = await client.answer()

    assert (at_once.status, in_pieces.status) == (200, 200)


@pytest.mark.parametrize(
    "head",
    [
        request(FRAGMENT, *MANY),
        request(FRAGMENT, *(["x: y"] * 7_000)),
        request(FRAGMENT, "x-long: " + "x" * MAX_HEADER_BYTES),
        request(FRAGMENT, path="/fragments?" + "x" * MAX_HEADER_BYTES),
        b"POST /fragments?" + b"x" * (MAX_HEADER_BYTES + 100),
        b"POST /fragments HTTP/1.1\r\nx-endless: " + b"x" * 1_000_000,
    ],
    ids=[
        "many",
        "tiny ones",
        "a long one",
        "a long URL",
        "a URL that does not end",
        "a line that does not end",
    ],
)
@pytest.mark.parametrize("size", [1_000, 1_000_000])
async def test_headers_above_the_limit_are_refused(head: bytes, size: int) -> None:
    """431 as soon as they are too large, whether they come at once or in pieces."""
    async with serving() as server, server.connection() as client:
        sending = asyncio.create_task(
            client.send_apart(*(head[at : at + size] for at in range(0, len(head), size)))
        )
        answer = await client.answer()
        sending.cancel()

    assert_last_problem(answer, 431, "headers-too-large")
    assert server.stored == []
    assert server.metrics.requests == {431: 1}


async def test_trailers_and_chunk_extensions_are_bounded_too() -> None:
    """What comes in a chunked body without being a body may not go on for ever either."""
    head = request(b"", "transfer-encoding: chunked", length=False)
    for endless in (b"0\r\n" + b"x: y\r\n" * 100_000, b"1;x=" + b"y" * 1_000_000):
        async with serving() as server, server.connection() as client:
            sending = asyncio.create_task(client.send_apart(head, *[endless[:60_000]] * 4))
            answer = await client.answer()
            sending.cancel()

        assert_last_problem(answer, 431, "headers-too-large")
        assert server.stored == []


async def test_trailers_do_not_count_for_the_next_request() -> None:
    """20 KB of trailers, and then 20 KB of headers: each has the whole limit."""
    lines = [HEADER_LINE] * 20
    trailers = "\r\n".join([*lines, "", ""]).encode()
    first = request(chunked(FRAGMENT, 100)[:-2], "transfer-encoding: chunked", length=False)
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
        request(b"zz\r\n", "transfer-encoding: chunked", length=False),
        request(FRAGMENT, "content-length: -1", length=False),
        request(FRAGMENT, "content-length: 5"),
        request(FRAGMENT, " : "),
        request(FRAGMENT, path="/frag\u00e4ments"),
    ],
)
async def test_what_is_no_http_is_refused(garbage: bytes) -> None:
    """400 as a problem document, and the connection ends."""
    async with serving() as server, server.connection() as client:
        client.send(garbage)
        answer = await client.answer()
        rest = await client.rest()

    assert_last_problem(answer, 400, "malformed-request")
    assert rest == b""
    assert server.stored == []


async def test_a_refusal_never_stands_for_the_answer_of_a_request_before() -> None:
    """What is no HTTP behind a good request: that one gets its own answer, and then the connection ends."""
    async with serving() as server, server.connection() as client:
        client.send(request(FRAGMENT) + b"nonsense\r\n\r\n")
        answer = await client.answer()
        rest = await client.rest()

    assert (answer.status, rest) == (200, b"")
    assert answer.headers["connection"] == "close"
    assert server.stored == [FRAGMENT]


async def test_a_body_that_is_no_http_behind_a_request_under_way_is_not_answered() -> None:
    """Its refusal would come first, so there is none: the connection ends, and nobody is told a lie."""
    sink = Stalled()
    broken = request(b"zz\r\n", "transfer-encoding: chunked", length=False)
    async with serving(sink=sink) as server, server.connection() as client:
        client.send(request(FRAGMENT) + broken)
        rest = await client.rest()
        sink.release.set()

    assert rest == b""
    assert server.stored == [FRAGMENT]
