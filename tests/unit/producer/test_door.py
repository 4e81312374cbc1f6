"""Every answer of the producer's HTTP face, over ASGI with an in-memory sink."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Iterator, Mapping
from typing import Any

import httpx
import pytest

from services.producer.app import create_app
from services.producer.core.form import Form
from services.producer.core.ingest import Portion
from services.producer.http.door import Door
from services.producer.http.keys import WriteKeys
from services.producer.http.metrics import ProducerMetrics
from services.producer.settings import ProducerSettings
from shared.model.routing import StreamTable, initial_table
from tests.fakes.rejects import InMemoryRejects
from tests.fakes.sink import InMemoryFragmentSink
from tests.unit.producer.wire import Stalled

TABLE = initial_table(24)
JSON = {"content-type": "application/json"}
NDJSON = {"content-type": "application/x-ndjson"}


class Producer:
    """A producer's HTTP face on an in-memory sink."""

    def __init__(self, keys: WriteKeys | None = None, **settings: Any) -> None:
        self.keys = keys
        self.sink = InMemoryFragmentSink(TABLE.count)
        self.rejects = InMemoryRejects()
        self.table: StreamTable | None = TABLE
        self.complaints: list[str] = []
        self.door = self.make_door(ProducerSettings(**settings))
        self.client = httpx.AsyncClient(transport=httpx.ASGITransport(self.door), base_url="http://producer")

    def make_door(self, settings: ProducerSettings) -> Door:
        return create_app(
            settings=settings,
            sink=self.sink,
            rejects=self.rejects,
            table=lambda: self.table,
            table_json=lambda: self.table.encode() if self.table else b"",
            complaints=lambda: self.complaints,
            metrics=ProducerMetrics(),
            keys=self.keys,
        )

    async def post(
        self, body: bytes | AsyncIterator[bytes], headers: Mapping[str, str] = JSON
    ) -> httpx.Response:
        return await self.client.post("/fragments", content=body, headers=headers)


@pytest.fixture
async def producer() -> AsyncIterator[Producer]:
    producer = Producer()
    async with producer.client:
        yield producer


def assert_problem(answer: httpx.Response, status: int, kind: str) -> dict[str, Any]:
    """The answer is a problem document of RFC 9457, and says so."""
    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/problem+json"
    body: dict[str, Any] = answer.json()
    assert body["type"] == f"urn:baton:{kind}"
    assert body["status"] == status
    assert body["title"]
    assert body["detail"]
    return body


async def test_accepted_fragments_are_stored_as_posted(producer: Producer) -> None:
    """200 says how many were accepted; the sink has their bytes under their keys."""
    answer = await producer.post(b'{"key":"visitor-1",  "data":1}')

    assert answer.status_code == 200
    assert answer.headers["content-type"] == "application/json"
    assert answer.json() == {"accepted": 1, "rejected": []}
    assert producer.sink.logs[10] == [(b"visitor-1", b'{"key":"visitor-1",  "data":1}')]


async def test_some_rejected_is_a_200_that_names_them(producer: Producer) -> None:
    """The good ones are kept; each bad one is listed by index, reason and detail."""
    answer = await producer.post(b'{"key":"a"}\n{"key":""}\nnonsense\n{"key":"b"}', NDJSON)

    assert answer.status_code == 200
    body = answer.json()
    assert body["accepted"] == 2
    assert [(r["index"], r["reason"]) for r in body["rejected"]] == [(1, "key"), (2, "malformed")]
    assert all(set(r) == {"index", "reason", "detail"} and r["detail"] for r in body["rejected"])
    assert sum(map(len, producer.sink.logs)) == 2


@pytest.mark.parametrize(("body", "headers"), [(b"[]", JSON), (b"", NDJSON), (b"\n\n", NDJSON)])
async def test_no_fragments_is_a_200_with_0(producer: Producer, body: bytes, headers: dict[str, str]) -> None:
    """An empty array (or NDJSON without lines) is no fault; Kafka is not asked."""
    producer.sink.down = True

    answer = await producer.post(body, headers)

    assert answer.status_code == 200
    assert answer.json() == {"accepted": 0, "rejected": []}


