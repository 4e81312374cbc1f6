"""What a member does not accept from others: each with a clear word, and none with an effect on its desk."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import replace

import cramjam
import msgspec
import pytest

from services.consumer.core.handover.rules import Offer, BundleRequest
from services.consumer.handover import routes as handover_routes
from shared.model.cluster import MemberNode
from shared.service.signing import ACCEPTED_MS, digest_of
from tests.integration.handover_ends import Face, Sent, plain_client, sent, serving
from tests.peers_contract import EPOCH, STREAM, Donation, situation_of

MAX_BYTES = 1_000_000


@pytest.fixture
async def b() -> AsyncIterator[Face]:
    """The recipient, which takes a megabyte at a time."""
    async with serving("b", MAX_BYTES) as face:
        yield face


def copied() -> tuple[Offer, bytes]:
    donation = Donation()
    donation.emit("k", "x" * 1000)
    return donation.copy()


OFFER, BODY = copied()
WANTED = BundleRequest(group="default", stream=STREAM, epoch=EPOCH, seq=1, member="a")
BOMB = bytes(cramjam.zstd.compress(bytes(50 * MAX_BYTES), 1))
ZSTD = {"content_encoding": "zstd"}


def valid() -> Sent:
    """The offer as the donor sends it now."""
    return sent(OFFER, BODY)


def offering(body: bytes = BODY, **changes: object) -> Sent:
    """The offer with other fields, signed by a member."""
    return sent(msgspec.structs.replace(OFFER, **changes), body)


def test_the_bomb_is_one() -> None:
    """It would pass every bound on what arrives."""
    assert len(BOMB) < MAX_BYTES / 100


async def test_what_is_not_bent_is_accepted(b: Face) -> None:
    """So the refusals below are for what was bent, and for nothing else."""
    answer = await valid().to(b)

    assert (answer.status_code, answer.content) == (204, b"")
    assert b.end.holds == ({STREAM}, False)


REFUSED: dict[str, tuple[Callable[[], Sent], int, str]] = {
    # who asks
    "no signature": (lambda: valid().with_headers(baton_signature=""), 403, "not signed"),
    "wrong signature": (lambda: valid().with_headers(baton_signature="0" * 64), 403, "signature is wrong"),
    "another secret": (lambda: sent(OFFER, BODY, secret=b"of somebody else"), 403, "signature is wrong"),
    "old": (lambda: sent(OFFER, BODY, late_ms=ACCEPTED_MS + 5000), 403, "do the clocks agree"),
    "from the future": (lambda: sent(OFFER, BODY, late_ms=-ACCEPTED_MS - 5000), 403, "do the clocks agree"),
    "unregistered member": (lambda: offering(donor="zed"), 403, "not a registered member"),
    "in another's name": (lambda: sent(OFFER, BODY, sender="b"), 403, "was signed, not this request"),
    # what was signed is not what is asked
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
        "was signed, not this",
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
    # what cannot be read
    "header of garbage": (lambda: sent(OFFER, BODY, header="?"), 422, "holds no Offer"),
    "header of another kind": (
        lambda: sent(OFFER, BODY, header=sent(WANTED).headers["Baton-Handover"]),
        422,
        "holds no Offer",
    ),
    "endless header": (lambda: sent(OFFER, BODY, header="A" * 9000), 422, "longer than 8192 bytes"),
    "no bundle": (lambda: offering(b"garbage", digest=digest_of(b"garbage")), 422, "cannot be read"),
    "unknown encoding": (lambda: valid().with_headers(content_encoding="gzip"), 422, "'gzip' is not known"),
    "zstd of unknown length": (lambda: valid().with_headers(**ZSTD), 422, "'' is no length"),
    "zstd that is none": (
        lambda: valid().with_headers(**ZSTD, baton_length="1000"),
        422,
        "no zstd of 1000 bytes",
    ),
    # what is too large
    "too large": (lambda: offering(bytes(MAX_BYTES + 1)), 422, "at most 1000000 bytes"),
    "too large, decoded": (
        lambda: replace(valid(), body=BOMB).with_headers(**ZSTD, baton_length=str(50 * MAX_BYTES)),
        422,
        "at most 1000000 bytes",
    ),
    "more than it says": (
        lambda: replace(valid(), body=BOMB).with_headers(**ZSTD, baton_length="1000"),
        422,
        "no zstd of 1000 bytes",
    ),
    "less than it says": (
        lambda: replace(valid(), body=bytes(cramjam.zstd.compress(BODY))).with_headers(
            **ZSTD, baton_length=str(len(BODY) + 1)
        ),
        422,
        "bytes of zstd, not",
    ),
    # what this member does not take
    "unknown group": (lambda: offering(group="other"), 404, "not a member of group 'other'"),
    "unknown stream": (lambda: offering(stream=99), 404, "no stream 99"),
    "negative stream": (lambda: offering(stream=-1), 404, "no stream -1"),
    "stale epoch": (lambda: offering(epoch=EPOCH - 1), 409, "epoch 6 of a is stale"),
    "wrong digest": (
        lambda: offering(digest=digest_of(b"another")),
        409,
        "does not have the digest that was announced",
    ),
    "cut body": (
        lambda: replace(valid(), body=BODY[:-1]),
        409,
        "does not have the digest that was announced",
    ),
    "wrong position": (lambda: offering(position=9), 409, "is of position 1, not 9"),
}


@pytest.mark.parametrize("case", REFUSED)
async def test_a_copy_is_refused_with_a_clear_word_and_no_effect(b: Face, case: str) -> None:
    """As a problem document, whose detail the donor logs."""
    make, status, word = REFUSED[case]

    answer = await make().to(b)

    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/problem+json"
    assert word in answer.json()["detail"]
    assert b.end.holds == (set(), False)


SITUATIONS: dict[str, tuple[Callable[[Face], None], str]] = {
    "draining": (lambda b: stand(b, state="draining"), "b is draining"),
    "short lease": (lambda b: stand(b, lease_ms=10), "lease of b ends in 10 ms"),
    "has its share": (lambda b: stand(b, quota=0), "share of b is full"),
}


def stand(face: Face, state: str = "active", **changes: object) -> None:
    """From now on the recipient stands so, and the plan does not name it."""
    situation = replace(situation_of("b"), planned={}, **changes)  # type: ignore[arg-type]
    node = MemberNode(address="http://b", state=state)  # type: ignore[arg-type]
    view = replace(situation.view, members={**situation.view.members, "b": node})
    face.end.situation = replace(situation, view=view)


@pytest.mark.parametrize("case", SITUATIONS)
async def test_a_member_that_cannot_take_a_stream_says_so(b: Face, case: str) -> None:
    """409: the donor goes on, and looks for another one."""
    change, word = SITUATIONS[case]
    change(b)

    answer = await valid().to(b)

    assert (answer.status_code, answer.json()["type"]) == (409, "urn:baton:handover-refused")
    assert word in answer.json()["detail"]
    assert b.end.holds == (set(), False)


async def test_a_member_that_still_prepares_takes_nothing(b: Face) -> None:
    """It has no secret yet to judge by: 503, try again."""
    b.joined = False

    answers = [await valid().to(b), await sent(WANTED).to(b)]

    assert [answer.status_code for answer in answers] == [503, 503]
    assert b.end.holds == (set(), False)


DELTAS: dict[str, tuple[dict[str, object], int, str]] = {
    "another copy": ({"base_digest": digest_of(b"another")}, 409, "no copy of stream 1 is held here"),
    "of another position": ({"base_position": 0}, 409, "no copy of stream 1 is held here"),
    "wrong digest": ({"digest": digest_of(b"another")}, 409, "does not have the digest that was announced"),
    "another head": ({"seq": 99}, 409, "not end with the head that was announced"),
    "stale epoch": ({"epoch": EPOCH - 1}, 409, "epoch 6 of a is stale"),
    "unregistered member": ({"donor": "zed"}, 403, "not a registered member"),
    "unknown group": ({"group": "other"}, 404, "not a member of group 'other'"),
}


@pytest.mark.parametrize("case", DELTAS)
async def test_a_delta_that_does_not_fit_is_refused_and_expected_is_nothing(b: Face, case: str) -> None:
    """Without a release to expect, the copy is a hint that will be forgotten."""
    changes, status, word = DELTAS[case]
    donation = Donation()
    donation.emit("k")
    await sent(*donation.copy()).to(b)
    completion, body = donation.delta()

    answer = await sent(msgspec.structs.replace(completion, **changes), body).to(b)

    assert (answer.status_code, b.end.hint_store.expects) == (status, False)
    assert word in answer.json()["detail"]


GETS: dict[str, tuple[Callable[[], Sent], int, str]] = {
    "no signature": (lambda: sent(WANTED).with_headers(baton_signature=""), 403, "not signed"),
    "another secret": (lambda: sent(WANTED, secret=b"of somebody else"), 403, "signature is wrong"),
    "unregistered member": (
        lambda: sent(msgspec.structs.replace(WANTED, member="zed")),
        403,
        "not a registered",
    ),
    "not held": (lambda: sent(msgspec.structs.replace(WANTED, seq=2)), 404, "no bundle of stream 1"),
    "unknown group": (
        lambda: sent(msgspec.structs.replace(WANTED, group="other")),
        404,
        "not a member of group",
    ),
}


@pytest.mark.parametrize("case", GETS)
async def test_a_bundle_is_given_only_to_members_and_only_the_one_that_was_asked_for(
    b: Face, case: str
) -> None:
    """Open sessions are everybody's data, and nobody else's business."""
    donation = Donation()
    donation.emit("k", "private")
    donation.commit()
    b.end.hint_store.keep(donation.stream)
    make, status, word = GETS[case]

    answer = await make().to(b)

    assert answer.status_code == status
    assert word in answer.json()["detail"]
    assert b"private" not in answer.content


async def test_a_large_body_is_refused_before_any_of_it_is_sent(b: Face) -> None:
    """Its announced length is enough."""
    answer = await raw(b, head_of(valid(), content_length=str(MAX_BYTES + 1)))

    assert answer.startswith(b"HTTP/1.1 422")
    assert b"at most 1000000 bytes" in answer


async def test_a_body_of_unannounced_length_is_read_only_to_its_bound(b: Face) -> None:
    """Whoever never ends is not listened to for ever."""
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


async def test_a_body_that_does_not_come_is_not_waited_for_for_ever(
    b: Face, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The donor has long given up."""
    monkeypatch.setattr(handover_routes, "BODY_S", 0.05)

    answer = await raw(b, head_of(valid()) + BODY[:10])

    assert answer.startswith(b"HTTP/1.1 409")
    assert b"did not arrive within 0.05 s" in answer
    assert b.end.holds == (set(), False)


