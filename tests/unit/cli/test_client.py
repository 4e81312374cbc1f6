"""What the client makes of answers: values, one sentence, another try."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import UTC, datetime

import httpx
import pytest
from cli.backoff import MAX_DELAY_S, delay_for, parse_retry_after

from cli.http.client import BatonClient, connect
from shared.errors import BatonError, Conflict, InvalidInput, NotFound, Unavailable
from tests.unit.cli.fake_services import InMemoryControl, problem, served

NOW = datetime(2026, 1, 1, tzinfo=UTC)


class Clock:
    """Time that passes only by sleeping."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.slept: list[float] = []

    def read(self) -> float:
        return self.now_s

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now_s += seconds


def client_of(
    answer: Callable[[httpx.Request], httpx.Response], clock: Clock, patience_s: float
) -> BatonClient:
    http = httpx.AsyncClient(transport=httpx.MockTransport(answer), base_url="http://service")
    return BatonClient(http, patience_s=patience_s, sleep=clock.sleep, clock=clock.read, rng=random.Random(0))


@pytest.mark.parametrize("status", [429, 502, 503, 504])
async def test_an_unavailable_service_is_tried_again_until_patience_ends(status: int) -> None:
    """The last answer's sentence is told, and no try starts after the patience."""
    clock = Clock()
    client = client_of(lambda _: problem(status, "Kafka is away"), clock, patience_s=30)

    with pytest.raises(Unavailable, match="Kafka is away"):
        await client.table()

    assert 20 < clock.now_s <= 30
    assert client.retries == len(clock.slept) > 5
    assert max(clock.slept) <= MAX_DELAY_S


async def test_what_the_server_asks_for_is_the_least_wait() -> None:
    """`Retry-After` is honoured."""
    clock = Clock()
    answers = [problem(429, "slowly", {"retry-after": "7"}), httpx.Response(200, json={"streams": []})]
    client = client_of(lambda _: answers.pop(0), clock, patience_s=30)

    await client.get("/streams")

    assert clock.slept == [7.0]


@pytest.mark.parametrize(
    ("status", "error"),
    [(400, InvalidInput), (404, NotFound), (409, Conflict), (422, InvalidInput), (500, BatonError)],
)
async def test_other_refusals_are_told_at_once(status: int, error: type[BatonError]) -> None:
    """They cannot get better by waiting."""
    clock = Clock()
    client = client_of(lambda _: problem(status, "no"), clock, patience_s=30)

    with pytest.raises(BatonError, match="no") as caught:
        await client.get("/streams")

    assert type(caught.value) is error
    assert clock.slept == []


@pytest.mark.parametrize("status", [400, 401, 403, 415])
async def test_a_producer_that_refuses_a_whole_request_is_not_asked_again(status: int) -> None:
    """Only the two refusals that speak of the request's fragments (413, 422) are values."""
    clock = Clock()
    client = client_of(lambda _: problem(status, "not like this"), clock, patience_s=30)

    with pytest.raises(InvalidInput, match="not like this"):
        await client.post_fragments(b"{}")

    assert clock.slept == []


async def test_every_fault_of_a_problem_document_is_in_the_sentence() -> None:
    """Errors are listed, each with its place."""
    errors = [{"in": "top", "detail": "must be 1"}, {"detail": "also bad"}]
    client = client_of(lambda _: problem(422, "the request has faults", errors=errors), Clock(), 0)

    with pytest.raises(InvalidInput, match=r"the request has faults \(top: must be 1; also bad\)"):
        await client.get("/x")


async def test_an_answer_that_is_not_batons_is_told() -> None:
    """Another service at that port does not crash the command."""
    client = client_of(lambda _: httpx.Response(200, text="<html>"), Clock(), 0)

    with pytest.raises(BatonError, match="does not answer as Baton does"):
        await client.get("/streams")
    with pytest.raises(InvalidInput, match="stream table cannot be read"):
        await client.table()


async def test_a_run_is_not_started_twice_when_it_is_unknown_whether_it_was() -> None:
    """A connection that breaks in the middle ends it; one that was refused is tried again."""
    asked: list[str] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request.url.path)
        if len(asked) == 1:
            raise httpx.ConnectError("refused", request=request)
        raise httpx.ReadError("reset", request=request)

    client = client_of(answer, Clock(), 100)

    with pytest.raises(Unavailable, match="does not answer: reset"):
        await client.start_run("lake", "default", {})

    assert asked == ["/jobs/lake/runs"] * 2


async def test_pages_are_joined() -> None:
    """A list of more rows than a page holds comes whole, with what stands beside it."""
    rows = [{"stream": n} for n in range(2500)]
    control = InMemoryControl({"/streams": {"streams": rows, "totals": {"lag": 3}}})
    http = httpx.AsyncClient(transport=httpx.MockTransport(control.answer), base_url="http://control")

    whole = await BatonClient(http, patience_s=0).pages("/streams", "streams", "stream", {"group": "g"})

    assert whole == {"streams": rows, "totals": {"lag": 3}}
    assert [q.get("after") for _, q in control.queries] == [None, "999", "1999"]
    assert {q["group"] for _, q in control.queries} == {"g"}


@pytest.mark.parametrize("url", ["", "localhost:8000", "ftp://x", "http://"])
async def test_what_is_no_url_is_told(url: str) -> None:
    """One sentence, with an example."""
    with pytest.raises(InvalidInput, match="is not a URL like"):
        async with connect(url):
            pass


@pytest.mark.parametrize(("write_key", "shown"), [("s3cret", "Bearer s3cret"), ("", None)])
async def test_a_write_key_is_shown_to_the_producer(write_key: str, shown: str | None) -> None:
    """As a bearer token, with every request; nothing without one."""
    seen: list[str | None] = []

    async def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request.headers.get("authorization"))
        return httpx.Response(200, json={"accepted": 1, "rejected": []})

    with served(answer) as url:
        async with connect(url, write_key=write_key) as client:
            await client.post_fragments(b'{"key":"a"}')
            await client.post_fragment(b'{"key":"a"}')

    assert seen == [shown, shown]


def test_delays_grow_to_their_cap_and_jitter_halves_them_at_most() -> None:
    """Doubling, capped, between a half and the whole."""
    assert [delay_for(n, None, 0.999999) for n in range(1, 20)] == sorted(
        delay_for(n, None, 0.999999) for n in range(1, 20)
    )
    assert delay_for(50, None, 0.0) == MAX_DELAY_S / 2
    assert delay_for(50, 1e9, 0.0) == 60.0


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (None, None),
        ("3", 3.0),
        ("Thu, 01 Jan 2026 00:00:09 GMT", 9.0),
        ("Thu, 01 Jan 2015 00:00:09 GMT", 0.0),
        ("soon", None),
        ("-1", None),
    ],
)
def test_retry_after_is_a_number_or_a_date(value: str | None, seconds: float | None) -> None:
    """What is neither asks for nothing."""
    assert parse_retry_after(value, NOW) == seconds
