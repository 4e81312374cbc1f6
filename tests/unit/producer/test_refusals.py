"""Every refusal at the door, in one table: status, problem, indexes with their reasons; nothing is stored."""

from __future__ import annotations

import gzip
import sys
from dataclasses import dataclass, field
from typing import Any

import pytest

from services.producer.http.keys import WriteKeys
from services.producer.http.openapi import FRAGMENTS_RESPONSES
from tests.unit.producer.test_door import JSON, NDJSON, Producer, assert_problem

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

TEXT = {"content-type": "text/plain"}
GZIP, ZSTD = {"content-encoding": "gzip"}, {"content-encoding": "zstd"}
ONE = b'{"key":"a"}'
LONG = b'{"key":"a","data":"' + b"x" * 32 * 1024 + b'"}'
DEEP = b'{"key":"a","data":' + b"[" * 1_001 + b"]" * 1_001 + b"}"
MIB = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """A request, and how it is refused; `indexes` are (index, reason) where each fragment is judged."""

    status: int
    kind: str
    body: bytes = ONE
    headers: dict[str, str] = field(default_factory=lambda: JSON)
    indexes: list[tuple[int, str]] | None = None
    settings: dict[str, Any] = field(default_factory=dict)
    keys: WriteKeys | None = None


def unreadable(body: bytes, headers: dict[str, str] = JSON) -> Refusal:
    return Refusal(status=400, kind="request-unreadable", body=body, headers=headers)


def too_large(body: bytes, headers: dict[str, str] = JSON) -> Refusal:
    return Refusal(status=413, kind="request-too-large", body=body, headers=headers)


def unsupported(headers: dict[str, str]) -> Refusal:
    return Refusal(status=415, kind="unsupported-type", headers=headers)


def rejected(body: bytes, *reasons: str, headers: dict[str, str] = JSON) -> Refusal:
    indexes = list(enumerate(reasons))
    return Refusal(status=422, kind="fragments-rejected", body=body, headers=headers, indexes=indexes)


