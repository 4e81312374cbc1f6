"""What a member refuses over HTTP: each with a clear reason, and without effect.

The hint store decides whether a message fits (tests/scenarios/handover); here each kind of its errors occurs
once, to check its HTTP status.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import replace

import cramjam
import msgspec
import pytest

from services.consumer.core.handover.rules import BundleRequest, Offer
from services.consumer.handover import routes as handover_routes
from shared.service.signing import ACCEPTED_MS, digest_of
from tests.integration.handover_ends import Face, Sent, plain_client, sent, serving
from tests.peers_contract import EPOCH, STREAM, Donation
from tests.waiting import until

MAX_BYTES = 1_000_000


@pytest.fixture
async def b() -> AsyncIterator[Face]:
    """The recipient, which accepts bodies of up to a megabyte."""
    async with serving("b", MAX_BYTES) as face:
        yield face


def copied() -> tuple[Offer, bytes]:
    donation = Donation()
    donation.emit("k", "x" * 1000)
    return donation.copy()


OFFER, BODY = copied()
REQUEST = BundleRequest(group="default", stream=STREAM, epoch=EPOCH, seq=1, member="a")
BOMB = bytes(cramjam.zstd.compress(bytes(50 * MAX_BYTES), 1))
ZSTD = {"content_encoding": "zstd"}


def valid() -> Sent:
    """The offer as the donor sends it now."""
    return sent(OFFER, BODY)


def offering(body: bytes = BODY, **changes: object) -> Sent:
    """The offer with some fields changed, properly signed by a member."""
    return sent(msgspec.structs.replace(OFFER, **changes), body)


def test_the_bomb_is_small_while_compressed() -> None:
    """Only its decompressed size exceeds the bound."""
    assert len(BOMB) < MAX_BYTES / 100


async def test_a_valid_offer_is_accepted(b: Face) -> None:
    """So each refusal below is due to the one thing that differs from this offer."""
    answer = await valid().to(b)

    assert (answer.status_code, answer.content) == (204, b"")
    assert b.end.holds == ({STREAM}, False)


REFUSED: dict[str, tuple[Callable[[], Sent], int, str]] = {
    # the wrong sender
    "no signature": (lambda: valid().with_headers(baton_signature=""), 403, "not signed"),
    "wrong signature": (lambda: valid().with_headers(baton_signature="0" * 64), 403, "signature is wrong"),
    "another secret": (lambda: sent(OFFER, BODY, secret=b"of somebody else"), 403, "signature is wrong"),
    "old": (lambda: sent(OFFER, BODY, late_ms=ACCEPTED_MS + 5000), 403, "do the clocks agree"),
    "from the future": (lambda: sent(OFFER, BODY, late_ms=-ACCEPTED_MS - 5000), 403, "do the clocks agree"),
    "unregistered member": (lambda: offering(donor="zed"), 403, "not a registered member"),
    "in another member's name": (lambda: sent(OFFER, BODY, sender="b"), 403, "not this request"),
    # a signature for something else
    "another stream": (
        lambda: replace(valid(), target="/handover/default/2?epoch=7"),
        403,
        "signature is wrong",
    ),
    "another message": (
        lambda: replace(valid(), method="POST", target=valid().target),
        405,
        "Method Not Allowed",
    ),
    "copy as delta": (
        lambda: replace(valid(), method="POST", target="/handover/default/1/commit?epoch=7"),
        403,
        "signature is wrong",
    ),
    "another query": (
        lambda: replace(valid(), target="/handover/default/1?epoch=8"),
        403,
        "not this request",
    ),
    "another epoch": (lambda: valid().with_headers(baton_epoch="8"), 403, "signature is wrong"),
    "another header": (
        lambda: valid().with_headers(baton_handover=offering(position=9).headers["Baton-Handover"]),
        403,
        "Baton-Handover is not the one that was signed",
    ),
    "no header": (
        lambda: valid().with_headers(baton_handover=""),
        403,
        "Baton-Handover is not the one that was",
    ),
    # unreadable
    "header of garbage": (lambda: sent(OFFER, BODY, header="?"), 422, "is not a valid Offer"),
    "header of another kind": (
        lambda: sent(OFFER, BODY, header=sent(REQUEST).headers["Baton-Handover"]),
        422,
        "is not a valid Offer",
    ),
    "endless header": (lambda: sent(OFFER, BODY, header="A" * 9000), 422, "longer than 8192 bytes"),
    "no bundle": (lambda: offering(b"garbage", digest=digest_of(b"garbage")), 422, "is unreadable"),
    "unknown encoding": (lambda: valid().with_headers(content_encoding="gzip"), 422, "'gzip' is not known"),
    "zstd of unknown length": (lambda: valid().with_headers(**ZSTD), 422, "'' is not a length"),
    "not zstd": (
        lambda: valid().with_headers(**ZSTD, baton_length="1000"),
        422,
        "not zstd of 1000 bytes",
    ),
    # too large, or not as long as announced
    "too large": (lambda: offering(bytes(MAX_BYTES + 1)), 422, "at most 1000000 bytes"),
    "too large, decoded": (
        lambda: replace(valid(), body=BOMB).with_headers(**ZSTD, baton_length=str(50 * MAX_BYTES)),
        422,
        "at most 1000000 bytes",
    ),
    "longer than announced": (
        lambda: replace(valid(), body=BOMB).with_headers(**ZSTD, baton_length="1000"),
        422,
        "not zstd of 1000 bytes",
    ),
    "shorter than announced": (
        lambda: replace(valid(), body=bytes(cramjam.zstd.compress(BODY))).with_headers(
            **ZSTD, baton_length=str(len(BODY) + 1)
        ),
        422,
        "bytes of zstd, not",
    ),
    # refused by the hint store
    "unknown group": (lambda: offering(group="other"), 404, "not a member of group 'other'"),
    "stale epoch": (lambda: offering(epoch=EPOCH - 1), 409, "epoch 6 of a is stale"),
    "cut body": (
        lambda: replace(valid(), body=BODY[:-1]),
        409,
        "does not have the digest that was announced",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
async def test_an_offer_is_refused_with_a_reason_and_without_effect(b: Face, case: str) -> None:
    """The answer is a problem document, and the donor logs its detail."""
    make, status, reason = REFUSED[case]

    answer = await make().to(b)

    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/problem+json"
    assert reason in answer.json()["detail"]
    assert b.end.holds == (set(), False)


async def test_a_member_that_has_not_joined_accepts_nothing(b: Face) -> None:
    """It does not have the secret to check signatures yet: 503, try again."""
    b.joined = False

    answers = [await valid().to(b), await sent(REQUEST).to(b)]

    assert [answer.status_code for answer in answers] == [503, 503]
    assert b.end.holds == (set(), False)


GETS: dict[str, tuple[Callable[[], Sent], int, str]] = {
    "no signature": (lambda: sent(REQUEST).with_headers(baton_signature=""), 403, "not signed"),
    "another secret": (lambda: sent(REQUEST, secret=b"of somebody else"), 403, "signature is wrong"),
    "unregistered member": (
        lambda: sent(msgspec.structs.replace(REQUEST, member="zed")),
        403,
        "not a registered",
    ),
    "not held": (lambda: sent(msgspec.structs.replace(REQUEST, seq=2)), 404, "no bundle of stream 1"),
}


@pytest.mark.parametrize("case", GETS)
async def test_only_members_get_a_bundle_and_only_for_its_own_head(b: Face, case: str) -> None:
    """A bundle holds users' data: the open sessions."""
    donation = Donation()
    donation.emit("k", "private")
    donation.commit()
    b.end.hint_store.keep(donation.stream)
    make, status, reason = GETS[case]

    answer = await make().to(b)

    assert answer.status_code == status
    assert reason in answer.json()["detail"]
    assert b"private" not in answer.content