async def test_a_sender_who_goes_away_in_the_middle_has_no_effect(b: Face) -> None:
    """Nor is anything left counted as arriving: afterwards all goes on."""
    for _ in range(5):
        _, writer = await asyncio.open_connection("127.0.0.1", b.port)
        writer.write(head_of(valid(), content_length=str(MAX_BYTES)) + bytes(MAX_BYTES // 2))
        await writer.drain()
        writer.close()
        await writer.wait_closed()

    deadline_s = time.monotonic() + 20
    while len(b.connections) < 5:
        assert time.monotonic() < deadline_s
        await asyncio.sleep(0.01)
    large = replace(valid(), body=bytes(MAX_BYTES))
    refused = await asyncio.gather(large.to(b), large.to(b))
    held = b.end.holds
    answer = await valid().to(b)

    assert held == (set(), False)
    assert [one.status_code for one in refused] == [409, 409]
    assert answer.status_code == 204


async def test_many_bodies_at_once_are_bounded_together(b: Face) -> None:
    """Two of the largest are let in, more are told to come again: until those two are gone."""
    writers = []
    for _ in range(2):
        _, writer = await asyncio.open_connection("127.0.0.1", b.port)
        writer.write(head_of(valid(), content_length=str(MAX_BYTES)) + bytes(MAX_BYTES - 1))
        await writer.drain()
        writers.append(writer)
    statuses = []
    deadline_s = time.monotonic() + 20
    while 503 not in statuses:
        assert time.monotonic() < deadline_s
        statuses.append((await replace(valid(), body=BODY * 10).to(b)).status_code)
    for writer in writers:
        writer.close()
        await writer.wait_closed()
    while 204 not in statuses:
        assert time.monotonic() < deadline_s
        statuses.append((await valid().to(b)).status_code)

    assert set(statuses) <= {409, 503, 204}


def head_of(request: Sent, **changes: str) -> bytes:
    """The request's head as it goes over the wire."""
    bent = request.with_headers(**{"content_length": str(len(request.body))} | changes)
    lines = [f"{bent.method} {bent.target} HTTP/1.1", "Host: b", "Connection: close"]
    lines += [f"{name}: {value}" for name, value in bent.headers.items()]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


async def raw(face: Face, data: bytes) -> bytes:
    """All that is answered to these bytes, after which nothing more is sent."""
    reader, writer = await asyncio.open_connection("127.0.0.1", face.port)
    writer.write(data)
    try:
        async with asyncio.timeout(20):
            return await reader.read()
    finally:
        writer.close()
        await writer.wait_closed()
