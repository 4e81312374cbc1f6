"""Peers that answer wrongly, late, or not at all: every call ends in time, with one of two errors."""

from __future__ import annotations

import asyncio
import base64
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable

import cramjam
import httpx
import msgspec
import pytest

from services.consumer.adapters.http_peers import HttpPeers, PeerTimeouts, is_near
from services.consumer.core.handover.rules import BundleRequest, Offer
from shared.errors import HandoverRefused, HandoverUnreadable, PeerUnavailable
from shared.model.secrets import Secrets
from shared.service.http import PROBLEM
from shared.service.signing import ACCEPTED_MS, ENVELOPE, Envelope, digest_of, sealed_headers
from tests.integration.handover_ends import SECRETS, here_of, peers_of, serving, wall_ms
from tests.peers_contract import EPOCH, STREAM, Donation

MAX_BYTES = 100_000
LONG_HOST = "http://" + "b" * 70
QUICK = PeerTimeouts(offer_s=0.2, complete_s=0.2, fetch_s=0.2)
REQUEST = BundleRequest(group="default", stream=STREAM, epoch=EPOCH, seq=1, member="b", recipient="a")
Call = Callable[[HttpPeers, str], Awaitable[object]]
Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


async def offer(peers: HttpPeers, address: str) -> None:
    """Offers a first copy of about a megabyte."""
    await peers.offer(address, *copied())


async def complete(peers: HttpPeers, address: str) -> None:
    """Sends a delta."""
    donation = Donation()
    donation.emit("k")
    donation.copy()
    await peers.complete(address, *donation.delta())


async def fetch(peers: HttpPeers, address: str) -> bytes:
    """Requests a bundle."""
    return await peers.fetch(address, REQUEST)


CALLS = pytest.mark.parametrize("call", [offer, complete, fetch], ids=["offer", "complete", "fetch"])


def copied() -> tuple[Offer, bytes]:
    donation = Donation()
    donation.emit("k", "x" * 900_000)
    return donation.copy()


def answering(
    answer: Callable[[httpx.Request], httpx.Response], timeouts: PeerTimeouts | None = None
) -> HttpPeers:
    """Peers whose every request gets this answer."""
    transport = httpx.MockTransport(answer)
    return HttpPeers(
        here_of("b"), SECRETS, wall_ms, max_body_bytes=MAX_BYTES, timeouts=timeouts, transport=transport
    )


def response(status: int, content: bytes = b"", headers: dict[str, str] | None = None) -> httpx.Response:
    """An answer whose body has not been read yet, as on a socket."""
    return httpx.Response(status, stream=httpx.ByteStream(content), headers=headers)


def problem(status: int, content: bytes, kind: str = PROBLEM) -> httpx.Response:
    return response(status, content, {"content-type": kind})


def bundle(
    request: httpx.Request,
    body: bytes,
    *,
    secrets: Secrets = SECRETS,
    sent: bytes | None = None,
    **changes: object,
) -> httpx.Response:
    """A member's answer to this request, `changes` of its envelope signed; the body is sent as `sent`."""
    asked = msgspec.json.decode(
        base64.urlsafe_b64decode(request.headers[ENVELOPE].partition(".")[0]), type=Envelope
    )
    answer = Envelope(
        sender="a",
        recipient="b",
        namespace="",
        group="default",
        at_ms=wall_ms(),
        nonce=asked.nonce,
        method="200",
        target=asked.target,
        digest=digest_of(body),
        length=len(body),
    )
    answer = msgspec.structs.replace(answer, **changes)
    return response(200, body if sent is None else sent, sealed_headers(secrets, answer))


FOREIGN_ANSWERS: dict[str, tuple[Callable[[], httpx.Response], str]] = {
    "redirect": (lambda: response(302, b"", {"location": "http://evil/"}), "status 302"),
    "redirect of the method": (lambda: response(307, b"", {"location": "http://evil/"}), "status 307"),
    "a page": (lambda: response(200, b"<html>", {"content-type": "text/html"}), "status 200|not signed"),
    "accepted for later": (lambda: response(202), "status 202"),
    "a fault": (lambda: problem(500, b'{"detail":"crashed"}'), "status 500"),
    "not ready": (lambda: problem(503, b'{"detail":"prepares"}'), "status 503"),
    "a missing page": (lambda: problem(404, b"<html>", "text/html"), "404 without a reason"),
    "a refusal without a reason": (lambda: problem(409, b"{}"), "409 with an unreadable reason"),
    "a refusal of garbage": (lambda: problem(409, b"\xff"), "409 with an unreadable reason"),
    "a reason that is not text": (lambda: problem(409, b'{"detail":7}'), "409 with an unreadable reason"),
    "an endless reason": (
        lambda: problem(409, b'{"detail":"' + b"x" * 20_000 + b'"}'),
        "409 and more than 16384 bytes",
    ),
}