async def test_a_large_body_is_refused_before_it_is_sent(b: Face) -> None:
    """The member refuses on the announced length alone."""
    answer = await raw(b, head_of(valid(), content_length=str(MAX_BYTES + 1)))

    assert answer.startswith(b"HTTP/1.1 422")
    assert b"at most 1000000 bytes" in answer


async def test_a_body_of_unknown_length_is_read_only_up_to_the_bound(b: Face) -> None:
    """An endless sender is cut off there."""
    chunks = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal chunks
        while chunks < 200:
            chunks += 1
            yield bytes(MAX_BYTES // 10)

    async with plain_client() as client:
        answer = await client.put(b.address + valid().target, headers=valid().headers, content=endless())

    assert (answer.status_code, b.end.holds) == (422, (set(), False))
    assert "at most 1000000 bytes" in answer.json()["detail"]


async def test_a_body_must_arrive_in_time(b: Face, monkeypatch: pytest.MonkeyPatch) -> None:
    """By then the donor has stopped waiting anyway."""
    monkeypatch.setattr(handover_routes, "BODY_S", 0.05)

    answer = await raw(b, head_of(valid()) + BODY[:10])

    assert answer.startswith(b"HTTP/1.1 409")
    assert b"did not arrive within 0.05 s" in answer
    assert b.end.holds == (set(), False)


async def test_a_sender_that_disconnects_midway_has_no_effect(b: Face) -> None:
    """Its bytes stop counting as in transit, so the member receives other bodies afterwards."""
    for _ in range(5):
        _, writer = await asyncio.open_connection("127.0.0.1", b.port)
        writer.write(head_of(valid(), content_length=str(MAX_BYTES)) + bytes(MAX_BYTES // 2))
        await writer.drain()
        writer.close()
        await writer.wait_closed()

    await until(lambda: len(b.connections) >= 5)
    large = replace(valid(), body=bytes(MAX_BYTES))
    refused = await asyncio.gather(large.to(b), large.to(b))
    held = b.end.holds
    answer = await valid().to(b)

    assert held == (set(), False)
    assert [one.status_code for one in refused] == [409, 409]
    assert answer.status_code == 204


async def test_concurrent_bodies_are_bounded_together(b: Face) -> None:
    """Two of the largest may arrive at once; meanwhile others get a 503."""
    writers = []
    for _ in range(2):
        _, writer = await asyncio.open_connection("127.0.0.1", b.port)
        writer.write(head_of(valid(), content_length=str(MAX_BYTES)) + bytes(MAX_BYTES - 1))
        await writer.drain()
        writers.append(writer)
    statuses = []

    async def is_answered(request: Sent, status: int) -> bool:
        statuses.append((await request.to(b)).status_code)
        return statuses[-1] == status

    await until(lambda: is_answered(replace(valid(), body=BODY * 10), 503))
    for writer in writers:
        writer.close()
        await writer.wait_closed()
    await until(lambda: is_answered(valid(), 204))

    assert set(statuses) <= {409, 503, 204}


def head_of(request: Sent, **changes: str) -> bytes:
    """The request line and headers as sent over the wire."""
    changed = request.with_headers(**{"content_length": str(len(request.body))} | changes)
    lines = [f"{changed.method} {changed.target} HTTP/1.1", "Host: b", "Connection: close"]
    lines += [f"{name}: {value}" for name, value in changed.headers.items()]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


async def raw(face: Face, data: bytes) -> bytes:
    """Sends these bytes and nothing more; returns the whole answer."""
    reader, writer = await asyncio.open_connection("127.0.0.1", face.port)
    writer.write(data)
    try:
        async with asyncio.timeout(20):
            return await reader.read()
    finally:
        writer.close()
        await writer.wait_closed()
