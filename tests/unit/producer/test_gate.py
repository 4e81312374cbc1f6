"""Which requests may write: write keys and origins, decided before a body is read."""

from __future__ import annotations

import contextlib
import io
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from services.producer.http.access.keys import WriteKeys, parse_keys
from services.producer.http.access.origins import parse_origins
from services.producer.settings import ProducerSettings
from shared.errors import SettingsInvalid
from shared.service.runtime import main
from shared.service.settings import describe, load
from tests.unit.producer.face import JSON, Producer, assert_problem

PAGE = "https://shop.example"
STRANGER = "https://other.example"
PREFLIGHT = {"access-control-request-method": "POST", "access-control-request-headers": "content-type"}
CORS = ("access-control-allow-origin", "access-control-expose-headers", "vary")
KEYS = WriteKeys(parse_keys(["k1", "k2 write+mark"]))


def cors(answer: httpx.Response) -> dict[str, str]:
    """The headers of the answer that concern origins."""
    return {name: answer.headers[name] for name in CORS if name in answer.headers}


@pytest.mark.parametrize(
    ("query", "headers"),
    [("", {"authorization": "Bearer k2"}), ("", {"x-write-key": "k2"}), ("?write_key=k2", {})],
)
async def test_a_write_key_admits_fragments_and_markers(query: str, headers: dict[str, str]) -> None:
    """In either header, or in the query, as beacons must send it."""
    client = Producer(KEYS).client

    answers = [
        await client.post(f"/{path}{query}", json={"key": "a", "time": 1}, headers=headers)
        for path in ("fragments", "markers")
    ]

    assert [answer.status_code for answer in answers] == [200, 200]


async def test_a_key_without_the_scope_is_refused_and_its_use_is_counted_by_name() -> None:
    """403 says which scope is missing; the rate of a key is 429 with a time; `/metrics` shows no key."""
    lines = ["hidden-1 name=shop", "hidden-2 write+mark name=importer rate=3"]
    producer = Producer(WriteKeys(parse_keys(lines)))
    shop, importer = ({"x-write-key": key} for key in ("hidden-1", "hidden-2"))

    marker = await producer.client.post("/markers", json={"time": 1}, headers=shop)
    await producer.post(b'[{"key":"a"},{"key":""}]', JSON | shop)
    await producer.post(b"[NaN", JSON | shop)
    allowed = await producer.client.post("/markers", json={"time": 1}, headers=importer)
    await producer.post(json.dumps([{"key": "a"}] * 300).encode(), JSON | importer)
    limited = await producer.post(b'{"key":"a"}', JSON | importer)

    assert "`mark`" in assert_problem(marker, 403, "wrong-scope")["detail"]
    assert allowed.status_code == 200
    assert_problem(limited, 429, "rate-limited")
    assert 90 < int(limited.headers["retry-after"]) <= 100
    for name, requests, fragments in (("shop", 2, 2), ("importer", 2, 300)):
        assert producer.metric("baton_key_requests_total", key=name) == requests
        assert producer.metric("baton_key_fragments_total", key=name) == fragments
    assert producer.metric("baton_key_requests_refused_total", key="shop", problem="wrong-scope") == 1
    assert producer.metric("baton_key_requests_refused_total", key="importer", problem="rate-limited") == 1
    assert producer.metric("baton_key_rate", key="importer") == 3
    assert "hidden" not in (await producer.client.get("/metrics")).text + marker.text + limited.text


