"""Kafka's brokers in memory, as far as reading needs them: metadata, offsets and fetches, in real bytes.

`FakeKafka.connect` takes the place of a connection's handshake. A connection answers one request after the
other, as a broker does. `refusals` of a partition, `topic_errors` and `session_errors` are the error codes of
the next answers; `accidents` befall the next requests of a kind; `is_mute` keeps all answers back, `muted`
those of some brokers; `cut` breaks the connections.
"""

from __future__ import annotations

import asyncio
import math
from collections import defaultdict, deque
from io import BytesIO
from typing import Any, Literal

from aiokafka.errors import KafkaConnectionError
from aiokafka.protocol.offset import OffsetRequest

from shared.kafka.wire.fetch import FetchRequest, FetchResponse, Place, Wish
from shared.kafka.wire.metadata import MetadataRequest, MetadataResponse
from tests.fakes.kafka_fetch import answer_fetch
from tests.fakes.kafka_log import UNKNOWN_TOPIC, FakePartition, error_of

HOST = "fake"
Accident = Literal["cut before", "cut after", "mute"]
"""The connection breaks before the broker acts, or after it; or the answer never comes."""


class FakeKafka:
    """Brokers 1 … `brokers` on ports of their numbers. `fetches`: every fetch that was answered."""

    def __init__(self, brokers: int = 1) -> None:
        self.brokers = list(range(1, brokers + 1))
        self.partitions: dict[tuple[str, int], FakePartition] = {}
        self.connections: list[FakeConnection] = []
        self.fetches: list[FetchRequest] = []
        self.metadata_reads = 0
        self.has_sessions = True
        self.is_mute = False
        self.muted: set[int] = set()
        self.unregistered = False
        self.controller = 1
        self.sessions: dict[int, dict[Place, Wish]] = {}
        self.changed = asyncio.Event()
        self.accidents: defaultdict[type, deque[Accident]] = defaultdict(deque)
        self.topic_errors: defaultdict[str, deque[int]] = defaultdict(deque)
        self.session_errors: deque[int] = deque()
        self._topics = 0

    def create(self, topic: str, partition: int = 0, leader: int = 1) -> FakePartition:
        """Creates a topic, or creates it anew."""
        self._topics += 1
        made = self.partitions[topic, partition] = FakePartition(self._topics.to_bytes(16, "big"), leader)
        return made

    async def connect(self, host: str, port: int) -> Any:
        """A connection to the broker on that port. Raises KafkaConnectionError if there is none."""
        await asyncio.sleep(0.001)
        if port not in self.brokers:
            raise KafkaConnectionError(f"nobody listens on {port}")
        connection = FakeConnection(self, port)
        self.connections.append(connection)
        return connection

    async def answer(self, node: int, request: Any) -> Any:
        """The answer to a request of another kind."""
        raise NotImplementedError(f"{request!r} to {node}")

    def cut(self, node: int) -> None:
        """Breaks all connections to a broker."""
        for connection in self.connections:
            if connection.node == node:
                connection.close()

    def wake(self) -> None:
        """Answers the long polls that have something to answer by now."""
        self.changed.set()
        self.changed = asyncio.Event()


class FakeConnection:
    """What `AIOKafkaConnection` offers."""

    lifetime_s = math.inf

    def __init__(self, kafka: FakeKafka, node: int) -> None:
        self.node = node
        self._kafka = kafka
        self._turn = asyncio.Lock()
        self._broken = asyncio.get_running_loop().create_future()

    def connected(self) -> bool:
        return not self._broken.done()

    def close(self) -> None:
        if not self._broken.done():
            self._broken.set_result(None)

    async def leave(self) -> None:
        self.close()

    async def send(self, request: Any) -> Any:
        """The broker's answer."""
        answering = asyncio.ensure_future(self._answer(request))
        try:
            await asyncio.wait((answering, self._broken), return_when=asyncio.FIRST_COMPLETED)
            if not answering.done():
                raise KafkaConnectionError("broken")
            return answering.result()
        finally:
            answering.cancel()

    async def _answer(self, request: Any) -> Any:
        async with self._turn:
            await asyncio.sleep(0.001)
            while self._kafka.is_mute or self.node in self._kafka.muted:
                await self._kafka.changed.wait()
            accidents = self._kafka.accidents[type(request)]
            accident = accidents.popleft() if accidents else None
            if accident == "cut before":
                self._kafka.cut(self.node)
                await asyncio.sleep(1)
            answer = await self._act(request)
            if accident == "cut after":
                self._kafka.cut(self.node)
            if accident is not None:
                await asyncio.Event().wait()
            return answer

    async def _act(self, request: Any) -> Any:
        if isinstance(request, MetadataRequest):
            return self._metadata(request)
        if isinstance(request, OffsetRequest):
            return self._offsets(request)
        if isinstance(request, FetchRequest):
            return FetchResponse.decode(BytesIO(await answer_fetch(self._kafka, self.node, request)))
        return await self._kafka.answer(self.node, request)

    def _metadata(self, request: Any) -> Any:
        self._kafka.metadata_reads += 1
        topics: list[Any] = []
        every = dict.fromkeys(topic for topic, _ in self._kafka.partitions)
        for name in every if request.topics is None else [name for _, name, _ in request.topics]:
            found = {n: p for (topic, n), p in self._kafka.partitions.items() if topic == name}
            partitions: list[Any] = [
                (0, n, p.leader, p.epoch, [*range(p.replicas)], [], [], {}) for n, p in found.items()
            ]
            topic_id = next((p.topic_id for p in found.values()), bytes(16))
            errors = self._kafka.topic_errors[name]
            error = errors.popleft() if errors else 0 if found else UNKNOWN_TOPIC
            topics.append((error, name, topic_id, False, [] if error else partitions, 0, {}))
        named = () if self._kafka.unregistered else self._kafka.brokers
        brokers: list[Any] = [(node, HOST, node, None, {}) for node in named]
        body = MetadataResponse(0, brokers, "fake", self._kafka.controller, topics, {}).encode()
        return MetadataResponse.decode(BytesIO(body))

    def _offsets(self, request: Any) -> Any:
        answers = []
        for topic, asked in request._topics:
            rows = []
            for number, which in asked:
                partition = self._kafka.partitions.get((topic, number))
                error = error_of(partition, self.node)
                at = -1 if partition is None else partition.at(which)
                if partition is not None and which == -1 and request._isolation_level:
                    at = partition.end if partition.stable is None else partition.stable
                rows.append((number, error, -1, -1 if error else at))
            answers.append((topic, rows))
        return type("Answer", (), {"topics": answers})()
