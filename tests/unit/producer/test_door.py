"""The answers of the producer's HTTP face, on a sink in memory; test_refusals.py has the 4xx."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping

import pytest

from services.producer.core.ingest import Portion
from tests.fakes.http import connected
from tests.unit.producer.face import JSON, NDJSON, TABLE, Producer, assert_problem
from tests.unit.producer.wire import Stalled


@pytest.fixture
def producer() -> Producer:
    return Producer()


async def test_accepted_fragments_are_stored_as_posted(producer: Producer) -> None:
    """200 reports how many were accepted; the sink has their bytes under their keys."""
    answer = await producer.post(b'{"key":"visitor-1",  "data":1}')

    assert answer.status_code == 200
    assert answer.headers["content-type"] == "application/json"
    assert answer.json() == {"accepted": 1, "rejected": []}
    assert producer.sink.logs[10] == [(b"visitor-1", b'{"key":"visitor-1",  "data":1}')]


@pytest.mark.parametrize(("body", "headers"), [(b"[]", JSON), (b"", NDJSON), (b"\n\n", NDJSON)])
async def test_no_fragments_is_a_200_with_0(producer: Producer, body: bytes, headers: dict[str, str]) -> None:
    """An empty array, or NDJSON without lines, is valid, and needs no Kafka."""
    producer.sink.down = True

    answer = await producer.post(body, headers)

    assert (answer.status_code, answer.json()) == (200, {"accepted": 0, "rejected": []})


async def test_an_oversized_body_is_rejected_before_it_is_read_completely() -> None:
    """A body without a length is counted while it is read; reading stops at the limit."""
    producer = Producer(max_request_bytes=10_000, max_fragment_bytes=1_000)
    sent = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal sent
        while True:
            sent += 1_000
            yield b" " * 1_000

    assert_problem(await producer.post(endless()), 413, "request-too-large")
    assert sent == 11_000
    assert producer.door.inflight_bytes == 0


async def test_slow_uploads_do_not_starve_others() -> None:
    """Bodies that are arriving may fill half of the room; beyond that the oldest upload gets 429."""
    producer = Producer(max_inflight_bytes=1024 * 1024)
    arriving, more = asyncio.Event(), asyncio.Event()

    async def stalling() -> AsyncIterator[bytes]:
        yield b" " * 300_000
        arriving.set()
        await more.wait()
        yield b'{"key":"visitor-1"}'

    slow = asyncio.create_task(producer.post(stalling()))
    await arriving.wait()
    later = asyncio.create_task(producer.post(stalling()))
    dropped = await slow
    whole = await producer.post(b'{"key":"visitor-1"}')
    more.set()
    stored = await later

    assert_problem(dropped, 429, "overloaded")
    assert (whole.status_code, stored.status_code) == (200, 200)
    assert len(producer.sink.logs[10]) == 2
    assert producer.door.inflight_bytes == 0


async def test_a_client_that_disconnects_gets_no_answer_and_leaves_nothing_behind() -> None:
    """A disconnect within a body stores nothing, and its bytes no longer count among the uploads."""
    producer = Producer(max_inflight_bytes=1024 * 1024)
    piece = b" " * 400_000
    connection, wire = connected(producer.face)

    async def pieces() -> AsyncIterator[bytes]:
        yield piece
        yield b"[]"

    connection.data_received(
        b"POST /fragments HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\n"
        b"content-length: 900000\r\n\r\n"
    )
    connection.data_received(piece)
    held = producer.door.inflight_bytes
    connection.connection_lost(None)
    bytes_left = producer.door.inflight_bytes
    answer = await producer.post(pieces())

    assert (held, bytes_left, bytes(wire.written)) == (len(piece), 0, b"")
    assert answer.status_code == 200
    assert producer.stored == []


@pytest.mark.parametrize("is_announced", [True, False])
async def test_other_routes_accept_small_bodies_only(producer: Producer, is_announced: bool) -> None:
    """413: FastAPI alone would read a body of any size into memory."""

    async def pieces() -> AsyncIterator[bytes]:
        for _ in range(20):
            yield b" " * 1_000

    body = b" " * 20_000 if is_announced else pieces()
    answer = await producer.client.post("/markers", content=body, headers=JSON)

    assert answer.status_code == 413
    assert answer.headers["content-type"] == "application/problem+json"
    assert producer.stored == []


async def test_without_kafka_the_answer_is_a_503_to_retry(producer: Producer) -> None:
    """It reports nothing as accepted, and Retry-After says when to retry."""
    producer.sink.down = True

    answer = await producer.post(b'[{"key":"a"},{"key":""}]')

    body = assert_problem(answer, 503, "kafka-unavailable")
    assert answer.headers["retry-after"] == "1"
    assert "accepted" not in body


async def test_a_partly_stored_request_lists_what_is_not_stored(producer: Producer) -> None:
    """503 with the indexes that were not acknowledged, and separately the rejected ones."""
    keys = ["visitor-1", "199.72.81.55", "", "visitor-2"]  # streams 10, 4, none, 10
    producer.sink.mute = {4}

    answer = await producer.post(json.dumps([{"key": key} for key in keys]).encode())

    body = assert_problem(answer, 503, "kafka-unavailable")
    assert answer.headers["retry-after"] == "1"
    assert (body["accepted"], body["unstored"]) == (2, [1])
    assert [r["index"] for r in body["rejected"]] == [2]
    assert [key for key, _ in producer.sink.logs[10]] == [b"visitor-1", b"visitor-2"]


async def test_without_a_stream_table_everything_that_needs_it_is_a_503(producer: Producer) -> None:
    """Fragments, markers and the table itself: nothing can be routed yet."""
    producer.table = None

    for answer in (
        await producer.post(b'{"key":"a"}'),
        await producer.client.post("/markers", json={"time": 1}),
        await producer.client.get("/table"),
    ):
        assert_problem(answer, 503, "zoo-keeper-unavailable")
        assert answer.headers["retry-after"] == "1"


async def test_bytes_in_flight_are_bounded() -> None:
    """Beyond max_inflight_bytes a request gets 429, until others are answered."""
    stalled = Stalled()
    producer = Producer(sink=stalled, max_inflight_bytes=1024 * 1024)
    body = json.dumps([{"key": "a", "data": "x" * 30_000}] * 20).encode()
    first = asyncio.create_task(producer.post(body))
    await asyncio.wait_for(stalled.waiting.wait(), 5)

    rejected = await producer.post(body)
    held = producer.door.inflight_bytes
    stalled.release.set()
    stored = await first
    again = await producer.post(body)

    assert_problem(rejected, 429, "overloaded")
    assert rejected.headers["retry-after"] == "1"
    assert held == len(body)
    assert (stored.status_code, again.status_code) == (200, 200)
    assert producer.door.inflight_bytes == 0


async def test_a_stopping_producer_rejects_fragments(producer: Producer) -> None:
    """After leave(), 503 for fragments and at /readyz; /livez still answers."""
    producer.door.leave()

    assert_problem(await producer.post(b'{"key":"a"}'), 503, "leaving")
    assert_problem(await producer.client.get("/readyz"), 503, "not-ready")
    assert (await producer.client.get("/livez")).status_code == 200


async def test_an_internal_error_is_a_problem_without_details(producer: Producer) -> None:
    """An unexpected exception is a 500 in the usual form, and does not leak its text."""

    def broken(portions: Mapping[int, Portion], on_outcome: Callable[[list[int]], None]) -> None:
        raise RuntimeError("secret")

    producer.sink.send = broken  # type: ignore[method-assign]

    body = assert_problem(await producer.post(b'{"key":"a"}'), 500, "internal-server-error")

    assert "secret" not in json.dumps(body)


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "PATCH"])
async def test_other_methods_are_not_allowed(producer: Producer, method: str) -> None:
    """405 with the method that is allowed."""
    answer = await producer.client.request(method, "/fragments")

    assert_problem(answer, 405, "method-not-allowed")
    assert answer.headers["allow"] == "POST"


async def test_head_is_answered_as_get_without_a_body(producer: Producer) -> None:
    """With the status and the headers of GET; where there is no GET, with 405."""
    for path in ("/livez", "/readyz", "/table", "/agent.js", "/try", "/docs", "/openapi.json", "/nothing"):
        got, head = await producer.client.get(path), await producer.client.head(path)
        assert (head.status_code, head.headers, head.content) == (got.status_code, got.headers, b""), path
    refused = await producer.client.head("/markers")

    assert (refused.status_code, refused.headers["allow"]) == (405, "POST")
    assert (await producer.client.head("/fragments")).status_code == 405


async def test_a_marker_goes_to_every_stream(producer: Producer) -> None:
    """POST /markers answers with the marker's offset in each stream."""
    await producer.post(b'{"key":"visitor-1"}')

    # for JSON schema, 5.0 is an integer
    answer = await producer.client.post("/markers", json={"time": 1_700_000_000_000.0})

    assert answer.status_code == 200
    offsets = {marker["stream"]: marker["offset"] for marker in answer.json()["markers"]}
    assert offsets == {stream: 1 if stream == 10 else 0 for stream in range(24)}
    assert all(log[-1] == (None, b'{"time":1700000000000}') for log in producer.sink.logs)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{}",
        b"[]",
        b"7",
        b'{"time":"7"}',
        b'{"time":1.5}',
        b'{"time":1e300}',
        b'{"time":-0.5}',
        b'{"time":-1}',
        b'{"time":true}',
        b"x",
    ],
)
async def test_an_invalid_marker_is_rejected(producer: Producer, body: bytes) -> None:
    """422 with the faults; nothing is written."""
    answer = await producer.client.post("/markers", content=body, headers=JSON)

    assert assert_problem(answer, 422, "invalid-input")["errors"]
    assert producer.stored == []