@CALLS
@pytest.mark.parametrize("answer", FOREIGN_ANSWERS)
async def test_an_answer_that_no_member_gives_means_the_peer_is_unavailable(call: Call, answer: str) -> None:
    """Another service may listen on a member's old address by now. Redirects are not followed."""
    hosts: set[str] = set()

    def at_the_address(request: httpx.Request) -> httpx.Response:
        hosts.add(request.url.host)
        return make()

    make, reason = FOREIGN_ANSWERS[answer]
    async with answering(at_the_address) as peers:
        with pytest.raises(PeerUnavailable, match=f"http://b does not answer: .*({reason})"):
            await call(peers, "http://b")

    assert hosts == {"b"}


@CALLS
@pytest.mark.parametrize("status", [400, 403, 404, 409, 413, 422, 429])
async def test_a_refusal_raises_with_the_peers_reason(call: Call, status: int) -> None:
    """The operator sees the peer's own sentence. What the peer would never accept need not be sent again."""
    async with answering(lambda _: problem(status, b'{"detail":"b is draining"}')) as peers:
        with pytest.raises(HandoverRefused, match=r"^b is draining$") as caught:
            await call(peers, "http://b")

    assert isinstance(caught.value, HandoverUnreadable) == (status == 422)


BUNDLE = b"bundle"
LARGE = bytes(cramjam.zstd.compress(bytes(MAX_BYTES * 9)))
OLD_MS = ACCEPTED_MS + 5000
BAD_BUNDLES: dict[str, tuple[Callable[[httpx.Request], httpx.Response], str]] = {
    "nothing": (lambda _: response(204), "status 204"),
    "not signed": (lambda _: response(200, BUNDLE), "not signed"),
    "another secret": (
        lambda asked: bundle(asked, BUNDLE, secrets=Secrets(signing=b"x")),
        "signature is wrong",
    ),
    "old": (lambda asked: bundle(asked, BUNDLE, at_ms=wall_ms() - OLD_MS), "do the clocks agree"),
    "another head": (lambda asked: bundle(asked, BUNDLE, target="/handover/x"), "signed for request"),
    "to another member": (lambda asked: bundle(asked, BUNDLE, recipient="c"), "signed for member 'c'"),
    "of another member": (lambda asked: bundle(asked, BUNDLE, sender="c"), "not the answer to this request"),
    "to an earlier request": (lambda asked: bundle(asked, BUNDLE, nonce="0"), "not the answer to this"),
    "another body": (lambda asked: bundle(asked, BUNDLE, sent=b"bent"), "not the one that was signed"),
    "longer than signed": (lambda asked: bundle(asked, BUNDLE, sent=BUNDLE + b"x"), "not the one that was"),
    "too large": (lambda asked: bundle(asked, bytes(MAX_BYTES + 1)), "at most 100000 bytes"),
    "unknown encoding": (lambda asked: bundle(asked, BUNDLE, encoding="gzip"), "the encoding 'gzip'"),
    "not zstd": (lambda asked: zstd(asked, b"garbage", 7), "not zstd of 7 bytes"),
    "too large, decoded": (lambda asked: zstd(asked, LARGE, MAX_BYTES * 9), "at most 100000 bytes"),
    "longer than announced": (lambda asked: zstd(asked, LARGE, MAX_BYTES), "not zstd of 100000 bytes"),
}


def zstd(request: httpx.Request, packed: bytes, length: int) -> httpx.Response:
    return bundle(request, packed, encoding="zstd", decoded_length=length)


@pytest.mark.parametrize("answer", BAD_BUNDLES)
async def test_a_bundle_must_be_signed_by_the_member_and_bounded(answer: str) -> None:
    """Otherwise any process at the address could plant sessions or exhaust the memory."""
    make, reason = BAD_BUNDLES[answer]

    async with answering(make) as peers:
        with pytest.raises(PeerUnavailable, match=f"http://a does not answer: .*{reason}"):
            await fetch(peers, "http://a")


async def test_a_signed_bundle_is_accepted() -> None:
    """So each bundle above is rejected for its one fault."""
    packed = bytes(cramjam.zstd.compress(BUNDLE))

    async with answering(lambda asked: bundle(asked, BUNDLE)) as peers:
        assert await fetch(peers, "http://a") == BUNDLE
    async with answering(lambda asked: zstd(asked, packed, 6)) as peers:
        assert await fetch(peers, "http://a") == BUNDLE


LIBRARY_ERRORS = [
    found
    for name in httpx.__all__
    if isinstance(found := getattr(httpx, name), type) and issubclass(found, Exception)
]


