"""How the client treats responses: as values, as errors with one sentence, or with a retry."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from datetime import UTC, datetime

import httpx
import pytest
from click.testing import CliRunner

from cli.http.client import BatonClient, connect
from cli.http.requests import NotAllowed, Requests
from cli.http.retry_after import MAX_RETRY_AFTER_S, parse_retry_after
from cli.main import cli
from cli.terminal.exit_codes import ExitCode, exit_code_for
from shared.errors import BatonError, Conflict, InvalidInput, NotFound, Unavailable
from tests.fakes.rejects import InMemoryRejectedLog, reject_of
from tests.unit.cli.fake_services import InMemoryControl, client_of, problem, served
from tests.unit.control.desk import MOVE, Desk
from tests.unit.control.http.test_app import InMemoryRunner, app_of
from tests.unit.control.sources import small_baton

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


def patient(answer: Callable[[httpx.Request], httpx.Response], clock: Clock) -> BatonClient:
    """A client that retries for 30 s of that clock."""
    return client_of(answer, 30, sleep=clock.sleep, clock=clock.read)


@pytest.mark.parametrize("status", [429, 502, 503, 504])
async def test_requests_to_an_unavailable_service_are_retried_until_patience_ends(status: int) -> None:
    """Then the error has the sentence of the last response; no attempt starts later."""
    clock = Clock()
    client = patient(lambda _: problem(status, "Kafka is away"), clock)

    with pytest.raises(Unavailable, match="Kafka is away"):
        await client.table()

    assert 20 < clock.now_s <= 30
    assert client.retries == len(clock.slept) > 5
    assert max(clock.slept) <= 5.0


async def test_a_refused_connection_is_retried_for_long_only_after_an_answer() -> None:
    """Before one, nobody may be at that address; after one, the service restarts."""
    clock, answers = Clock(), [problem(503, "starting")] * 6

    def answer(request: httpx.Request) -> httpx.Response:
        if clock.now_s > 5 and answers:
            return answers.pop()
        raise httpx.ConnectError("refused")

    client = client_of(answer, 60, connect_patience_s=2, sleep=clock.sleep, clock=clock.read)
    with pytest.raises(Unavailable, match="refused"):
        await client.table()
    refused_s, clock.now_s = clock.now_s, 6.0
    with pytest.raises(Unavailable, match="refused"):
        await client.table()

    assert refused_s <= 2
    assert 50 < clock.now_s - 6.0 <= 60


@pytest.mark.parametrize(
    "arguments",
    [
        "rejected replay --reason time",
        "run lake --wait",
        "cancel r1",
        "streams",
        *(f"{operation} --wait" for operation in ("move 0 --to m1", "drain m1", "rebalance")),
    ],
)
def test_every_command_reports_a_refused_connection_at_once(
    arguments: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However long it would wait for a service that has answered."""
    clock, name = Clock(), "cli.http.client.Requests"
    monkeypatch.setattr(name, functools.partial(Requests, sleep=clock.sleep, clock=clock.read))
    log = InMemoryRejectedLog([[reject_of(b"{}", reason="time", detail="", index=0)]])
    monkeypatch.setattr("cli.rejects.command.open_rejected", lambda *_, **__: contextlib.nullcontext(log))

    result = CliRunner().invoke(cli, [*arguments.split(), "--url", "http://127.0.0.1:1"])

    # what the command raises, `main` turns into that code
    assert ExitCode.UNREACHABLE in (result.exit_code, exit_code_of(result.exception))
    assert "does not answer" in f"{result.exception} {result.stderr}"
    assert clock.now_s <= 2


async def test_retry_after_is_the_least_wait() -> None:
    """The client honours what the server asks for."""
    clock = Clock()
    answers = [problem(429, "slowly", {"retry-after": "7"}), httpx.Response(200, json={"streams": []})]
    client = patient(lambda _: answers.pop(0), clock)

    await client.get("/streams")

    assert clock.slept == [7.0]


@pytest.mark.parametrize(
    ("method", "status", "error"),
    [
        ("GET", 404, NotFound),
        ("GET", 409, Conflict),
        ("GET", 422, InvalidInput),
        ("GET", 500, BatonError),
        *(("POST", status, InvalidInput) for status in (400, 415)),
        *(("POST", status, NotAllowed) for status in (401, 403)),
    ],
)
async def test_other_errors_are_raised_at_once(method: str, status: int, error: type[BatonError]) -> None:
    """Waiting does not help. Of a POST only 413 and 422, which concern its fragments, are values."""
    clock = Clock()
    client = patient(lambda _: problem(status, "no"), clock)

    with pytest.raises(BatonError, match="no") as caught:
        await (client.get("/streams") if method == "GET" else client.post_fragments(b"{}"))

    assert type(caught.value) is error
    assert clock.slept == []


async def test_the_sentence_lists_every_fault_of_a_problem_document() -> None:
    """Each with its place in the request."""
    errors = [{"in": "top", "detail": "must be 1"}, {"detail": "also bad"}]
    client = client_of(lambda _: problem(422, "the request has faults", errors=errors))

    with pytest.raises(InvalidInput, match=r"the request has faults \(top: must be 1; also bad\)"):
        await client.get("/x")


