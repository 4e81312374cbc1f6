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
from shared.model.secrets import Secrets
from shared.service.signing import ACCEPTED_MS, digest_of
from tests.integration.handover_ends import Face, Sent, plain_client, sent, serving
from tests.peers_contract import EPOCH, STREAM, Donation
from tests.waiting import DEADLINE_S, until

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
REQUEST = BundleRequest(group="default", stream=STREAM, epoch=EPOCH, seq=1, member="a", recipient="b")
BOMB = bytes(cramjam.zstd.compress(bytes(50 * MAX_BYTES), 1))
OTHERS = Secrets(signing=b"of somebody else")


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
    "no signature": (lambda: valid().with_headers(baton_envelope=""), 403, "not signed"),
    "signed as before": (
        lambda: valid().with_headers(baton_envelope="", baton_signature="0" * 64),
        403,
        "as an earlier version of Baton does",
    ),
    "another secret": (lambda: sent(OFFER, BODY, secrets=OTHERS), 403, "signature is wrong"),
    "old": (lambda: sent(OFFER, BODY, late_ms=ACCEPTED_MS + 5000), 403, "do the clocks agree"),
    "from the future": (lambda: sent(OFFER, BODY, late_ms=-ACCEPTED_MS - 5000), 403, "do the clocks agree"),
    "unregistered member": (lambda: offering(donor="zed"), 403, "not a registered member"),
    "in another member's name": (lambda: sent(OFFER, BODY, sender="b"), 422, "does not fit its message"),
    # a signature for something else
    "for another member": (lambda: sent(OFFER, BODY, recipient="c"), 403, "signed for member 'c', not 'b'"),
    "for another namespace": (lambda: sent(OFFER, BODY, namespace="x"), 403, "signed for namespace 'x'"),
    "another stream": (
        lambda: replace(valid(), target="/handover/default/2?epoch=7"),
        403,
        "signed for request",
    ),
    "another message": (
        lambda: replace(valid(), method="POST", target=valid().target),
        405,
        "Method Not Allowed",
    ),
    "copy as delta": (
        lambda: replace(valid(), method="POST", target="/handover/default/1/commit?epoch=7"),
        403,
        "signed for request",
    ),
    "another query": (
        lambda: replace(valid(), target="/handover/default/1?epoch=8"),
        403,
        "signed for request",
    ),
    "another message's envelope": (
        lambda: replace(valid(), headers=sent(REQUEST).headers),
        403,
        "signed for request",
    ),
    "cut body": (lambda: replace(valid(), body=BODY[:-1]), 403, "not the one that was signed"),
    "longer body": (lambda: replace(valid(), body=BODY + b"x"), 403, "not the one that was signed"),
    "another body": (lambda: replace(valid(), body=bytes(len(BODY))), 403, "not the one that was signed"),
    # unreadable
    "no message": (lambda: sent(OFFER, BODY, message=msgspec.Raw(b"{}")), 422, "not contain a valid Offer"),
    "endless header": (lambda: sent(OFFER, BODY, nonce="A" * 20_000), 403, "longer than 16384 characters"),
    "no bundle": (lambda: offering(b"garbage", digest=digest_of(b"garbage")), 422, "is unreadable"),
    "unknown encoding": (lambda: sent(OFFER, BODY, encoding="gzip"), 422, "'gzip' is not known"),
    "not zstd": (
        lambda: sent(OFFER, BODY, packed=b"garbage"),
        422,
        f"not zstd of {len(BODY)} bytes",
    ),
    # too large, or not as long as signed
    "too large": (lambda: offering(bytes(MAX_BYTES + 1)), 422, "at most 1000000 bytes"),
    "too large, decoded": (
        lambda: sent(OFFER, BODY, packed=BOMB, decoded_length=50 * MAX_BYTES),
        422,
        "at most 1000000 bytes",
    ),
    "longer than signed": (
        lambda: sent(OFFER, BODY, packed=BOMB),
        422,
        f"not zstd of {len(BODY)} bytes",
    ),
    "shorter than signed": (
        lambda: sent(OFFER, BODY + b"x", packed=bytes(cramjam.zstd.compress(BODY))),
        422,
        "bytes of zstd, not",
    ),
    # refused by the hint store
    "unknown stream": (lambda: offering(stream=99), 404, "there is no stream 99"),
    "stale epoch": (lambda: offering(epoch=EPOCH - 1), 409, "epoch 6 of a is stale"),
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
    "no signature": (lambda: sent(REQUEST).with_headers(baton_envelope=""), 403, "not signed"),
    "another secret": (lambda: sent(REQUEST, secrets=OTHERS), 403, "signature is wrong"),
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
    """The member refuses on the signed length alone."""
    large = sent(OFFER, BODY, length=MAX_BYTES + 1)
    answer = await raw(b, head_of(large, content_length=str(MAX_BYTES + 1)))

    assert answer.startswith(b"HTTP/1.1 422")
    assert b"at most 1000000 bytes" in answer


async def test_a_body_is_read_only_up_to_its_signed_length(b: Face) -> None:
    """An endless sender is cut off there, whatever it announces in HTTP."""
    chunks = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal chunks
        while chunks < 200:
            chunks += 1
            yield bytes(MAX_BYTES // 10)

    async with plain_client() as client:
        answer = await client.put(b.address + valid().target, headers=valid().headers, content=endless())

    assert (answer.status_code, b.end.holds) == (403, (set(), False))
    assert "not the one that was signed" in answer.json()["detail"]


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
        large = sent(OFFER, bytes(MAX_BYTES))
        writer.write(head_of(large) + large.body[: MAX_BYTES // 2])
        await writer.drain()
        writer.close()
        await writer.wait_closed()

    await until(lambda: len(b.connections) >= 5)
    # their digest is not the message's: refused only after both have been read
    refused = await asyncio.gather(
        *(sent(OFFER, bytes(MAX_BYTES), digest=digest_of(bytes(MAX_BYTES))).to(b) for _ in range(2))
    )
    held = b.end.holds
    answer = await valid().to(b)

    assert held == (set(), False)
    assert [one.status_code for one in refused] == [409, 409]
    assert answer.status_code == 204


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
        async with asyncio.timeout(DEADLINE_S):
            return await reader.read()
    finally:
        writer.close()
        await writer.wait_closed()
