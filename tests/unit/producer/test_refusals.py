"""Every kind of rejection at the door: status, problem, headers, reasons by index; and nothing is stored.

What is a fragment, a type or an encoding is tested where it is decided (test_ingest.py, test_form.py,
test_decoding.py); here is one request for each way in which those and the gate end a request.
"""

from __future__ import annotations

import gzip
from dataclasses import dataclass, field
from typing import Any

import pytest

from services.producer.http.access.keys import WriteKeys, parse_keys
from services.producer.http.openapi import FRAGMENTS_RESPONSES
from tests.unit.producer.face import JSON, NDJSON, Producer, assert_problem, zstd

TEXT = {"content-type": "text/plain"}
GZIP, ZSTD = {"content-encoding": "gzip"}, {"content-encoding": "zstd"}
ONE = b'{"key":"a"}'
LONG = b'{"key":"a","data":"' + b"x" * 32 * 1024 + b'"}'
MIB = 1024 * 1024
KEYS = WriteKeys(parse_keys(["right"]))
TYPES = ("accept", "application/json, application/x-ndjson, text/plain")
ENCODINGS = ("accept-encoding", "gzip, zstd")


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """A request, and how it is rejected: `reasons` by index, and the answer's `header` for the problem."""

    status: int
    kind: str
    body: bytes = ONE
    headers: dict[str, str] = field(default_factory=lambda: JSON)
    reasons: tuple[str, ...] = ()
    header: tuple[str, str] | None = None
    settings: dict[str, Any] = field(default_factory=dict)
    keys: WriteKeys | None = None


def unreadable(body: bytes, headers: dict[str, str] = JSON) -> Refusal:
    return Refusal(status=400, kind="request-unreadable", body=body, headers=headers)


def too_large(body: bytes, headers: dict[str, str] = JSON) -> Refusal:
    return Refusal(status=413, kind="request-too-large", body=body, headers=headers)


def unsupported(headers: dict[str, str], header: tuple[str, str]) -> Refusal:
    return Refusal(status=415, kind="unsupported-type", headers=headers, header=header)


def rejected(body: bytes, *reasons: str, headers: dict[str, str] = JSON) -> Refusal:
    return Refusal(status=422, kind="fragments-rejected", body=body, headers=headers, reasons=reasons)


REFUSALS: dict[str, Refusal] = {
    "nothing": unreadable(b""),
    "nothing, in gzip": unreadable(gzip.compress(b""), JSON | GZIP),
    "not JSON": unreadable(b"nonsense"),
    "not JSON, as text": unreadable(b"nonsense", TEXT),
    "not gzip": unreadable(ONE, JSON | GZIP),
    "zstd cut off": unreadable(zstd.compress(ONE)[:-1], JSON | ZSTD),
    "no write key": Refusal(status=401, kind="missing-key", keys=KEYS, header=("www-authenticate", "Bearer")),
    "a wrong write key": Refusal(
        status=403, kind="wrong-key", headers=JSON | {"x-write-key": "wrong"}, keys=KEYS
    ),
    "a page of another origin": Refusal(
        status=403,
        kind="origin-refused",
        headers=JSON | {"origin": "https://b.example"},
        settings={"allowed_origins": "https://a.example"},
    ),
    "too many bytes": too_large(b" " * (MIB + 1)),
    "too many bytes, decoded": too_large(gzip.compress(b" " * (MIB + 1)), JSON | GZIP),
    "too many members of gzip": too_large(gzip.compress(b"\n") * 1_001, NDJSON | GZIP),
    "too many lines, as text": too_large(b'{"key":"a"}\n' * 2_501, TEXT),
    "no type": unsupported({}, TYPES),
    "another type": unsupported({"content-type": "text/html"}, TYPES),
    "another encoding": unsupported(JSON | {"content-encoding": "br"}, ENCODINGS),
    "no key": rejected(b"{}", "invalid"),
    "a long fragment, decoded": rejected(zstd.compress(LONG), "size", headers=JSON | ZSTD),
    "lines of all kinds": rejected(
        b'nonsense\n\n{"key":"\xff"}\n' + LONG + b"\n{}",
        *("malformed", "encoding", "size", "invalid"),
        headers=NDJSON,
    ),
}


@pytest.mark.parametrize("name", REFUSALS)
async def test_every_refusal(name: str) -> None:
    """Status, problem, a sentence, and each fragment's index and reason; nothing is stored or held."""
    refusal = REFUSALS[name]
    producer = Producer(keys=refusal.keys, **refusal.settings)

    answer = await producer.post(refusal.body, refusal.headers)

    body = assert_problem(answer, refusal.status, refusal.kind)
    if refusal.reasons:
        assert body["accepted"] == 0
        assert [(item["index"], item["reason"]) for item in body["rejected"]] == [*enumerate(refusal.reasons)]
        assert all(item["detail"] for item in body["rejected"])
    if refusal.header is not None:
        assert refusal.header in answer.headers.items()
    assert "retry-after" not in answer.headers
    assert producer.stored == []
    assert producer.door.inflight_bytes == 0


async def test_a_request_with_every_fault_is_rejected_for_the_first_one() -> None:
    """Stopping, origin, key, type, length, body, fragments, Kafka: each hides the later ones."""
    producer = Producer(keys=KEYS, allowed_origins="https://a.example")
    producer.sink.down = True
    body = b"\xff" * (MIB + 1)
    headers = {"origin": "https://b.example", "content-type": "text/html"}
    answers = []

    async def ask(**mended: str) -> None:
        headers.update({name.replace("_", "-"): value for name, value in mended.items()})
        answer = await producer.post(body, headers)
        answers.append((answer.status_code, answer.json()["type"].removeprefix("urn:baton:")))

    await ask()
    await ask(origin="https://a.example")
    await ask(x_write_key="right")
    await ask(content_type="application/json")
    for body in (b"\xff", b"{}", ONE):  # noqa: B007  `ask` posts it
        await ask()
    producer.door.leave()
    headers.clear()
    await ask()

    assert answers == [
        (403, "origin-refused"),
        (401, "missing-key"),
        (415, "unsupported-type"),
        (413, "request-too-large"),
        (400, "request-unreadable"),
        (422, "fragments-rejected"),
        (503, "kafka-unavailable"),
        (503, "leaving"),
    ]
    assert producer.stored == []


def test_the_table_has_every_documented_status() -> None:
    """Except those that need a real connection (408, 431) or a full or absent Kafka (429, 503)."""
    elsewhere = {200, 408, 429, 431, 503}

    assert {refusal.status for refusal in REFUSALS.values()} == {*map(int, FRAGMENTS_RESPONSES)} - elsewhere