REFUSALS: dict[str, Refusal] = {
    "nothing": unreadable(b""),
    "nothing, as text": unreadable(b"", TEXT),
    "nothing, in gzip": unreadable(gzip.compress(b""), JSON | GZIP),
    "no JSON": unreadable(b"nonsense"),
    "no JSON, as text": unreadable(b"nonsense", TEXT),
    "a number": unreadable(b"42"),
    "a string": unreadable(b'"text"'),
    "an object cut off": unreadable(b'{"key":"a"'),
    "an array cut off": unreadable(b'[{"key":"a"}'),
    "an array that goes on": unreadable(b'[{"key":"a"}] x'),
    "two objects as JSON": unreadable(ONE + b"\n" + ONE),
    "NaN": unreadable(b'{"key":"a","data":NaN}'),
    "Infinity": unreadable(b'{"key":"a","data":-Infinity}'),
    "half a surrogate pair": unreadable(rb'{"key":"a","data":"\ud800"}'),
    "half a surrogate pair as key": unreadable(rb'{"key":"\udfff"}'),
    "no UTF-8": unreadable(b'{"key":"a","data":"\xff"}'),
    "UTF-8 of half a pair": unreadable(b'{"key":"a","data":"\xed\xa0\x80"}'),
    "UTF-16": unreadable('{"key":"a"}'.encode("utf-16")),
    "a bomb of brackets": unreadable(b"[" * 500_000),
    "gzip that is none": unreadable(ONE, JSON | GZIP),
    "zstd that is none": unreadable(ONE, JSON | ZSTD),
    "gzip that is zstd": unreadable(zstd.compress(ONE), JSON | GZIP),
    "gzip cut off": unreadable(gzip.compress(ONE)[:-4], JSON | GZIP),
    "zstd cut off": unreadable(zstd.compress(ONE)[:-1], JSON | ZSTD),
    "no write key": Refusal(status=401, kind="missing-key", keys=WriteKeys([b"right"])),
    "a wrong write key": Refusal(
        status=403, kind="wrong-key", headers=JSON | {"x-write-key": "wrong"}, keys=WriteKeys([b"right"])
    ),
    "a page of another origin": Refusal(
        status=403,
        kind="origin-refused",
        headers=JSON | {"origin": "https://b.example"},
        settings={"allowed_origins": "https://a.example"},
    ),
    "too many bytes": too_large(b" " * (MIB + 1)),
    "too many bytes, decoded": too_large(gzip.compress(b" " * (MIB + 1)), JSON | GZIP),
    "a bomb of gzip": too_large(gzip.compress(bytes(20 * MIB)), NDJSON | GZIP),
    "a bomb of zstd": too_large(zstd.compress(bytes(100 * MIB)), TEXT | ZSTD),
    "too many members of gzip": too_large(gzip.compress(b"\n") * 1_001, NDJSON | GZIP),
    "too many items": too_large(b"[" + b'{"key":"a"},' * 2_500 + b'{"key":"a"}]'),
    "too many lines": too_large(b'{"key":"a"}\n' * 2_501, NDJSON),
    "too many lines, as text": too_large(b'{"key":"a"}\n' * 2_501, TEXT),
    "no type": unsupported({}),
    "another type": unsupported({"content-type": "text/html"}),
    "a form": unsupported({"content-type": "application/x-www-form-urlencoded"}),
    "two types": unsupported({"content-type": "application/json, text/plain"}),
    "another charset": unsupported({"content-type": "application/json; charset=latin-1"}),
    "another encoding": unsupported(JSON | {"content-encoding": "br"}),
    "two encodings": unsupported(JSON | {"content-encoding": "gzip, zstd"}),
    "an encoding twice": unsupported(JSON | {"content-encoding": "gzip, gzip"}),
    "no key": rejected(b"{}", "invalid"),
    "no objects": rejected(b'[1,"a",null,[],true]', *["invalid"] * 5),
    "a key that is no string": rejected(b'{"key":7}', "invalid"),
    "an empty key": rejected(b'{"key":""}', "key"),
    "a long key": rejected(b'{"key":"' + b"k" * 257 + b'"}', "key"),
    "a long id": rejected(b'{"key":"a","id":"' + b"i" * 65 + b'"}', "id"),
    "an end that is none": rejected(b'{"key":"a","end":1}', "invalid"),
    "a time with a fraction": rejected(b'{"key":"a","time":1.5}', "invalid"),
    "a time before 1970": rejected(b'{"key":"a","time":-1}', "time"),
    "a huge time": rejected(b'{"key":"a","time":1' + b"0" * 5_000 + b"}", "time"),
    "a time of no calendar": rejected(b'{"key":"a","time":"2026-02-30T00:00:00Z"}', "time"),
    "a long fragment": rejected(LONG, "size"),
    "a long fragment, decoded": Refusal(
        status=422,
        kind="fragments-rejected",
        body=zstd.compress(LONG),
        headers=JSON | ZSTD,
        indexes=[(0, "size")],
    ),
    "a deep fragment": rejected(DEEP, "nesting"),
    "items that are no JSON": rejected(
        rb'[{"key":"a","data":NaN}, {"key":"\ud800"}, {"key":"a","x":Infinity}]', *["malformed"] * 3
    ),
    "an item that is no UTF-8": rejected(b'[{"key":"a","data":"\xff"}]', "encoding"),
    "lines of all kinds": rejected(
        b'nonsense\n\n{"key":"\xff"}\n' + DEEP + b"\n" + LONG + b"\n{}",
        *("malformed", "encoding", "nesting", "size", "invalid"),
        headers=NDJSON,
    ),
}