@CALLS
@pytest.mark.parametrize("kind", [*LIBRARY_ERRORS, OSError, TimeoutError])
async def test_every_error_of_the_library_means_the_peer_is_unavailable(
    call: Call, kind: type[Exception]
) -> None:
    """Callers handle two errors; a third kind would end the member."""

    def fail(request: httpx.Request) -> httpx.Response:
        if kind is httpx.HTTPStatusError:
            raise httpx.HTTPStatusError("x", request=request, response=httpx.Response(500))
        takes_no_message = kind in (
            httpx.StreamConsumed,
            httpx.StreamClosed,
            httpx.ResponseNotRead,
            httpx.RequestNotRead,
        )
        raise kind() if takes_no_message else kind("x")

    async with answering(fail) as peers:
        with pytest.raises(PeerUnavailable):
            await call(peers, "http://b")


def test_the_library_has_errors_to_test() -> None:
    """The test above collects the library's errors; if it found none, it would test nothing."""
    assert len(LIBRARY_ERRORS) >= 20


@CALLS
@pytest.mark.parametrize(
    "address",
    ["", "b", "ftp://b", "http://", "http://[b", "http://b:99999", "http://b:port", "http://\0", LONG_HOST],
)
async def test_an_invalid_address_is_unavailable(call: Call, address: str) -> None:
    """Addresses come from ZooKeeper, as some member wrote them."""
    async with peers_of("a") as peers:
        with pytest.raises(PeerUnavailable):
            await call(peers, address)


@contextlib.asynccontextmanager
async def listening(serve: Serve) -> AsyncIterator[str]:
    """Yields the address of a server that handles every connection with `serve`."""
    tasks: set[asyncio.Task[None]] = set()
    writers: list[asyncio.StreamWriter] = []

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async def run() -> None:
            with contextlib.suppress(OSError):
                await serve(reader, writer)
            writer.close()

        writers.append(writer)
        tasks.add(asyncio.create_task(run()))

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        # Stop accepting first, then give accepted sockets the few loop steps that they need to become
        # connections: closing the server in between would leave them open.
        asyncio.get_running_loop().remove_reader(server.sockets[0].fileno())
        for _ in range(4):
            await asyncio.sleep(0)
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for writer in writers:
            writer.transport.abort()
            with contextlib.suppress(OSError):
                await writer.wait_closed()


async def mute(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
    """Reads everything but never answers."""
    while await reader.read(65_536):
        pass


async def deaf(_: asyncio.StreamReader, __: asyncio.StreamWriter) -> None:
    """Does not even read."""
    await asyncio.Event().wait()


async def trickling(__: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Sends a byte of its answer now and then, each within any idle time-out."""
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 5000\r\n\r\n")
    for _byte in range(5000):
        writer.write(b"x")
        await writer.drain()
        await asyncio.sleep(0.02)


async def closing(_: asyncio.StreamReader, __: asyncio.StreamWriter) -> None:
    """Closes at once."""


async def foreign(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Speaks another protocol."""
    writer.write(b"SSH-2.0-OpenSSH_9.6\r\n")
    await writer.drain()


async def dying(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Disconnects in the middle of its answer."""
    writer.write(
        b"HTTP/1.1 409 Conflict\r\nContent-Type: application/problem+json\r\nContent-Length: 99\r\n\r\n{"
    )
    await writer.drain()


@CALLS
@pytest.mark.parametrize("serve", [mute, deaf, trickling, closing, foreign, dying])
async def test_a_call_to_a_slow_or_foreign_peer_ends(call: Call, serve: Serve) -> None:
    """The time-out bounds the whole call, even if bytes keep arriving."""
    async with listening(serve) as address, peers_of("a", timeouts=QUICK) as peers:
        with pytest.raises(PeerUnavailable, match=f"{address} does not answer: .+"):
            await call(peers, address)


async def test_a_cancelled_call_raises_cancelled_error() -> None:
    """A member that leaves must not mistake its own cancellation for an answer."""
    async with listening(mute) as address, peers_of("a") as peers:
        calling = asyncio.create_task(offer(peers, address))
        await asyncio.sleep(0.01)
        calling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await calling


async def test_the_reason_arrives_even_if_the_peer_does_not_read_the_copy() -> None:
    """The answer that comes before the whole body is sent must not get lost."""
    async with serving("b", max_body_bytes=1000) as b, peers_of("a") as peers:
        for _ in range(5):
            with pytest.raises(HandoverRefused, match="at most 1000 bytes"):
                await offer(peers, b.address)

    assert b.end.holds == (set(), False)


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("http://127.0.0.1:8010", True),
        ("http://127.9.9.9", True),
        ("http://[::1]:8010", True),
        ("http://localhost:8010", True),
        ("http://10.0.0.7:8010", False),
        ("http://b.example", False),
        ("http://127.0.0.1.example", False),
        ("http://[b", False),
    ],
)
def test_loopback_addresses_are_recognised(address: str, expected: bool) -> None:
    """Compression pays off only across a network."""
    assert is_near(address) is expected


def test_the_repr_names_the_member_and_hides_the_secret() -> None:
    """Logs may contain the repr."""
    peers = peers_of("a")

    assert repr(peers) == "<HttpPeers of a>"