async def test_a_service_that_is_not_baton_is_reported() -> None:
    """With a sentence instead of a crash."""
    client = client_of(lambda _: httpx.Response(200, text="<html>"))

    with pytest.raises(BatonError, match="is not a Baton service"):
        await client.get("/streams")
    with pytest.raises(InvalidInput, match="stream table cannot be read"):
        await client.table()


LOST: list[Callable[[httpx.Request], httpx.Response]] = [
    lambda request: _raise(httpx.ReadError("reset", request=request)),
    lambda request: _raise(httpx.ReadTimeout("timed out", request=request)),
    lambda request: _raise(httpx.RemoteProtocolError("closed", request=request)),
    lambda _: problem(502, "the proxy has lost its answer"),
]
"""What becomes of an answer on its way."""


async def answered_by(service: httpx.AsyncClient, request: httpx.Request) -> httpx.Response:
    """What the service in process answers to a request that was meant for another address."""
    headers = {name: value for name, value in request.headers.items() if name != "host"}
    path = request.url.raw_path.decode()
    return await service.request(request.method, path, content=request.content, headers=headers)


def _raise(error: Exception) -> httpx.Response:
    raise error


@pytest.mark.parametrize("lose", LOST)
async def test_nothing_starts_twice_when_an_answer_is_lost(lose: Callable[..., httpx.Response]) -> None:
    """The request is repeated under its Idempotency-Key, and control answers with what it has started."""
    desk, runner, clock = Desk(), InMemoryRunner(), Clock()
    app = await app_of(small_baton(), runner)
    runs = httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://control")
    losses = [lose, lose]

    async def answer(request: httpx.Request) -> httpx.Response:
        is_run = request.url.path.startswith("/jobs")
        response = await answered_by(runs if is_run else desk.http, request)
        return losses.pop()(request) if losses else response

    await desk.look()
    client = client_of(answer, 30, sleep=clock.sleep, clock=clock.read)
    operation = await client.operate(MOVE)
    losses += [lose, lose]
    run = await client.start_run("lake", "default", {})
    with pytest.raises(Conflict):
        await client.start_run("lake", "default", {})

    assert [one.id for one in desk.operations.all()] == [operation["id"]]
    assert [one.id for one in runner.runs()] == [run["id"]]
    assert client.retries == 4


async def test_a_cancel_whose_answer_was_lost_is_no_conflict() -> None:
    """What is cancelled already stays cancelled, and the repeated request returns it."""
    desk, clock = Desk(), Clock()
    await desk.look()
    operation = (await desk.post(**MOVE)).json()
    losses = [LOST[0]]

    async def answer(request: httpx.Request) -> httpx.Response:
        response = await answered_by(desk.http, request)
        return losses.pop()(request) if losses else response

    client = client_of(answer, 30, sleep=clock.sleep, clock=clock.read)
    cancelled = await client.cancel("operations", operation["id"], "wrong one")

    assert (cancelled["state"], client.retries) == ("cancelled", 1)
    assert [event.what.split()[0] for event in desk.events] == ["move", "cancel"]


async def test_pages_are_joined() -> None:
    """A list that is longer than a page is returned as a whole, with the other fields of the answer."""
    rows = [{"stream": n} for n in range(2500)]
    control = InMemoryControl({"/streams": {"streams": rows, "totals": {"lag": 3}}})

    whole = await client_of(control.answer).pages("/streams", "streams", "stream", {"group": "g"})

    assert whole == {"streams": rows, "totals": {"lag": 3}}
    assert [q.get("after") for _, q in control.queries] == [None, "999", "1999"]
    assert {q["group"] for _, q in control.queries} == {"g"}


@pytest.mark.parametrize("url", ["", "localhost:8000", "ftp://x", "http://"])
async def test_an_invalid_url_is_rejected(url: str) -> None:
    """With an example of a valid one."""
    with pytest.raises(InvalidInput, match="is not a URL like"):
        async with connect(url):
            pass


@pytest.mark.parametrize(("write_key", "header"), [("s3cret", "Bearer s3cret"), ("", None)])
async def test_the_write_key_is_sent_to_the_producer(write_key: str, header: str | None) -> None:
    """As a bearer token with every request; no header without a key."""
    sent: list[str | None] = []

    async def answer(request: httpx.Request) -> httpx.Response:
        sent.append(request.headers.get("authorization"))
        return httpx.Response(200, json={"accepted": 1, "rejected": []})

    with served(answer) as url:
        async with connect(url, bearer=write_key) as client:
            await client.post_fragments(b'{"key":"a"}')
            await client.post_fragment(b'{"key":"a"}')

    assert sent == [header, header]


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (None, 0.0),
        ("3", 3.0),
        ("86400", MAX_RETRY_AFTER_S),
        ("Thu, 01 Jan 2026 00:00:09 GMT", 9.0),
        ("Thu, 01 Jan 2026 00:09:00 GMT", MAX_RETRY_AFTER_S),
        ("Thu, 01 Jan 2015 00:00:09 GMT", 0.0),
        ("soon", 0.0),
        ("-1", 0.0),
    ],
)
def test_retry_after_is_a_number_or_a_date_up_to_a_minute(value: str | None, seconds: float) -> None:
    """Anything else asks for no wait."""
    assert parse_retry_after(value, NOW) == seconds


def exit_code_of(error: BaseException | None) -> ExitCode | None:
    """The code of the process that an error of ours ends."""
    return exit_code_for(error) if isinstance(error, BatonError) else None