async def test_none_acceptable_lists_every_reason(producer: Producer) -> None:
    """422 carries the same list that a 200 would."""
    body = assert_problem(await producer.post(b'[{"key":""},{}]'), 422, "fragments-rejected")

    assert body["accepted"] == 0
    assert [(r["index"], r["reason"]) for r in body["rejected"]] == [(0, "key"), (1, "invalid")]


async def test_a_refused_type_is_told_what_is_accepted(producer: Producer) -> None:
    """415 answers with Accept or Accept-Encoding, as RFC 9110 asks."""
    by_type = await producer.post(b"x", {"content-type": "text/html"})
    by_encoding = await producer.post(b"x", JSON | {"content-encoding": "br"})

    assert by_type.headers["accept"] == "application/json, application/x-ndjson, text/plain"
    assert by_encoding.headers["accept-encoding"] == "gzip, zstd"


async def test_an_oversized_body_is_refused_before_all_of_it_is_read() -> None:
    """A body without a length is counted while it is read, and given up at the limit."""
    producer = Producer(max_request_bytes=10_000, max_fragment_bytes=1_000)
    sent = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal sent
        while True:
            sent += 1_000
            yield b" " * 1_000

    async with producer.client:
        answer = await producer.post(endless())

    assert_problem(answer, 413, "request-too-large")
    assert sent == 11_000
    assert producer.door.inflight_bytes == 0


async def test_an_announced_oversize_is_refused_unread(producer: Producer) -> None:
    """Content-Length alone decides."""
    scope = {
        "type": "http",
        "path": "/fragments",
        "method": "POST",
        "headers": [(b"content-type", b"application/json"), (b"content-length", b"9999999")],
    }

    async def receive() -> dict[str, Any]:
        raise AssertionError("the body was asked for")

    answer = await producer.door.answer(scope, receive)

    assert not isinstance(answer, bytes)
    assert answer.status_code == 413


async def test_slow_bodies_take_no_room_from_others() -> None:
    """What is still arriving may have half of the room; who has been sending for longest is given up: 429."""
    producer = Producer(max_inflight_bytes=1024 * 1024)
    piece = b" " * 300_000
    arriving, more = asyncio.Event(), asyncio.Event()

    async def stalling() -> AsyncIterator[bytes]:
        yield piece
        arriving.set()
        await more.wait()
        yield b'{"key":"visitor-1"}'

    async with producer.client:
        slow = asyncio.create_task(producer.post(stalling()))
        await arriving.wait()
        later = asyncio.create_task(producer.post(stalling()))
        given_up = await slow
        whole = await producer.post(b'{"key":"visitor-1"}')
        more.set()
        stored = await later

    assert_problem(given_up, 429, "overloaded")
    assert (whole.status_code, stored.status_code) == (200, 200)
    assert len(producer.sink.logs[10]) == 2
    assert producer.door.inflight_bytes == 0


async def test_a_body_that_was_broken_off_takes_no_room() -> None:
    """What a client had sent before it went away counts no more among what is arriving."""
    producer = Producer(max_inflight_bytes=1024 * 1024)
    piece = b" " * 400_000
    messages: Iterator[dict[str, Any]] = iter(
        [{"type": "http.request", "body": piece, "more_body": True}, {"type": "http.disconnect"}]
    )

    async def receive() -> dict[str, Any]:
        return next(messages)

    async def send(message: Any) -> None:
        raise AssertionError("nobody is there to be answered")

    async def pieces() -> AsyncIterator[bytes]:
        yield piece
        yield b'{"key":"a"}'

    headers = [(b"content-type", b"application/json")]
    scope = {"type": "http", "path": "/fragments", "method": "POST", "headers": headers}
    await producer.door(scope, receive, send)
    async with producer.client:
        answer = await producer.post(pieces())

    assert answer.status_code == 200


@pytest.mark.parametrize("announced", [True, False])
async def test_other_routes_take_small_bodies_only(producer: Producer, announced: bool) -> None:
    """413: FastAPI would read a body of any size into memory."""

    async def pieces() -> AsyncIterator[bytes]:
        for _ in range(20):
            yield b" " * 1_000

    body = b" " * 20_000 if announced else pieces()
    answer = await producer.client.post("/markers", content=body, headers=JSON)

    assert answer.status_code == 413
    assert answer.headers["content-type"] == "application/problem+json"
    assert not any(producer.sink.logs)