@pytest.mark.parametrize("path", ["/fragments", "/markers"])
@pytest.mark.parametrize(
    ("headers", "allowed", "status", "kind"),
    [
        ({}, "*", 401, "missing-key"),
        ({"x-write-key": "hidden"}, "*", 403, "wrong-key"),
        ({"x-write-key": "k1", "origin": STRANGER}, PAGE, 403, "origin-refused"),
        ({"x-write-key": "k1", "origin": "null"}, PAGE, 403, "origin-refused"),
        ({"x-write-key": "k1", "origin": ""}, PAGE, 403, "origin-refused"),
        ({"x-write-key": "k1", "origin": STRANGER}, "", 403, "origin-refused"),
    ],
)
async def test_a_request_that_may_not_write_is_rejected_unread(
    path: str, headers: dict[str, str], allowed: str, status: int, kind: str
) -> None:
    """Its body is not read, and it is counted. Browsers send simple requests anyway, so CORS headers alone
    would not keep a page out."""
    producer = Producer(KEYS, allowed_origins=allowed)
    reads = 0

    async def body() -> AsyncIterator[bytes]:
        nonlocal reads
        reads += 1
        yield b'{"key":"a","time":1}'

    answer = await producer.client.post(path, content=body(), headers=JSON | headers)

    assert_problem(answer, status, kind)
    assert (reads, producer.stored) == (0, [])
    assert producer.metric("baton_requests_refused_total", problem=kind) == 1
    assert "hidden" not in answer.text + str(answer.headers)
    assert "access-control-allow-origin" not in answer.headers
    assert "retry-after" not in answer.headers


async def test_reading_needs_no_key() -> None:
    """The table, liveness and metrics are for everybody."""
    client = Producer(KEYS).client

    assert [(await client.get(path)).status_code for path in ("/table", "/livez", "/metrics")] == [200] * 3


async def test_a_broken_key_file_is_a_remark_but_a_missing_one_is_not_ready(tmp_path: Path) -> None:
    """The last good keys work, so a load balancer should stay; before there were any it should not."""
    file = tmp_path / "keys"
    keys = WriteKeys([], file)
    producer = Producer(keys)
    await keys.step()
    at_first = await producer.client.get("/readyz")
    rejected = await producer.post(b'{"key":"a"}', JSON | {"x-write-key": "k1"})
    file.write_text("k1")
    await keys.step()
    good = await producer.client.get("/readyz")
    file.unlink()
    await keys.step()
    broken = await producer.client.get("/readyz")

    assert_problem(at_first, 503, "not-ready")
    assert_problem(rejected, 503, "keys-unread")
    assert rejected.headers["retry-after"] == "1"
    assert good.json() == {"status": "ok"}
    assert broken.status_code == 200
    assert "BATON_WRITE_KEYS_FILE" in broken.json()["remarks"][0]


