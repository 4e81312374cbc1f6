"""The producer's HTTP face in process: the real Door and app, called over bare ASGI, on in-memory sinks.

`ask` plays the server: it passes the pieces of a body, and checks the answer against the rules of ASGI.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from services.producer.core.ingest import Portion, Rejected
from services.producer.http.keys import WriteKeys, parse_keys
from services.producer.settings import ProducerSettings
from tests.fakes.rejects import InMemoryRejects
from tests.fakes.sink import InMemoryFragmentSink
from tests.fuzz.posts import KEY, Post
from tests.unit.producer.face import TABLE, Producer

ANSWER_S = 10.0
SETTINGS: Mapping[str, Mapping[str, Any]] = {
    "usual": {},
    "narrow": {"max_fragment_bytes": 200, "max_request_bytes": 2_000, "max_request_fragments": 5},
    "guarded": {"allowed_origins": "https://example.com"},
}
"""Doors by name: the narrow one has limits that small bodies reach, the guarded one requires `KEY`."""


class IndexedSink(InMemoryFragmentSink):
    """Also keeps the position of each record in its request: (index, stream, key, value) in `kept`."""

    def __init__(self) -> None:
        super().__init__(TABLE.count)
        self.kept: list[tuple[int, int, bytes, bytes]] = []

    def send(self, portions: Mapping[int, Portion]) -> Awaitable[list[int]]:
        """See FragmentSink."""
        answer = super().send(portions)
        for stream, portion in portions.items():
            if stream not in self.mute:
                self.kept += [
                    (index, stream, key, value)
                    for index, key, value in zip(portion.indexes, portion.keys, portion.values, strict=True)
                ]
        return answer

    def forget(self) -> None:
        """Drops everything."""
        self.kept.clear()
        for log in self.logs:
            log.clear()


class CountedRejects(InMemoryRejects):
    """Only counts: a queue of objects would cost more CPU time than the door, which is measured."""

    def put(self, rejected: Sequence[Rejected], posted: Sequence[bytes], writer: str = "") -> None:
        """See Rejects."""
        assert len(rejected) == len(posted)
        self.counts.stored += len(rejected)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The answer; without a status if there was none."""

    status: int | None
    headers: dict[bytes, bytes]
    body: bytes


class Face:
    """A door with a name in SETTINGS, and what it stored of the last request."""

    def __init__(self, name: str) -> None:
        keys = WriteKeys(parse_keys([KEY.decode()] if name == "guarded" else []))
        self.sink = IndexedSink()
        self._producer = Producer(keys, self.sink, CountedRejects(), **SETTINGS[name])
        self.door = self._producer.door
        self.limits = ProducerSettings(**SETTINGS[name]).limits
        self.is_narrow = name == "narrow"

    async def ask(self, post: Post) -> Answer:
        """The answer to a request. Raises what the door raises, AssertionError if it violates ASGI."""
        self.forget()
        self.sink.down, self.sink.mute = post.is_down, set(post.mute)
        pieces = iter(post.pieces[: len(post.pieces) // 2] if post.is_gone else post.pieces)
        left = len(post.pieces) // 2 if post.is_gone else len(post.pieces)
        sent: list[dict[str, Any]] = []

        async def receive() -> dict[str, Any]:
            nonlocal left
            piece = next(pieces, None)
            if piece is None:
                return {"type": "http.disconnect"}
            left -= 1
            return {"type": "http.request", "body": piece, "more_body": left > 0 or post.is_gone}

        async def send(message: Any) -> None:
            sent.append(message)

        async with asyncio.timeout(ANSWER_S):
            await self.door(scope_of(post), receive, send)
            await asyncio.sleep(0)  # one turn of the loop, so that finished tasks are freed
        return _answer_of(sent)

    def forget(self) -> None:
        """Drops what was stored."""
        self.sink.forget()


def scope_of(post: Post) -> dict[str, Any]:
    """The request as uvicorn passes it."""
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "scheme": "http",
        "method": post.method,
        "path": post.path,
        "raw_path": post.path.encode(),
        "root_path": "",
        "query_string": post.query,
        "headers": post.headers,
        "client": ("127.0.0.1", 50_000),
        "server": ("127.0.0.1", 8_001),
        "state": {},
    }


def _answer_of(sent: list[dict[str, Any]]) -> Answer:
    if not sent:
        return Answer(status=None, headers={}, body=b"")
    start, *bodies = sent
    assert start["type"] == "http.response.start", sent
    assert all(message["type"] == "http.response.body" for message in bodies), sent
    assert [bool(message.get("more_body")) for message in sent[1:]].index(False) == len(bodies) - 1, sent
    names = [name for name, _ in start["headers"]]
    assert all(type(name) is bytes and name == name.lower() for name in names), names
    assert len(set(names)) == len(names), names
    return Answer(
        status=start["status"],
        headers=dict(start["headers"]),
        body=b"".join(message.get("body", b"") for message in bodies),
    )