async def test_a_client_that_goes_away_is_not_answered(producer: Producer) -> None:
    """A disconnect in the middle of a body ends the request without storing anything."""
    messages: Iterator[dict[str, Any]] = iter(
        [{"type": "http.request", "body": b'{"key":"a"}', "more_body": True}, {"type": "http.disconnect"}]
    )
    sent: list[Any] = []

    async def receive() -> dict[str, Any]:
        return next(messages)

    async def send(message: Any) -> None:
        sent.append(message)

    headers = [(b"content-type", b"application/json")]
    scope = {"type": "http", "path": "/fragments", "method": "POST", "headers": headers}
    await producer.door(scope, receive, send)

    assert sent == []
    assert not any(producer.sink.logs)
    assert producer.door.inflight_bytes == 0


async def test_kafka_away_is_a_503_to_be_retried(producer: Producer) -> None:
    """Nothing is reported accepted, and Retry-After says to come again."""
    producer.sink.down = True

    answer = await producer.post(b'[{"key":"a"},{"key":""}]')

    body = assert_problem(answer, 503, "kafka-unavailable")
    assert answer.headers["retry-after"] == "1"
    assert "accepted" not in body


async def test_a_partly_stored_request_names_what_was_not(producer: Producer) -> None:
    """503 with the indexes that were not acknowledged, and the rejected ones apart."""
    keys = ["visitor-1", "199.72.81.55", "", "visitor-2"]  # streams 10, 4, none, 10
    producer.sink.mute = {4}

    answer = await producer.post(json.dumps([{"key": key} for key in keys]).encode())

    body = assert_problem(answer, 503, "kafka-unavailable")
    assert answer.headers["retry-after"] == "1"
    assert (body["accepted"], body["unstored"]) == (2, [1])
    assert [r["index"] for r in body["rejected"]] == [2]
    assert [key for key, _ in producer.sink.logs[10]] == [b"visitor-1", b"visitor-2"]


async def test_without_a_stream_table_fragments_are_refused_for_now(producer: Producer) -> None:
    """Before there is a table nothing can be routed: 503, also for markers and for the table."""
    producer.table = None

    for answer in (
        await producer.post(b'{"key":"a"}'),
        await producer.client.post("/markers", json={"time": 1}),
        await producer.client.get("/table"),
    ):
        assert_problem(answer, 503, "zoo-keeper-unavailable")
        assert answer.headers["retry-after"] == "1"


async def test_what_is_in_flight_is_bounded() -> None:
    """Beyond max_inflight_bytes a request is refused with 429, until others are answered."""

    producer = Producer()
    stalled = producer.sink = Stalled()
    producer.door = producer.make_door(ProducerSettings(max_inflight_bytes=1024 * 1024))
    body = json.dumps([{"key": "a", "data": "x" * 30_000}] * 20).encode()
    transport = httpx.ASGITransport(producer.door)
    async with httpx.AsyncClient(transport=transport, base_url="http://producer") as client:
        first = asyncio.create_task(client.post("/fragments", content=body, headers=JSON))
        await asyncio.wait_for(stalled.waiting.wait(), 5)

        refused = await client.post("/fragments", content=body, headers=JSON)
        held = producer.door.inflight_bytes
        stalled.release.set()
        stored = await first
        again = await client.post("/fragments", content=body, headers=JSON)

    assert_problem(refused, 429, "overloaded")
    assert refused.headers["retry-after"] == "1"
    assert held == len(body)
    assert (stored.status_code, again.status_code) == (200, 200)
    assert producer.door.inflight_bytes == 0


async def test_a_leaving_producer_refuses(producer: Producer) -> None:
    """After leave(), 503 for fragments and a complaint at /readyz; /livez still answers."""
    producer.door.leave()

    assert_problem(await producer.post(b'{"key":"a"}'), 503, "leaving")
    assert_problem(await producer.client.get("/readyz"), 503, "not-ready")
    assert (await producer.client.get("/livez")).status_code == 200


