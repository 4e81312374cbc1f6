"""Control asks a member what it holds: both ends, in process. Only signed requests are answered."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Sequence

import httpx
import pytest

from services.consumer.app import create_app
from services.consumer.handover.nonces import Nonces
from services.consumer.handover.routes import Reception
from services.consumer.member.departure import Departure
from services.consumer.member.metrics import ConsumerMetrics
from services.consumer.stream.worker import StreamWorker
from services.control.adapters.processes.signed_requests import HttpOwners, SignedRequests
from shared.errors import PeerUnavailable
from shared.model.secrets import Secrets
from shared.service.signing import ACCEPTED_MS, Here
from tests.fakes.virtual_time import virtual_time
from tests.peers_contract import new_end
from tests.unit.consumer.stream_world import EPOCH_MS, LONG, StreamWorld

SECRETS = Secrets(signing=b"s" * 32)
ADDRESS = "http://a"
KEYS = ["k", "a b/c?d=é&e", "%2F+", "日本", " ", "x" * 256]


def wall_ms() -> int:
    return EPOCH_MS


@contextlib.asynccontextmanager
async def face(
    workers: Sequence[StreamWorker], *, joined: bool = True, secrets: Secrets = SECRETS
) -> AsyncIterator[tuple[httpx.AsyncClient, HttpOwners]]:
    """Member `a` with these workers: a client, and control's way to ask it with these secrets."""
    reception = Reception(
        here=Here(member="a", namespace="", group="default"),
        hint_store=new_end("a").hint_store,
        secrets=SECRETS,
        nonces=Nonces(EPOCH_MS - ACCEPTED_MS),
        departure=Departure("a", lambda: None),
        wall_ms=wall_ms,
    )
    app = create_app(
        status=dict,
        plan=dict,
        complaints=list,
        metrics=ConsumerMetrics([]),
        reception=lambda: reception if joined else None,
        workers=lambda: workers,
        hosts=["a"],
    )

    async def known() -> Secrets:
        return secrets

    async with httpx.AsyncClient(transport=httpx.ASGITransport(app)) as http:
        yield http, HttpOwners(SignedRequests(http, known, "", wall_ms))


@virtual_time
async def test_a_member_reports_what_it_holds() -> None:
    """Any text may be a key."""
    world = StreamWorld(LONG)
    worker, _ = await world.running()
    for key in KEYS:
        world.emit(key, data="x")
    await world.until_committed()

    async with face([worker]) as (_, owners):
        held = [await owners.key("default", "a", ADDRESS, 0, key) for key in KEYS]
        nothing = await owners.key("default", "a", ADDRESS, 0, "nobody")
        stream = await owners.stream("default", "a", ADDRESS, 0)

    assert [(one.open.key, one.open.first_offset) for one in held if one.open] == [
        (key, n) for n, key in enumerate(KEYS)
    ]
    assert (nothing.open, nothing.data) == (None, [])
    assert [row.key for row in stream.oldest] == KEYS


@virtual_time
async def test_a_member_says_why_it_cannot_answer() -> None:
    """It does not run the stream, has not opened it, or has not joined."""
    world = StreamWorld(LONG)
    worker = world.worker()

    async def refused(stream: int, *, joined: bool = True) -> str:
        async with face([worker], joined=joined) as (_, owners):
            with pytest.raises(PeerUnavailable) as error:
                await owners.stream("default", "a", ADDRESS, stream)
        return error.value.reason

    assert await refused(5) == "a does not own stream 5"
    assert await refused(0) == "a does not know yet what is open in stream 0: it is opening"
    assert await refused(0, joined=False) == "this member has not joined its group yet"


@virtual_time
async def test_a_member_that_opens_a_stream_again_does_not_know_what_is_open() -> None:
    """While it replays, sessions are missing; after a failure, what it remembers may no longer be true."""
    world = StreamWorld(LONG)
    worker, _ = await world.running()
    for state in ("replaying", "retrying", "rewind"):
        worker.state = state
        async with face([worker]) as (_, owners):
            with pytest.raises(PeerUnavailable, match=f"does not know yet .*: it is {state}"):
                await owners.stream("default", "a", ADDRESS, 0)


@virtual_time
@pytest.mark.parametrize("target", ["/open/0", "/open/0/session?key=k"])
async def test_only_control_and_members_may_look(target: str) -> None:
    """What is open is users' data."""
    world = StreamWorld(LONG)
    worker, _ = await world.running()
    world.emit("k", data="private")
    await world.until_committed()

    async with face([worker], secrets=Secrets(signing=b"of somebody else")) as (http, owners):
        unsigned = await http.get(ADDRESS + target)
        with pytest.raises(PeerUnavailable, match="signature is wrong"):
            await owners.key("default", "a", ADDRESS, 0, "k")

    assert unsigned.status_code == 403
    assert "private" not in unsigned.text


@pytest.mark.parametrize(
    ("answer", "reason", "cause"),
    [
        pytest.param(None, "a does not answer", "10.0.0.7 refused", id="refused"),
        pytest.param(httpx.Response(404), "a does not know this request", "", id="an earlier version"),
        pytest.param(httpx.Response(500), "it answers 500", "", id="fails"),
        pytest.param(httpx.Response(302, headers={"location": "http://evil"}), "answers 302", "", id="moved"),
        pytest.param(httpx.Response(200, content=b"<html>"), "cannot be read", "malformed", id="not JSON"),
    ],
)
async def test_any_other_answer_is_unavailable_with_a_reason_for_strangers(
    answer: httpx.Response | None, reason: str, cause: str
) -> None:
    """The reason names no address; the log has the cause."""

    def respond(request: httpx.Request) -> httpx.Response:
        if answer is None:
            raise httpx.ConnectError("10.0.0.7 refused", request=request)
        return answer

    async def known() -> Secrets:
        return SECRETS

    async with httpx.AsyncClient(transport=httpx.MockTransport(respond)) as http:
        owners = HttpOwners(SignedRequests(http, known))
        with pytest.raises(PeerUnavailable) as error:
            await owners.stream("default", "a", ADDRESS, 0)

    assert reason in error.value.reason
    assert cause in error.value.detail
    assert "10.0.0.7" not in error.value.reason
