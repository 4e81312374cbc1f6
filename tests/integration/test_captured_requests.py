"""What somebody who reads the network can do with captured requests: nothing."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import cramjam
import httpx
import pytest

from services.consumer.handover.messages import decompress
from services.control.adapters.processes.signed_requests import HttpDrain, SignedRequests
from shared.model.secrets import Secrets
from tests.integration.handover_ends import SECRETS, plain_client, sent, serving
from tests.peers_contract import Donation

MAX_BYTES = 1_000_000


async def _secrets() -> Secrets:
    return SECRETS


async def test_a_captured_drain_drains_nobody_else_and_nobody_again() -> None:
    """It names its recipient, and its nonce is accepted once."""
    captured: list[httpx.Request] = []

    async def capture(request: httpx.Request) -> None:
        captured.append(request)

    async with serving("a") as a, serving("b") as b, serving("c") as c:
        async with httpx.AsyncClient(event_hooks={"request": [capture]}) as http:
            await HttpDrain(SignedRequests(http, _secrets)).drain("default", "a", a.address, "an upgrade")
        (request,) = captured
        async with plain_client() as client:
            answers = [
                await client.post(f"{face.address}/drain", headers=request.headers, content=request.content)
                for face in (a, b, c)
            ]

    assert [answer.status_code for answer in answers] == [403, 403, 403]
    assert "it is a replay" in answers[0].json()["detail"]
    assert [a.drained, b.drained, c.drained] == [["an upgrade"], [], []]


async def test_a_captured_header_gets_no_bomb_decompressed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither as it was captured, nor again: the body is not the signed one, and the nonce is used up."""
    decompressed: list[int] = []

    def counted(packed: bytes, length: int) -> bytes:
        decompressed.append(length)
        return decompress(packed, length)

    monkeypatch.setattr("services.consumer.handover.sealed_body.decompress", counted)
    donation = Donation()
    donation.emit("k", "x" * 1000)
    offer, body = donation.copy()
    bomb = bytes(cramjam.zstd.compress(bytes(MAX_BYTES), 1))

    async with serving("b", MAX_BYTES) as b:
        captured = replace(
            sent(offer, body, packed=bytes(cramjam.zstd.compress(body)), decoded_length=MAX_BYTES),
            body=bomb,
        )
        answers = await asyncio.gather(*(captured.to(b) for _ in range(8)))

    assert {answer.status_code for answer in answers} == {403}
    assert decompressed == []


async def test_bodies_count_at_their_decoded_size_while_they_arrive() -> None:
    """Two of the largest may be on their way at once; the third is refused before it is read."""
    donation = Donation()
    donation.emit("k", "x" * 1000)
    offer, body = donation.copy()
    packed = bytes(cramjam.zstd.compress(body))

    async with serving("b", MAX_BYTES) as b:
        writers = []
        for _ in range(2):
            slow = sent(offer, body, packed=packed, decoded_length=MAX_BYTES)
            lines = [f"{slow.method} {slow.target} HTTP/1.1", "Host: b", f"Content-Length: {len(packed)}"]
            lines += [f"{name}: {value}" for name, value in slow.headers.items()]
            _, writer = await asyncio.open_connection("127.0.0.1", b.port)
            writer.write(("\r\n".join(lines) + "\r\n\r\n").encode() + packed[:1])
            await writer.drain()
            writers.append(writer)
        statuses: list[int] = []
        async with asyncio.timeout(20):
            while 503 not in statuses:
                statuses.append((await sent(offer, body, packed=packed).to(b)).status_code)
        for writer in writers:
            writer.close()
            await writer.wait_closed()

    assert set(statuses) <= {204, 503}