async def test_a_marker_that_some_stream_did_not_store_is_a_503(producer: Producer) -> None:
    """A marker counts only if all streams have it; writing it again is harmless."""
    producer.sink.mute = {3}

    answer = await producer.client.post("/markers", json={"time": 1})

    assert_problem(answer, 503, "kafka-unavailable")


async def test_the_table_is_served_as_it_is_stored(producer: Producer) -> None:
    """GET /table returns the znode's bytes."""
    answer = await producer.client.get("/table")

    assert answer.status_code == 200
    assert answer.headers["content-type"] == "application/json"
    assert answer.content == TABLE.encode()
    assert "baton-cluster" not in answer.headers


async def test_the_table_names_the_cluster_that_it_is_in() -> None:
    """An address may lead to another Baton tomorrow; `baton import` keeps its ledger by this name."""
    producer = Producer(namespace="shop")
    producer.cluster_id = "kraft-1"

    answer = await producer.client.get("/table")

    assert answer.headers["baton-cluster"] == "kraft-1/shop"


async def test_readiness_reports_every_complaint(producer: Producer) -> None:
    """/readyz is 503 with the reasons while there are any."""
    ready = await producer.client.get("/readyz")
    producer.complaints = ["", "Kafka is away", "no table"]
    not_ready = await producer.client.get("/readyz")

    assert ready.status_code == 200
    assert assert_problem(not_ready, 503, "not-ready")["detail"] == "Kafka is away; no table"