def test_the_keys_in_the_settings_are_never_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not by --print-config, not in an error, not in the `repr` of the settings."""
    monkeypatch.setattr("sys.argv", ["producer", "--print-config"])
    monkeypatch.setenv("BATON_WRITE_KEYS", "hidden-1,hidden-2")
    printed = io.StringIO()

    async def serve(settings: ProducerSettings, _: Any) -> None:
        raise AssertionError("it should only print")

    with contextlib.redirect_stdout(printed):
        code = main("producer", ProducerSettings, serve)
    settings = load(ProducerSettings, {"BATON_WRITE_KEYS": "hidden-1"})
    with pytest.raises(SettingsInvalid, match="write key 2") as caught:
        load(ProducerSettings, {"BATON_WRITE_KEYS": "fine,hidden 2"})

    assert code == 0
    assert "BATON_WRITE_KEYS=(secret)" in printed.getvalue()
    assert "hidden" not in printed.getvalue() + str(caught.value) + repr(settings) + repr(describe(settings))


async def test_by_default_any_page_may_write_and_read_the_answer() -> None:
    """Every answer to a page says so, rejections too, and allows it to read Retry-After."""
    producer = Producer(max_request_bytes=10_000, max_fragment_bytes=1_000)
    origin = {"origin": PAGE}
    answers = {
        200: await producer.post(b'{"key":"a"}', JSON | origin),
        400: await producer.post(b"nonsense", JSON | origin),
        405: await producer.client.get("/fragments", headers=origin),
        413: await producer.post(b" " * 20_000, JSON | origin),
        415: await producer.post(b"{}", {"content-type": "text/html"} | origin),
        422: await producer.post(b"{}", JSON | origin),
    }
    producer.sink.down = True
    answers[503] = await producer.post(b'{"key":"a"}', JSON | origin)
    producer.sink.down = False
    to_a_server = await producer.post(b'{"key":"a"}')

    assert {status: answer.status_code for status, answer in answers.items()} == {s: s for s in answers}
    for answer in answers.values():
        assert cors(answer) == {
            "access-control-allow-origin": "*",
            "access-control-expose-headers": "Retry-After",
        }
    assert cors(to_a_server) == {}


async def test_a_listed_page_may_write() -> None:
    """Answers and rejections name its origin. Requests without an origin (servers) are admitted too.

    `Vary` tells caches that answers differ by origin.
    """
    producer = Producer(KEYS, allowed_origins=f"https://a.example,{PAGE}")
    accepted = await producer.post(b'{"key":"a"}', JSON | {"origin": PAGE, "x-write-key": "k1"})
    rejected = await producer.post(b'{"key":"a"}', JSON | {"origin": PAGE})
    from_a_server = await producer.post(b'{"key":"a"}', JSON | {"x-write-key": "k1"})

    assert (accepted.status_code, rejected.status_code, from_a_server.status_code) == (200, 401, 200)
    assert cors(from_a_server) == {"vary": "Origin"}
    for answer in (accepted, rejected):
        assert cors(answer) == {
            "access-control-allow-origin": PAGE,
            "access-control-expose-headers": "Retry-After",
            "vary": "Origin",
        }


@pytest.mark.parametrize("allowed", ["*", PAGE])
async def test_a_preflight_is_answered_at_once(allowed: str) -> None:
    """204 with methods, headers and how long to cache it, without a key (browsers send none).

    Another origin gets no such headers, and so the browser does not send the request.
    """
    client = Producer(KEYS, allowed_origins=allowed).client

    answer = await client.options("/fragments", headers=PREFLIGHT | {"origin": PAGE})
    stranger = await client.options("/fragments", headers=PREFLIGHT | {"origin": STRANGER})

    assert (answer.status_code, answer.content) == (204, b"")
    assert answer.headers["access-control-allow-origin"] == allowed
    assert answer.headers["access-control-allow-methods"] == "POST"
    assert answer.headers["access-control-max-age"] == "7200"
    assert {name.strip() for name in answer.headers["access-control-allow-headers"].lower().split(",")} == {
        *("authorization", "content-encoding", "content-type", "x-write-key")
    }
    assert stranger.status_code == 204
    assert (cors(stranger) == {"vary": "Origin"}) == (allowed == PAGE)
    assert ("access-control-allow-methods" in stranger.headers) == (allowed == "*")


async def test_no_page_can_write_markers() -> None:
    """Markers end everybody's sessions. JSON needs a preflight, which fails; the guard refuses text."""
    producer = Producer()
    preflight = await producer.client.options("/markers", headers=PREFLIGHT | {"origin": PAGE})
    simple = await producer.client.post(
        "/markers", content=b'{"time":1}', headers={"content-type": "text/plain", "origin": PAGE}
    )

    assert preflight.status_code == 405
    assert cors(preflight) == {}
    assert_problem(simple, 403, "origin-refused")
    assert producer.stored == []


@pytest.mark.parametrize(
    "text",
    ["*,https://a.example", "a.example", "https://a.example/", "https://A.example", "https://a.example/x"],
)
def test_an_origin_that_no_browser_sends_is_a_fault_of_the_settings(text: str) -> None:
    """Such a list could never match."""
    with pytest.raises(SettingsInvalid, match="BATON_ALLOWED_ORIGINS"):
        load(ProducerSettings, {"BATON_ALLOWED_ORIGINS": text})


def test_origins_of_every_kind_may_be_listed() -> None:
    """Names, addresses, ports, apps, and `null` (pages from files and in sandboxes)."""
    listed = ("https://a.example", "http://[::1]:8001", "capacitor://localhost", "null")

    assert parse_origins(", ".join(listed)) == listed
