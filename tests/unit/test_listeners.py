"""All four listeners stand on one server: slow and huge clients, broken HTTP, and pipelines that take turns.

Each service's real face behind a connection of ours, on a wire in memory and a virtual clock.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from services.consumer.app import create_app
from services.consumer.member.metrics import ConsumerMetrics
from services.queue.app import create_face
from services.queue.worker.queues import Queues
from shared.server.bounds import Bounds
from shared.server.connection import TURN_ANSWERS, TURN_S, HttpConnection
from shared.server.connections import Connections
from shared.server.face import Face
from shared.server.reader import MAX_HEADER_BYTES
from shared.service.inflight import Inflight
from tests.fakes.http import Wire, connected
from tests.fakes.queues import InMemoryQueueStore
from tests.fakes.virtual_time import until, virtual_time
from tests.unit.control.http.test_app import InMemoryRunner, app_of
from tests.unit.control.sources import small_baton
from tests.unit.producer.face import Producer

LISTENERS = ("producer", "queue", "consumer", "control")
POSTS = {"producer": "/fragments", "queue": "/queues/q/items", "consumer": "/drain", "control": "/login"}
BOUNDS = Bounds(header_timeout_s=10, body_timeout_s=20)
PIECE = b"a" * 16 * 1024
JSON = "content-type: application/json\r\n"


async def face_of(listener: str) -> Face:
    """The face of a service over nothing."""
    if listener == "producer":
        return Producer().face
    if listener == "queue":
        return create_face(Queues(InMemoryQueueStore()), Inflight(64 * 1024 * 1024), asyncio.Event())
    if listener == "control":
        return Face(await app_of(small_baton(), InMemoryRunner()))
    metrics = ConsumerMetrics(())
    return Face(create_app(status=dict, plan=dict, complaints=list, metrics=metrics, reception=lambda: None))


def statuses(wire: Wire) -> list[int]:
    """Of the answers so far."""
    return [int(status) for status in re.findall(rb"HTTP/1\.1 (\d{3}) ", bytes(wire.written))]


def is_over(wire: Wire) -> bool:
    """Whether the server has ended the connection."""
    return wire.is_closing() or wire.is_ended


SLOW = {
    "nothing": ("", set()),
    "a line of headers": ("POST {path} HTTP/1.1\r\nhost: localhost\r\nx: ", {408}),
    "a body": (
        "POST {path} HTTP/1.1\r\nhost: localhost\r\n" + JSON + "content-length: 1000\r\n\r\n",
        {408, 409, 415},
    ),
}


@pytest.mark.parametrize("what", SLOW)
@pytest.mark.parametrize("listener", LISTENERS)
@virtual_time
async def test_a_client_that_sends_a_byte_every_five_seconds_loses_its_connection(
    listener: str, what: str
) -> None:
    """Within the time for headers or a body; a refusal of the headers may come first."""
    sent, answered = SLOW[what]
    connection, wire = connected(await face_of(listener), BOUNDS)
    begun_s = asyncio.get_running_loop().time()

    if sent:
        connection.data_received(sent.format(path=POSTS[listener]).encode())
    while not is_over(wire):
        await asyncio.sleep(5)
        if sent and not is_over(wire):
            connection.data_received(b"a")
    taken_s = asyncio.get_running_loop().time() - begun_s
    # what it sends after that changes nothing
    connection.data_received(b"a")

    assert taken_s <= 20
    assert set(statuses(wire)) <= answered
    assert len(statuses(wire)) == bool(answered)


@pytest.mark.parametrize("begin", ["GET /livez HTTP/1.1\r\nhost: localhost\r\nx: ", "GET /", "GET /livez?"])
@pytest.mark.parametrize("listener", LISTENERS)
@virtual_time
async def test_headers_without_end_are_refused_at_their_bound(listener: str, begin: str) -> None:
    """Of 200 MB that a client would send, 32 KB and what has arrived with them are kept."""
    connection, wire = connected(await face_of(listener), BOUNDS)
    connection.data_received(begin.encode())

    sent = 0
    while not is_over(wire):
        connection.data_received(PIECE)
        sent += len(PIECE)

    assert sent <= MAX_HEADER_BYTES + len(PIECE)
    assert statuses(wire) == [431]


@pytest.mark.parametrize("listener", LISTENERS)
@virtual_time
async def test_a_connection_beyond_the_bound_is_refused_but_probes_are_not(listener: str) -> None:
    """An orchestrator must still see that the process lives."""
    face, bounds, answers = await face_of(listener), Bounds(connections=Connections(0)), []
    for path in (b"/nothing", b"/livez"):
        connection, wire = connected(face, bounds)
        connection.data_received(b"GET %b HTTP/1.1\r\nhost: localhost\r\n\r\n" % path)
        await until(lambda wire=wire: is_over(wire))  # type: ignore[misc]
        answers.append(statuses(wire))

    assert answers == [[503], [200]]


HOST = "host: localhost\r\n"
LIVE = f"GET /livez HTTP/1.1\r\n{HOST}\r\n"
CHUNKS = "2\r\n{}\r\n0\r\n\r\n"
POST = f"POST /nothing HTTP/1.1\r\n{HOST}{JSON}"
CONFORMING = {
    "no Host": ("GET /livez HTTP/1.1\r\n\r\n", [400]),
    "two Hosts": (f"GET /livez HTTP/1.1\r\n{HOST}{HOST}\r\n", [400]),
    "a Host that is none": ("GET /livez HTTP/1.1\r\nhost: a b/../\r\n\r\n", [400]),
    "HTTP/0.9": ("GET /livez\r\n\r\n", [505]),
    "HTTP/2.0": (f"GET /livez HTTP/2.0\r\n{HOST}\r\n", [505]),
    "an unknown coding": (f"{POST}transfer-encoding: gzip, chunked\r\n\r\n{CHUNKS}", [501]),
    "chunked not last": (f"{POST}transfer-encoding: chunked, gzip\r\n\r\n{CHUNKS}", [400]),
    "chunked twice": (
        f"{POST}transfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n\r\n{CHUNKS}",
        [400],
    ),
    "chunked over HTTP/1.0": (
        f"POST /nothing HTTP/1.0\r\n{HOST}transfer-encoding: chunked\r\n\r\n{CHUNKS}",
        [400],
    ),
    "two lengths": (f"{POST}content-length: 2\r\ncontent-length: 2\r\n\r\n{{}}", [400]),
    "a length and chunks": (f"{POST}content-length: 2\r\ntransfer-encoding: chunked\r\n\r\n{CHUNKS}", [400]),
    "CONNECT": (f"CONNECT localhost:80 HTTP/1.1\r\n{HOST}\r\n", [501]),
    "a stranger's absolute target": (f"GET http://evil.example/metrics HTTP/1.1\r\n{HOST}\r\n", [421]),
    "its own absolute target": ("GET http://localhost/livez HTTP/1.1\r\nhost: evil.example\r\n\r\n", [200]),
    "an offer of HTTP/2": (
        f"GET /livez HTTP/1.1\r\n{HOST}connection: upgrade, http2-settings\r\nupgrade: h2c\r\n\r\n{LIVE}",
        [200, 200],
    ),
    "an offer of WebSockets": (
        f"GET /livez HTTP/1.1\r\n{HOST}connection: upgrade\r\nupgrade: websocket\r\n"
        f"sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\nsec-websocket-version: 13\r\n\r\n{LIVE}",
        [200, 200],
    ),
    "an offer with a body": (
        f"{POST}connection: upgrade\r\nupgrade: h2c\r\ncontent-length: 2\r\n\r\n{{}}{LIVE}",
        [404, 200],
    ),
    "a body in chunks, and another request": (
        f"{POST}transfer-encoding: chunked\r\n\r\n{CHUNKS}{LIVE}",
        [404, 200],
    ),
}


@pytest.mark.parametrize("name", CONFORMING)
@pytest.mark.parametrize("cut", [1_000_000, 7], ids=["whole", "in pieces"])
@pytest.mark.parametrize("listener", LISTENERS)
@virtual_time
async def test_requests_are_told_apart_as_rfc_9112_says(listener: str, name: str, cut: int) -> None:
    """What could be read in two ways is refused, and the connection ends; an offer to upgrade is declined."""
    sent, expected = CONFORMING[name]
    connection, wire = connected(await face_of(listener), BOUNDS)
    data = sent.encode()

    for at in range(0, len(data), cut):
        connection.data_received(data[at : at + cut])
    await until(lambda: len(statuses(wire)) >= len(expected))
    await asyncio.sleep(1)

    assert statuses(wire) == expected
    assert is_over(wire) == (expected[-1] not in (200, 404, 421))


@pytest.mark.parametrize(
    ("listener", "path", "status"),
    [("producer", "/fragments", 415), ("queue", "/queues/q/items", 415), ("control", "/operations", 415)],
)
@virtual_time
async def test_a_refusal_of_what_waits_for_a_100_ends_the_connection(
    listener: str, path: str, status: int
) -> None:
    """The client may send the body or another request: what follows could be taken for the other."""
    connection, wire = connected(await face_of(listener), BOUNDS)
    connection.data_received(
        f"POST {path} HTTP/1.1\r\n{HOST}content-type: a/b\r\nexpect: 100-continue\r\n"
        f"content-length: {len(LIVE)}\r\n\r\n".encode()
    )
    await until(lambda: bool(statuses(wire)))
    connection.data_received(LIVE.encode() * 2)
    await asyncio.sleep(1)

    assert statuses(wire) == [status]
    assert b"connection: close" in wire.written
    assert is_over(wire)


@virtual_time
async def test_a_client_of_http_1_0_gets_no_100_and_no_chunks() -> None:
    """It would take the one for the answer, and the others for the body."""
    connection, wire = connected(await face_of("control"), BOUNDS)
    connection.data_received(
        b"POST /login HTTP/1.0\r\nhost: localhost\r\nexpect: 100-continue\r\n"
        b"content-type: application/x-www-form-urlencoded\r\ncontent-length: 7\r\n\r\ntoken=a"
    )
    await until(lambda: is_over(wire))

    assert b"100 Continue" not in wire.written
    assert b"transfer-encoding" not in wire.written
    assert statuses(wire) == [303]


REFUSED_AT_ONCE = {"producer": "/fragments", "queue": "/queues/q/items"}


def pipeline(listener: str, count: int) -> bytes:
    """Requests that are refused by their headers."""
    return f"POST {REFUSED_AT_ONCE[listener]} HTTP/1.1\r\n{HOST}\r\n".encode() * count


async def in_turns(wire: Wire, count: int) -> list[int]:
    """How many answers each turn of the loop brings, until there are `count`."""
    found, before = [len(statuses(wire))], len(statuses(wire))
    while before < count:
        await asyncio.sleep(0)
        found.append(len(statuses(wire)) - before)
        before += found[-1]
    return found


@pytest.mark.parametrize("listener", REFUSED_AT_ONCE)
@virtual_time
async def test_a_pipeline_is_answered_in_turns_with_others(listener: str) -> None:
    """Of 1,000 requests in one read, a turn answers a few; nothing is read meanwhile, and none is lost."""
    connection, wire = connected(await face_of(listener), Bounds(now_s=lambda: 0.0))

    connection.data_received(pipeline(listener, 1_000))
    read_on = wire.reads
    turns = await in_turns(wire, 1_000)

    assert not read_on
    assert max(turns) <= TURN_ANSWERS
    assert wire.reads


@pytest.mark.parametrize("listener", REFUSED_AT_ONCE)
@virtual_time
async def test_a_turn_ends_when_its_time_is_up(listener: str) -> None:
    """One costly request, like a packed body, is enough for it."""

    def times() -> Iterator[float]:
        now_s = 0.0
        while True:
            yield now_s
            now_s += TURN_S

    connection, wire = connected(await face_of(listener), Bounds(now_s=times().__next__))
    connection.data_received(pipeline(listener, 50))
    turns = await in_turns(wire, 50)

    assert max(turns) == 1


ENDS: dict[str, Callable[[HttpConnection], Any]] = {
    "a stop": HttpConnection.shutdown,
    "the end of what the client sends": HttpConnection.eof_received,
}


@pytest.mark.parametrize("how", ENDS)
@virtual_time
async def test_what_has_arrived_before_an_end_is_answered(how: str) -> None:
    """Also what waits for its turn."""
    connection, wire = connected(await face_of("producer"), Bounds(now_s=lambda: 0.0))
    connection.data_received(pipeline("producer", 200))
    ENDS[how](connection)
    await until(lambda: is_over(wire))

    assert statuses(wire) == [415] * 200


@virtual_time
async def test_what_waits_for_its_turn_counts_as_in_flight() -> None:
    """Beyond its part of the room the connection ends with a 429, and occupies nothing."""
    producer = Producer(max_inflight_bytes=200_000)
    connection, wire = connected(producer.face, Bounds(now_s=lambda: 0.0))
    connection.data_received(pipeline("producer", 2_000))
    await until(lambda: is_over(wire))

    assert statuses(wire)[-1] == 429
    assert len(statuses(wire)) <= TURN_ANSWERS + 1
    assert (producer.door.inflight.bytes, producer.door.inflight.waiting_bytes) == (0, 0)


FOREIGN = {
    "a stranger's name": ("GET", "host: evil.example\r\n", 421),
    "a page's post": ("POST", f"{HOST}origin: https://evil.example\r\n", 403),
    "a page's post without its origin": ("POST", f"{HOST}sec-fetch-site: cross-site\r\n", 403),
}
SHOWN = {"producer": "/markers", "queue": "/queues/q/purge", "consumer": "/undrain", "control": "/operations"}


@pytest.mark.parametrize("name", FOREIGN)
@pytest.mark.parametrize("listener", LISTENERS)
@virtual_time
async def test_no_listener_acts_or_shows_data_for_a_foreign_page(listener: str, name: str) -> None:
    """A browser sends such requests from any page, to whatever its machine reaches."""
    method, headers, status = FOREIGN[name]
    answers = []
    for path in (SHOWN[listener], "/metrics"):
        connection, wire = connected(await face_of(listener), BOUNDS)
        connection.data_received(f"{method} {path} HTTP/1.1\r\n{headers}content-length: 0\r\n\r\n".encode())
        await until(lambda wire=wire: bool(statuses(wire)))  # type: ignore[misc]
        answers += statuses(wire)

    assert answers == [status] * 2


@pytest.mark.parametrize("path", ["/queues/q/lease", "/queues/q/items", "/queues/q/purge"])
@virtual_time
async def test_a_form_does_not_act_on_a_queue(path: str) -> None:
    """Old browsers send forms without their origin, and the types of forms need no permission."""
    answers = []
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"):
        connection, wire = connected(await face_of("queue"), BOUNDS)
        connection.data_received(
            f"POST {path} HTTP/1.1\r\n{HOST}content-type: {kind}\r\ncontent-length: 2\r\n\r\n{{}}".encode()
        )
        await until(lambda wire=wire: bool(statuses(wire)))  # type: ignore[misc]
        answers += statuses(wire)

    assert answers == [415] * 3
