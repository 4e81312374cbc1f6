"""The producer's HTTP face in process: the real door and app behind a connection of ours, on in-memory sinks.

`ask` plays the connection: it passes the pieces of a body, and checks that there is one answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from services.producer.core.ingest import Portion, Rejected
from services.producer.http.access.keys import WriteKeys, parse_keys
from services.producer.settings import ProducerSettings
from shared.errors import KafkaUnavailable
from shared.server.answers import Pairs
from shared.server.exchange import Exchange, Head
from shared.server.outlet import Outlet
from shared.server.reader import joined
from tests.fakes.http import Wire
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

    def send(self, portions: Mapping[int, Portion], on_outcome: Callable[[list[int]], None]) -> None:
        """See FragmentSink."""
        if self.down:
            raise KafkaUnavailable("Kafka is down")
        for stream, portion in portions.items():
            if stream not in self.mute:
                self.kept += [
                    (index, stream, key, value)
                    for index, key, value in zip(portion.indexes, portion.keys, portion.values, strict=True)
                ]
        super().send(portions, on_outcome)

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


class FakeLine:
    """A connection that keeps the answer."""

    def __init__(self) -> None:
        self._status: int | None = None
        self._headers: list[tuple[bytes, bytes]] = []
        self._wire = Wire()
        self.outlet = Outlet(self._wire)
        self.loop = asyncio.get_running_loop()
        self.tasks: set[asyncio.Task[None]] = set()

    def begin(self, exchange: Exchange, status: int, headers: Pairs) -> None:
        """See Line."""
        assert self._status is None
        self._status, self._headers = status, list(headers)

    def respond(self, exchange: Exchange, status: int, headers: Pairs, body: bytes) -> None:
        """See Line."""
        self.begin(exchange, status, headers)
        self.outlet.write(body)
        self.answered(exchange)

    def answered(self, exchange: Exchange) -> None:
        """See Line."""
        assert not exchange.is_answered
        exchange.is_answered = True
        exchange.drop_body()

    def resume(self) -> None:
        """See Line."""

    def answer(self) -> Answer:
        """The answer, if there was one."""
        names = [name for name, _ in self._headers]
        assert all(type(name) is bytes and name == name.lower() for name in names), names
        assert len(set(names)) == len(names), names
        return Answer(status=self._status, headers=dict(self._headers), body=bytes(self._wire.written))


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
        """The answer to a request. Raises what the door raises, and AssertionError for a second answer."""
        self.forget()
        self.sink.down, self.sink.mute = post.is_down, set(post.mute)
        line = FakeLine()
        headers = [(b"host", b"127.0.0.1"), *post.headers]
        named = joined(headers)
        length = named.get(b"content-length", b"")
        head = Head(
            post.method,
            post.path.encode(),
            post.path,
            post.query,
            headers,
            named,
            "1.1",
            int(length) if length.isdigit() else 0,
            is_last=False,
            expects_continue=False,
        )
        exchange = self._producer.face.exchange(line, head)
        exchange.start()
        for piece in post.pieces[: len(post.pieces) // 2] if post.is_gone else post.pieces:
            if not exchange.is_answered:
                exchange.body.append(piece)
                exchange.size += len(piece)
                exchange.arrived()
        if post.is_gone:
            exchange.lose()
        elif not exchange.is_answered:
            exchange.is_whole = True
            exchange.arrived()
        if line.tasks:
            await asyncio.wait(line.tasks, timeout=ANSWER_S)
            await asyncio.sleep(0)  # one turn of the loop, so that finished tasks are freed
        return line.answer()

    def forget(self) -> None:
        """Drops what was stored."""
        self.sink.forget()