async def test_metrics_count_every_outcome(producer: Producer) -> None:
    """Fragments and bytes, rejects by reason, requests by status, rejected ones by the type of problem."""
    await producer.post(b'[{"key":"a"},{"key":""}]')
    await producer.post(b"nonsense")
    producer.sink.down = True
    await producer.post(b'{"key":"a"}')
    producer.table = None
    await producer.post(b'{"key":"a"}')
    await producer.post(b'{"key":"a"}')

    metrics = (await producer.client.get("/metrics")).text.splitlines()

    for line in (
        "baton_fragments_stored_total 1.0",
        "baton_fragments_unstored_total 1.0",
        "baton_fragment_bytes_stored_total 11.0",
        'baton_fragments_rejected_total{reason="key"} 1.0',
        'baton_requests_total{status="200"} 1.0',
        'baton_requests_total{status="400"} 1.0',
        'baton_requests_refused_total{problem="request-unreadable"} 1.0',
        'baton_requests_refused_total{problem="kafka-unavailable"} 1.0',
        'baton_requests_refused_total{problem="zoo-keeper-unavailable"} 2.0',
        "baton_inflight_bytes 0.0",
    ):
        assert line in metrics


async def test_acknowledgements_are_timed(producer: Producer) -> None:
    """The histogram counts exactly the requests that Kafka acknowledged."""
    await producer.post(b'{"key":"a"}')
    await producer.post(json.dumps([{"key": "a"}] * 3).encode())
    await producer.post(b"{}")
    producer.sink.down = True
    await producer.post(b'{"key":"a"}')

    metrics = (await producer.client.get("/metrics")).text.splitlines()

    prefix = "baton_acknowledgement_seconds"
    buckets = [float(line.split()[-1]) for line in metrics if line.startswith(f"{prefix}_bucket")]
    assert buckets == sorted(buckets)
    assert buckets[-1] == 2.0
    assert f"{prefix}_count 2.0" in metrics
    assert any(line.startswith(f"{prefix}_sum ") for line in metrics)