@pytest.mark.parametrize("name", REFUSALS)
async def test_every_refusal(name: str) -> None:
    """Status and problem, a sentence, each fragment's index and reason; nothing is stored or held."""
    refusal = REFUSALS[name]
    producer = Producer(keys=refusal.keys, **refusal.settings)

    async with producer.client:
        answer = await producer.post(refusal.body, refusal.headers)

    body = assert_problem(answer, refusal.status, refusal.kind)
    if refusal.indexes is not None:
        assert body["accepted"] == 0
        assert [(item["index"], item["reason"]) for item in body["rejected"]] == refusal.indexes
        assert all(item["detail"] for item in body["rejected"])
    assert "retry-after" not in answer.headers
    assert not any(producer.sink.logs)
    assert producer.door.inflight_bytes == 0


SPOILT = [name for name, refusal in REFUSALS.items() if refusal.status == 422]


@pytest.mark.parametrize("name", SPOILT)
async def test_what_is_refused_spares_what_is_good(name: str) -> None:
    """The same fragments among good ones: 200 that lists them by their place; the good ones are stored."""
    refusal = REFUSALS[name]
    plain = zstd.decompress(refusal.body) if "content-encoding" in refusal.headers else refusal.body
    lines = refusal.headers is NDJSON
    inside = plain if lines else plain.removeprefix(b"[").removesuffix(b"]") if plain[:1] == b"[" else plain
    body = b"\n".join([ONE, inside, ONE]) if lines else b"[" + b",".join([ONE, inside, ONE]) + b"]"
    producer = Producer()

    async with producer.client:
        answer = await producer.post(body, NDJSON if lines else JSON)

    assert answer.status_code == 200
    assert answer.json()["accepted"] == 2
    assert refusal.indexes is not None
    assert [(item["index"], item["reason"]) for item in answer.json()["rejected"]] == [
        (index + 1, reason) for index, reason in refusal.indexes
    ]
    assert [value for log in producer.sink.logs for _, value in log] == [ONE, ONE]


async def test_a_request_with_every_fault_is_told_of_the_first_that_counts() -> None:
    """Stopping, origin, key, type, length, room, body, fragments, Kafka: each hides those behind it."""
    producer = Producer(keys=WriteKeys([b"right"]), allowed_origins="https://a.example")
    producer.sink.down = True
    body = b"\xff" * (MIB + 1)
    headers = {"origin": "https://b.example", "content-type": "text/html"}
    told = []

    async def ask() -> None:
        answer = await producer.post(body, headers)
        told.append((answer.status_code, answer.json()["type"].removeprefix("urn:baton:")))

    async with producer.client:
        await ask()
        headers["origin"] = "https://a.example"
        await ask()
        headers["x-write-key"] = "right"
        await ask()
        headers["content-type"] = "application/json"
        await ask()
        body = b"\xff"
        await ask()
        body = b"{}"
        await ask()
        body = ONE
        await ask()
        producer.door.leave()
        headers.clear()
        await ask()

    assert told == [
        (403, "origin-refused"),
        (401, "missing-key"),
        (415, "unsupported-type"),
        (413, "request-too-large"),
        (400, "request-unreadable"),
        (422, "fragments-rejected"),
        (503, "kafka-unavailable"),
        (503, "leaving"),
    ]
    assert not any(producer.sink.logs)


def test_the_table_has_every_status_and_every_reason() -> None:
    """All of the OpenAPI document, less what needs a real connection or a full or absent Kafka."""
    elsewhere = {200, 408, 429, 431, 503}
    reasons = FRAGMENTS_RESPONSES[422]["content"]["application/problem+json"]["schema"]["properties"][
        "rejected"
    ]["items"]["properties"]["reason"]["enum"]

    assert {refusal.status for refusal in REFUSALS.values()} == {
        int(status) for status in FRAGMENTS_RESPONSES
    } - elsewhere
    assert {reason for refusal in REFUSALS.values() for _, reason in refusal.indexes or ()} == set(reasons)
