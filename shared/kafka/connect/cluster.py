"""The brokers of a Kafka cluster: who leads which partition, and a bounded number of connections to each.

Everything of one process shares it. The metadata of all topics is read at once, when a topic is unknown, a
broker has refused to be the leader, or one has not answered. `Lane` says what must not wait for each other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Set
from typing import Any, Literal, Self
from zlib import crc32

from shared.errors import KafkaUnavailable
from shared.kafka.connect.access import Kafka, access_of, addresses_of
from shared.kafka.connect.channel import Channel, Connect
from shared.kafka.connect.refusals import refusal
from shared.kafka.connect.security import Gate
from shared.kafka.wire.metadata import Leader, Metadata, MetadataRequest, read_metadata
from shared.together import together

Lane = Literal["poll", "first", "load", "write", "write 2", "write 3", "write 4", "again", "ask"]
"""`poll`: the long poll for all that is read; `first`: first fetches, and those after a seek; `load`: ranges,
read once; `write`: records; this one and the further ones: transactions; `again`: records of partitions that
failed the last time; `ask`: metadata, offsets and all that is answered at once."""
WRITE_LANES: tuple[Lane, ...] = ("write", "write 2", "write 3", "write 4")
REQUEST_TIMEOUT_S = 10.0
_NO_RIGHT_TO_TOPIC = 29
NEXT_BROKER_S = 1.0
"""A question that any broker can answer goes to the next one after this time."""
MOVED = frozenset({3, 5, 6, 9, 56, 74, 75, 76, 78, 100, 103})
"""Error codes: the partition is led by another broker, or by the same in another epoch, or the topic was made
anew, or this broker has not heard of it yet. Reading the metadata again helps, perhaps only after a while."""


class Cluster:
    """One of the brokers in `kafka` must answer. Call `close` at the end, or use it as a block.

    `write_lanes`: how many connections to each broker the transactions have. With replicas an answer takes
    milliseconds, and the requests behind it wait; three connections commit about twice as fast as one.
    """

    def __init__(self, kafka: Kafka, connect: Connect | None = None, *, write_lanes: int = 3) -> None:
        access = access_of(kafka)
        self._bootstrap = addresses_of(access.bootstrap)
        self._connect = connect or Gate(access)
        self._write_lanes = WRITE_LANES[:write_lanes]
        self._channels: dict[tuple[int, Lane], Channel] = {}
        self._brokers: dict[int, tuple[str, int]] = {}
        self._controller = -1
        self.id: str | None = None
        """What the brokers call their cluster, once one has answered."""
        self._topics: dict[str, dict[int, Leader]] = {}
        self._denied: set[str] = set()
        self._silent: set[int] = set()
        """Brokers that have not answered their last question; they are asked last."""
        self._is_doubtful = False
        """Whether a broker has not answered a request: others may lead its partitions by now."""
        self._begun = self._ended = 0
        """Numbers of the newest reading of the metadata, and of the newest one that was not cancelled."""
        self._failure: KafkaUnavailable | None = None
        """Of the newest reading that has ended."""
        self._unread: set[str] = set()
        """Topics that the next reading is for."""
        self._lock = asyncio.Lock()

    def __repr__(self) -> str:
        return f"<Cluster of {len(self._brokers)} brokers, {len(self._topics)} topics>"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @property
    def sockets(self) -> int:
        """How many channels it has; each has one connection."""
        return len(self._channels)

    @property
    def nodes(self) -> list[int]:
        """The ids of all brokers, as last read."""
        return sorted(self._brokers)

    def leader(self, topic: str, partition: int) -> Leader | None:
        """The leader as last read; None if the topic is unknown or has no leader at present."""
        found = self._topics.get(topic, {}).get(partition)
        return found if found is not None and found.node in self._brokers else None

    def topic_id(self, topic: str) -> bytes | None:
        """Kafka's id of the topic, as last read; None while it is unknown. One made anew has another."""
        leader = self.leader(topic, 0)
        return None if leader is None else leader.topic_id

    def correct(self, topic: str, partition: int, node: int, epoch: int) -> bool:
        """Notes the leader that a broker has named; whether that is news about a known broker."""
        known = self._topics.get(topic, {}).get(partition)
        if known is None or epoch <= known.epoch or node not in self._brokers:
            return False
        self._topics[topic][partition] = Leader(known.topic_id, node, epoch)
        return True

    def knows(self, node: int) -> bool:
        """Whether the metadata names this broker."""
        return node in self._brokers

    def name_of(self, node: int) -> str:
        """A broker in the words of reasons and logs: `broker 1 at 127.0.0.1:9092`."""
        address = self._brokers.get(node)
        return f"broker {node}" if address is None else f"broker {node} at {address[0]}:{address[1]}"

    def denies(self, topic: str) -> bool:
        """Whether the principal lacks every right to the topic, as last read."""
        return topic in self._denied

    def has(self, topic: str) -> bool:
        """Whether the metadata, as last read, has the topic."""
        return topic in self._topics

    def doubt(self) -> None:
        """Makes the next `know` read the metadata: partitions may have other leaders."""
        self._is_doubtful = True

    async def know(self, topics: Iterable[str]) -> None:
        """Reads the metadata if one of the topics has not been read yet, or a broker has not answered since.

        Raises KafkaUnavailable; KafkaDenied if this principal has no right to one of them.
        """
        missing = set(topics) - self._topics.keys()
        if missing or self._is_doubtful:
            await self._read(missing, is_whole=self._is_doubtful)
        if denied := self._denied & missing:
            raise refusal(f"topic {min(denied)} cannot be used", _NO_RIGHT_TO_TOPIC)

    async def refresh(self, topics: Iterable[str] = ()) -> None:
        """Reads the metadata of all topics in use, and of these. Raises KafkaUnavailable."""
        await self._read(topics, is_whole=True)

    async def _read(self, topics: Iterable[str], *, is_whole: bool) -> None:
        """Reads the metadata of these topics, and (`is_whole`) of all others in use.

        Callers at the same time share one request, and its failure. New topics come one by one in large
        groups, and each would read all others again.
        """
        self._unread.update(topics, self._topics if is_whole else ())
        begun = self._begun
        async with self._lock:
            if self._ended <= begun:  # else another caller has begun and ended one since
                self._begun += 1
                self._failure = None
                try:
                    await self._read_metadata(set(self._unread))
                except KafkaUnavailable as error:
                    self._failure = error
                self._ended = self._begun
            if self._failure is not None:
                raise self._failure

    def write_lane(self, transactional_id: str) -> Lane:
        """The lane of this id's requests: always the same one, so that they keep their order."""
        return self._write_lanes[crc32(transactional_id.encode()) % len(self._write_lanes)]

    async def request(self, node: int, lane: Lane, request: Any, timeout_s: float = REQUEST_TIMEOUT_S) -> Any:
        """A broker's response to a request in that lane. Raises KafkaUnavailable."""
        try:
            return await self.channel(node, lane).request(request, timeout_s)
        except KafkaUnavailable:
            self._is_doubtful = True
            raise

    async def ask_any(self, request: Any) -> Any:
        """The answer of any broker. Raises KafkaUnavailable."""
        if not self._brokers:
            await self.refresh()
        if not self._brokers:  # it answers while its controller has fenced it
            raise KafkaUnavailable("the cluster has no broker")
        return await self._ask_any(request)

    async def ask_controller(self, request: Any, timeout_s: float = REQUEST_TIMEOUT_S) -> Any:
        """The controller's answer. Raises KafkaUnavailable, also while there is none."""
        if self._is_doubtful or not self.knows(self._controller):
            await self.refresh()
        if not self.knows(self._controller):
            raise KafkaUnavailable("the cluster has no controller")
        return await self.request(self._controller, "ask", request, timeout_s)

    def channel(self, node: int, lane: Lane) -> Channel:
        """The channel of that lane to a broker. Raises KafkaUnavailable if the broker is unknown."""
        address = self._brokers.get(node)
        if address is None:
            raise KafkaUnavailable(f"broker {node} is unknown")
        channel = self._channels.get((node, lane))
        if channel is None:
            channel = self._channels[node, lane] = Channel(*address, self._connect)
        return channel

    async def close(self) -> None:
        """Closes all connections; never raises."""
        channels = list(self._channels.values())
        self._channels.clear()
        self._brokers.clear()
        await together(channel.close() for channel in channels)

    async def _read_metadata(self, topics: Set[str]) -> None:
        metadata = read_metadata(await self._ask_any(MetadataRequest(sorted(topics))))
        await self._move_brokers(metadata)
        self._unread -= topics
        self._denied -= topics
        self._denied |= {topic for topic, code in metadata.missing.items() if code == _NO_RIGHT_TO_TOPIC}
        for topic in metadata.missing:  # deleted, or this broker has not heard of it yet
            self._topics.pop(topic, None)
        self._topics.update(metadata.topics)
        self._is_doubtful &= not topics >= self._topics.keys()

    async def _ask_any(self, request: Any) -> Any:
        """The answer of the first broker that gives one: the known ones, then those of `bootstrap`."""
        failure: KafkaUnavailable | None = None
        for node in sorted(self._brokers, key=lambda node: node in self._silent):
            try:
                answer = await self.request(node, "ask", request, NEXT_BROKER_S)
            except KafkaUnavailable as error:
                failure = error
                self._silent.add(node)
            else:
                self._silent.discard(node)
                return answer
        for host, port in self._bootstrap:
            channel = Channel(host, port, self._connect)
            try:
                return await channel.request(request, REQUEST_TIMEOUT_S)
            except KafkaUnavailable as error:
                failure = error
            finally:
                await channel.close()
        raise failure or KafkaUnavailable("no broker is known")

    async def _move_brokers(self, metadata: Metadata) -> None:
        """Takes over the brokers' addresses; closes the channels to those that have moved or left."""
        for (node, lane), channel in list(self._channels.items()):
            if metadata.brokers.get(node) != (channel.host, channel.port):
                del self._channels[node, lane]
                await channel.close()
        self._brokers, self._controller = metadata.brokers, metadata.controller
        self.id = metadata.cluster_id or self.id
