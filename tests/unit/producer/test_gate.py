"""Who is let in: write keys and origins, over ASGI, before a body is read."""

from __future__ import annotations

import contextlib
import io
import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from services.producer.http.keys import WriteKeys
from services.producer.http.origins import parse_origins
from services.producer.settings import ProducerSettings
from shared.errors import SettingsInvalid
from shared.service.runtime import main
from shared.service.settings import describe, load
from tests.unit.producer.test_door import JSON, Producer, assert_problem

PAGE = "https://shop.example"
STRANGER = "https://other.example"
PREFLIGHT = {"access-control-request-method": "POST", "access-control-request-headers": "content-type"}
CORS = ("access-control-allow-origin", "access-control-expose-headers", "vary")


@contextlib.asynccontextmanager
async def producer(keys: WriteKeys | None = None, **settings: Any) -> AsyncIterator[Producer]:
    """A producer's HTTP face with these keys and settings."""
    made = Producer(keys, **settings)
    async with made.client:
        yield made


def cors(answer: httpx.Response) -> dict[str, str]:
    """The answer's headers that are about origins."""
    return {name: answer.headers[name] for name in CORS if name in answer.headers}


@pytest.mark.parametrize(
    ("path", "headers"),
    [
        ("/fragments", {"authorization": "Bearer k2"}),
        ("/fragments", {"x-write-key": "k2"}),
        ("/fragments?write_key=k2", {}),
    ],
)
async def test_a_write_key_opens_the_door(path: str, headers: dict[str, str]) -> None:
    """By either header, or by the query, as beacons must."""
    async with producer(WriteKeys([b"k1", b"k2"])) as made:
        answer = await made.client.post(path, content=b'{"key":"a"}', headers=JSON | headers)

    assert answer.status_code == 200


@pytest.mark.parametrize("path", ["/fragments", "/markers"])
async def test_without_a_write_key_nothing_is_read(path: str) -> None:
    """401 with a challenge, for fragments and markers; the body is not asked for."""
    asked = 0

    async def body() -> AsyncIterator[bytes]:
        nonlocal asked
        asked += 1
        yield b'{"key":"a","time":1}'

    async with producer(WriteKeys([b"k1"])) as made:
        answer = await made.client.post(path, content=body(), headers=JSON)
        metrics = (await made.client.get("/metrics")).text

    assert_problem(answer, 401, "missing-key")
    assert answer.headers["www-authenticate"] == "Bearer"
    assert asked == 0
    assert not any(made.sink.logs)
    assert 'baton_requests_refused_total{problem="missing-key"} 1.0' in metrics


@pytest.mark.parametrize("path", ["/fragments", "/markers"])
async def test_a_wrong_write_key_is_refused(path: str) -> None:
    """403 without a word of the key, and counted; it is final for clients."""
    async with producer(WriteKeys([b"k1"])) as made:
        answer = await made.client.post(path, json={"key": "a", "time": 1}, headers={"x-write-key": "hidden"})
        metrics = (await made.client.get("/metrics")).text

    assert_problem(answer, 403, "wrong-key")
    assert "hidden" not in answer.text + str(answer.headers)
    assert "retry-after" not in answer.headers
    assert not any(made.sink.logs)
    assert 'baton_requests_refused_total{problem="wrong-key"} 1.0' in metrics


async def test_a_marker_is_written_with_a_key() -> None:
    """As fragments are; what only reads needs none."""
    async with producer(WriteKeys([b"k1"])) as made:
        marker = await made.client.post("/markers?write_key=k1", json={"time": 1})
        reads = [(await made.client.get(path)).status_code for path in ("/table", "/livez", "/metrics")]

    assert marker.status_code == 200
    assert reads == [200, 200, 200]


async def test_readiness_tells_of_a_broken_file_and_stays(tmp_path: Any) -> None:
    """The last good keys work, so no balancer should turn away; before there were any it should."""
    file = tmp_path / "keys"
    keys = WriteKeys([], file)
    async with producer(keys) as made:
        await keys.step()
        at_first = await made.client.get("/readyz")
        refused = await made.post(b'{"key":"a"}', JSON | {"x-write-key": "k1"})
        file.write_text("k1")
        await keys.step()
        good = await made.client.get("/readyz")
        file.unlink()
        await keys.step()
        broken = await made.client.get("/readyz")

    assert_problem(at_first, 503, "not-ready")
    assert_problem(refused, 503, "keys-unread")
    assert refused.headers["retry-after"] == "1"
    assert good.json() == {"status": "ok"}
    assert broken.status_code == 200
    assert "BATON_WRITE_KEYS_FILE" in broken.json()["remarks"][0]


