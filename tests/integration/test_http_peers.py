"""Handovers over real sockets: the contract of all peers, large bodies, one connection, drains."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator

import httpx
import msgspec
import pytest

from services.consumer.adapters.http_peers import HttpPeers
from services.consumer.core.handover.rules import BundleRequest
from services.consumer.core.handover.sent import taking_delta
from services.consumer.core.slices import at_once
from services.control.adapters.processes.signed_requests import HttpDrain, SignedRequests
from shared.errors import PeerUnavailable
from shared.model.secrets import Secrets
from shared.service.signing import Envelope, digest_of, new_nonce
from tests.integration.handover_ends import (
    PATIENT,
    SECRETS,
    Face,
    here_of,
    pair_over_http,
    peers_of,
    plain_client,
    sealed,
    serving,
    wall_ms,
)
from tests.peers_contract import EPOCH, STREAM, Donation, Pair, PeersContract

MB = 1_000_000


class TestContract(PeersContract):
    """The contract of all peers, between members on one machine."""

    @pytest.fixture
    async def pair(self) -> AsyncIterator[Pair]:
        async with pair_over_http() as pair:
            yield pair


class TestContractBetweenMachines(PeersContract):
    """The same between machines, where bodies are compressed."""

    @pytest.fixture
    async def pair(self) -> AsyncIterator[Pair]:
        async with pair_over_http("elsewhere.example") as pair:
            yield pair


@pytest.mark.parametrize("host", ["127.0.0.1", "elsewhere.example"])
@pytest.mark.parametrize("compressible", [True, False])
async def test_twenty_megabytes_can_be_handed_over_and_fetched(host: str, compressible: bool) -> None:
    """All three messages arrive whole, whether compression pays off or not."""
    rng, donation = random.Random(1), Donation()
    for n in range(400):
        donation.emit(f"k{n}", "x" * 50_000 if compressible else rng.randbytes(25_000).hex())

    async with pair_over_http(host) as pair:
        offer, copy = donation.copy()
        await pair.peers.offer(pair.address_of("b"), offer, copy)
        for n in range(400, 420):
            donation.emit(f"k{n}", "y" * 50_000)
        await pair.peers.complete(pair.address_of("b"), *donation.delta())
        (hint,) = pair.recipient.hint_store.take(STREAM)
        pair.donor.hint_store.keep(donation.stream)
        request = BundleRequest(group="default", stream=STREAM, epoch=EPOCH, seq=1, member="b", recipient="a")
        fetched = await pair.back.fetch(pair.address_of("a"), request)

    assert len(copy) > 20 * MB
    assert at_once(taking_delta(hint.state, None)) == at_once(taking_delta(donation.stream, None)) == fetched


async def test_a_delta_reuses_the_connection_of_its_copy() -> None:
    """The stream stands still while the delta travels, so a new connection would add to the pause."""
    donation = Donation()
    donation.emit("k", "x" * 500_000)

    # created as the service does, with the library's own transport
    peers = HttpPeers(here_of("a"), SECRETS, wall_ms, max_body_bytes=MB, timeouts=PATIENT)
    async with serving("b") as b, peers:
        await peers.offer(b.address, *donation.copy())
        await peers.complete(b.address, *donation.delta())

    assert len(b.connections) == 2
    assert len(set(b.connections)) == 1


async def test_bodies_are_compressed_only_between_machines() -> None:
    """On loopback bytes cost nothing, so compression would only take time."""
    donation = Donation()
    donation.emit("k", "x" * 500_000)
    lengths: list[int] = []

    async def record(request: httpx.Request) -> None:
        lengths.append(int(request.headers["content-length"]))

    async with serving("b") as b, peers_of("a") as peers:
        peers._client.event_hooks["request"].append(record)
        offer, body = donation.copy()
        await peers.offer(b.address, offer, body)
        await peers.offer(f"http://elsewhere.example:{b.port}", offer, body)

    assert lengths[0] == len(body)
    assert lengths[1] < len(body) / 10


async def drain(face: Face, body: bytes = b"", signed_body: bytes | None = None) -> httpx.Response:
    """Sends a signed drain request and returns the member's answer."""
    announced = body if signed_body is None else signed_body
    envelope = Envelope(
        sender="control",
        recipient=face.member,
        namespace="",
        group="default",
        at_ms=wall_ms(),
        nonce=new_nonce(),
        method="POST",
        target="/drain",
        digest=digest_of(announced),
        length=len(announced),
    )
    return await sealed(envelope, body).to(face)


@pytest.mark.parametrize(
    ("body", "why"), [(b"", "requested by control"), (b'{"why":"an upgrade"}', "an upgrade")]
)
async def test_a_drain_starts_and_is_answered_at_once(body: bytes, why: str) -> None:
    """A drain may take long; the member's status reports its progress."""
    async with serving("b") as b:
        answer = await drain(b, body)

    assert (answer.status_code, answer.json()) == (202, {"state": "draining"})
    assert b.drained == [why]


async def test_a_drain_can_be_taken_back() -> None:
    """By control's other request; a member that does not drain refuses, and says so."""
    async with serving("b") as b, httpx.AsyncClient() as http:
        control = HttpDrain(SignedRequests(http, _secrets))
        with pytest.raises(PeerUnavailable, match="b does not undrain: b is not draining"):
            await control.undrain("default", "b", b.address, "too early")
        await control.drain("default", "b", b.address, "an upgrade")
        await control.undrain("default", "b", b.address, "it can wait")

    assert (b.drained, b.undrained) == (["an upgrade"], ["it can wait"])


async def _secrets() -> Secrets:
    return SECRETS


async def test_a_member_that_has_not_joined_has_nothing_to_drain() -> None:
    """It answers 409, so control looks again later."""
    async with serving("b") as b:
        b.joined = False
        answer = await drain(b)

    assert answer.status_code == 409
    assert b.drained == []


@pytest.mark.parametrize(
    ("body", "signed_body", "status"),
    [
        (b'{"why":"x"}', b"", 403),
        (b"not JSON", None, 422),
        (b'{"why":7}', None, 422),
        (msgspec.json.encode({"why": "x" * 5000}), None, 422),
    ],
)
async def test_an_unsigned_or_unreadable_drain_does_not_start(
    body: bytes, signed_body: bytes | None, status: int
) -> None:
    """The signature covers the body, and the body is bounded."""
    async with serving("b") as b:
        answer = await drain(b, body, signed_body)
        async with plain_client() as client:
            unsigned = await client.post(f"{b.address}/drain", content=body)

    assert (answer.status_code, unsigned.status_code) == (status, 403)
    assert b.drained == []