async def test_an_error_of_ours_is_a_problem_too(producer: Producer) -> None:
    """What nobody expected is a 500 in the same form, without its inside."""

    def broken(portions: Mapping[int, Portion]) -> Awaitable[list[int]]:
        raise RuntimeError("secret")

    producer.sink.send = broken  # type: ignore[method-assign]

    body = assert_problem(await producer.post(b'{"key":"a"}'), 500, "internal-server-error")

    assert "secret" not in json.dumps(body)


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "PATCH"])
async def test_other_methods_are_refused(producer: Producer, method: str) -> None:
    """405 with the method that is allowed."""
    answer = await producer.client.request(method, "/fragments")

    assert_problem(answer, 405, "method-not-allowed")
    assert answer.headers["allow"] == "POST"


async def test_a_marker_goes_into_every_stream(producer: Producer) -> None:
    """POST /markers answers with the marker's offset in each stream."""
    await producer.post(b'{"key":"visitor-1"}')

    answer = await producer.client.post("/markers", json={"time": 1_700_000_000_000})

    assert answer.status_code == 200
    offsets = {marker["stream"]: marker["offset"] for marker in answer.json()["markers"]}
    assert offsets == {stream: 1 if stream == 10 else 0 for stream in range(24)}
    assert all(log[-1] == (None, b'{"time":1700000000000}') for log in producer.sink.logs)


@pytest.mark.parametrize(
    "body",
    [b"", b"{}", b"[]", b"7", b'{"time":"7"}', b'{"time":1.5}', b'{"time":-1}', b'{"time":true}', b"x"],
)
async def test_an_invalid_marker_is_refused(producer: Producer, body: bytes) -> None:
    """422 with what is wrong; nothing is written."""
    answer = await producer.client.post("/markers", content=body, headers=JSON)

    problem = assert_problem(answer, 422, "invalid-input")
    assert problem["errors"]
    assert not any(producer.sink.logs)


async def test_a_marker_that_not_every_stream_has_is_a_503(producer: Producer) -> None:
    """A marker counts only when all streams have it; writing it again is harmless."""
    producer.sink.mute = {3}

    answer = await producer.client.post("/markers", json={"time": 1})

    assert_problem(answer, 503, "kafka-unavailable")


async def test_the_table_is_served_as_it_is_stored(producer: Producer) -> None:
    """GET /table gives the znode's bytes."""
    answer = await producer.client.get("/table")

    assert answer.status_code == 200
    assert answer.headers["content-type"] == "application/json"
    assert answer.content == TABLE.encode()


async def test_readiness_tells_every_complaint(producer: Producer) -> None:
    """/readyz is 503 with the reasons while there are any."""
    ready = await producer.client.get("/readyz")
    producer.complaints = ["", "Kafka is away", "no table"]
    not_ready = await producer.client.get("/readyz")

    assert ready.status_code == 200
    assert assert_problem(not_ready, 503, "not-ready")["detail"] == "Kafka is away; no table"


async def test_metrics_count_what_happened(producer: Producer) -> None:
    """Stored fragments and bytes, rejected ones by reason, requests by status."""
    await producer.post(b'[{"key":"a"},{"key":""}]')
    await producer.post(b"nonsense")

    text = (await producer.client.get("/metrics")).text

    for line in (
        "baton_fragments_stored_total 1.0",
        "baton_fragment_bytes_stored_total 11.0",
        'baton_fragments_rejected_total{reason="key"} 1.0',
        'baton_requests_total{status="200"} 1.0',
        'baton_requests_total{status="400"} 1.0',
        "baton_inflight_bytes 0.0",
    ):
        assert line in text.splitlines()


async def test_the_documentation_names_all_forms_and_every_status(producer: Producer) -> None:
    """OpenAPI documents POST /fragments although FastAPI never answers it."""
    document = (await producer.client.get("/openapi.json")).json()

    operation = document["paths"]["/fragments"]["post"]
    assert set(operation["requestBody"]["content"]) == {form.value for form in Form}
    statuses = {"200", "400", "401", "403", "408", "413", "415", "422", "429", "431", "503"}
    assert set(operation["responses"]) == statuses
    assert all(word in operation["requestBody"]["description"] for word in ("gzip", "zstd", "chunked"))
    assert set(operation["responses"]["415"]["headers"]) == {"Accept", "Accept-Encoding"}
    for status in ("429", "503"):
        assert set(operation["responses"][status]["headers"]) == {"Retry-After"}