async def test_the_documentation_says_whether_a_key_is_needed() -> None:
    """OpenAPI names the three ways to give one, any of which will do; and none where none is asked for."""
    async with producer(WriteKeys([b"k1"])) as made, producer() as other:
        with_keys = (await made.client.get("/openapi.json")).json()
        without = (await other.client.get("/openapi.json")).json()

    schemes = with_keys["components"]["securitySchemes"]
    for path in ("/fragments", "/markers"):
        ways = [schemes[name] for (name,) in with_keys["paths"][path]["post"]["security"]]
        assert [(way["type"], way.get("in", "header")) for way in ways] == [
            *(("http", "header"), ("apiKey", "header"), ("apiKey", "query"))
        ]
        assert "security" not in without["paths"][path]["post"]
    assert "security" not in with_keys["paths"]["/table"]["get"]


def test_the_keys_of_the_settings_are_never_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not by --print-config, not in a fault, not in the settings' `repr`."""
    monkeypatch.setattr("sys.argv", ["producer", "--print-config"])
    monkeypatch.setenv("BATON_WRITE_KEYS", "hidden-1,hidden-2")
    printed = io.StringIO()

    async def serve(settings: ProducerSettings, _: Any) -> None:
        raise AssertionError("it was only to print")

    with contextlib.redirect_stdout(printed):
        code = main("producer", ProducerSettings, serve)
    settings = load(ProducerSettings, {"BATON_WRITE_KEYS": "hidden-1"})
    with pytest.raises(SettingsInvalid) as caught:
        load(ProducerSettings, {"BATON_WRITE_KEYS": "fine,hidden 2"})

    assert code == 0
    assert "BATON_WRITE_KEYS=(secret)" in printed.getvalue()
    assert "number 2 is no write key" in str(caught.value)
    assert "hidden" not in printed.getvalue() + str(caught.value) + repr(settings) + repr(describe(settings))


async def test_any_page_may_write_and_read_the_answer() -> None:
    """The default: every answer to a page says so, refusals too, and lets it read Retry-After."""
    async with producer(max_request_bytes=10_000, max_fragment_bytes=1_000) as made:
        origin = {"origin": PAGE}
        answers = {
            200: await made.post(b'{"key":"a"}', JSON | origin),
            400: await made.post(b"nonsense", JSON | origin),
            405: await made.client.get("/fragments", headers=origin),
            413: await made.post(b" " * 20_000, JSON | origin),
            415: await made.post(b"{}", {"content-type": "text/html"} | origin),
            422: await made.post(b"{}", JSON | origin),
        }
        made.sink.down = True
        answers[503] = await made.post(b'{"key":"a"}', JSON | origin)
        made.sink.down = False
        server = await made.post(b'{"key":"a"}')

    assert {status: answer.status_code for status, answer in answers.items()} == {s: s for s in answers}
    for answer in answers.values():
        assert cors(answer) == {
            "access-control-allow-origin": "*",
            "access-control-expose-headers": "Retry-After",
        }
    assert cors(server) == {}


async def test_a_page_of_the_list_may_write() -> None:
    """Its own origin comes back, and caches are told that answers differ; refusals carry it too."""
    async with producer(WriteKeys([b"k1"]), allowed_origins=f"https://a.example,{PAGE}") as made:
        taken = await made.post(b'{"key":"a"}', JSON | {"origin": PAGE, "x-write-key": "k1"})
        refused = await made.post(b'{"key":"a"}', JSON | {"origin": PAGE})

    assert (taken.status_code, refused.status_code) == (200, 401)
    for answer in (taken, refused):
        assert cors(answer) == {
            "access-control-allow-origin": PAGE,
            "access-control-expose-headers": "Retry-After",
            "vary": "Origin",
        }


@pytest.mark.parametrize("path", ["/fragments", "/markers"])
@pytest.mark.parametrize("allowed", [PAGE, ""])
async def test_a_page_of_another_origin_is_refused(path: str, allowed: str) -> None:
    """403 without the header: a browser sends a simple request in any case, so the door must refuse it."""
    async with producer(allowed_origins=allowed) as made:
        answers = [
            await made.client.post(path, json={"key": "a", "time": 1}, headers={"origin": origin})
            for origin in (STRANGER, "null", "")
        ]
        metrics = (await made.client.get("/metrics")).text

    for answer in answers:
        assert_problem(answer, 403, "origin-refused")
        assert "access-control-allow-origin" not in answer.headers
    assert not any(made.sink.logs)
    assert 'baton_requests_refused_total{problem="origin-refused"} 3.0' in metrics


async def test_who_names_no_origin_is_not_asked() -> None:
    """Servers, devices and shippers are no browsers; a list is about pages."""
    async with producer(allowed_origins=PAGE) as made:
        answer = await made.post(b'{"key":"a"}')

    assert answer.status_code == 200
    assert cors(answer) == {"vary": "Origin"}


@pytest.mark.parametrize("allowed", ["*", PAGE])
async def test_a_preflight_is_answered_at_once(allowed: str) -> None:
    """204 with methods, headers and how long to remember it, without a key (browsers send none)."""
    async with producer(WriteKeys([b"k1"]), allowed_origins=allowed) as made:
        answer = await made.client.options("/fragments", headers=PREFLIGHT | {"origin": PAGE})

    assert (answer.status_code, answer.content) == (204, b"")
    assert answer.headers["access-control-allow-origin"] == allowed
    assert answer.headers["access-control-allow-methods"] == "POST"
    assert answer.headers["access-control-max-age"] == "7200"
    assert {name.strip() for name in answer.headers["access-control-allow-headers"].lower().split(",")} == {
        *("authorization", "content-encoding", "content-type", "x-write-key")
    }


async def test_a_preflight_of_another_origin_is_told_nothing() -> None:
    """Without the headers the browser does not send the request."""
    async with producer(allowed_origins=PAGE) as made:
        answer = await made.client.options("/fragments", headers=PREFLIGHT | {"origin": STRANGER})

    assert answer.status_code == 204
    assert cors(answer) == {"vary": "Origin"}
    assert "access-control-allow-methods" not in answer.headers


async def test_no_page_can_write_markers() -> None:
    """Markers end sessions of everybody: JSON needs a preflight, which is refused, and text is no marker."""
    async with producer() as made:
        preflight = await made.client.options("/markers", headers=PREFLIGHT | {"origin": PAGE})
        simple = await made.client.post(
            "/markers", content=b'{"time":1}', headers={"content-type": "text/plain", "origin": PAGE}
        )

    assert preflight.status_code == 405
    assert cors(preflight) == {}
    assert simple.status_code == 422
    assert not any(made.sink.logs)


@pytest.mark.parametrize(
    "text",
    ["*,https://a.example", "a.example", "https://a.example/", "https://A.example", "https://a.example/x"],
)
def test_what_no_browser_would_send_is_no_origin(text: str) -> None:
    """A list that could never match is a fault of the settings."""
    with pytest.raises(SettingsInvalid, match="BATON_ALLOWED_ORIGINS"):
        load(ProducerSettings, {"BATON_ALLOWED_ORIGINS": text})


def test_origins_of_every_kind_may_be_listed() -> None:
    """Names, addresses, ports, apps, and `null` (pages of files and of sandboxes)."""
    listed = ("https://a.example", "http://[::1]:8001", "capacitor://localhost", "null")

    assert parse_origins(", ".join(listed)) == listed


async def test_refusals_are_counted_by_their_problem() -> None:
    """A 503 for want of Kafka is another matter than one for want of a stream table."""
    async with producer() as made:
        await made.post(b"nonsense")
        made.sink.down = True
        await made.post(b'{"key":"a"}')
        made.table = None
        await made.post(b'{"key":"a"}')
        await made.post(b'{"key":"a"}')
        metrics = (await made.client.get("/metrics")).text.splitlines()

    told = [line for line in metrics if line.startswith("baton_requests_refused_total")]
    assert sorted(told) == [
        'baton_requests_refused_total{problem="kafka-unavailable"} 1.0',
        'baton_requests_refused_total{problem="request-unreadable"} 1.0',
        'baton_requests_refused_total{problem="zoo-keeper-unavailable"} 2.0',
    ]


async def test_acknowledgements_are_timed() -> None:
    """Each request that Kafka acknowledged is in one bucket and all above; others in none."""
    async with producer() as made:
        await made.post(b'{"key":"a"}')
        await made.post(json.dumps([{"key": "a"}] * 3).encode())
        await made.post(b"{}")
        made.sink.down = True
        await made.post(b'{"key":"a"}')
        metrics = (await made.client.get("/metrics")).text.splitlines()

    buckets = [
        float(line.split()[-1]) for line in metrics if line.startswith("baton_acknowledgement_seconds_b")
    ]
    assert buckets == sorted(buckets)
    assert buckets[-1] == 2.0
    assert "baton_acknowledgement_seconds_count 2.0" in metrics
    assert any(line.startswith("baton_acknowledgement_seconds_sum ") for line in metrics)
