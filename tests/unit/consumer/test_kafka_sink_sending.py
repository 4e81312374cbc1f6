"""What a member sends: sessions of the weaker deliveries, and ticks. And what a commit that fails says."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

from services.consumer.adapters.kafka.clients import DELIVER_S, SharedClients
from services.consumer.adapters.kafka.sink import TICK_TIMEOUT_S, KafkaSessionSink
from services.consumer.core.commits.commit import Commit
from shared.errors import KafkaUnavailable
from shared.kafka.connect.cluster import Cluster
from shared.kafka.send.sender import Sender
from shared.kafka.wire.produce import ProduceRequest
from shared.kafka.wire.transactions import (
    AddOffsets,
    AddPartitions,
    CommitOffset,
    EndTransaction,
    InitProducerId,
)
from shared.model.group import Delivery, GroupSettings
from shared.model.head import Head
from shared.model.names import Names
from tests.fakes.kafka_produce import ProducingKafka
from tests.fakes.kafka_transactions import TransactionalKafka
from tests.fakes.virtual_time import until, virtual_time

NAMES, GROUP = Names(), "default"
SESSIONS, CHECKPOINTS = NAMES.sessions(GROUP), NAMES.checkpoints(GROUP)
STREAMS = 3


class Brokers(ProducingKafka, TransactionalKafka):
    """Brokers that take records in transactions and without. They never answer `mute_about`."""

    mute_about: type | None = None

    async def answer(self, node: int, request: Any) -> Any:
        if type(request) is self.mute_about:
            await asyncio.Event().wait()
        is_plain = isinstance(request, InitProducerId) and request.transactional_id is None
        if is_plain or (isinstance(request, ProduceRequest) and request.transactional_id is None):
            return await ProducingKafka.answer(self, node, request)
        return await TransactionalKafka.answer(self, node, request)


class World:
    """The sinks of three streams of a member; `committed` has the heads' positions by stream."""

    def __init__(self, brokers: Brokers, shared: SharedClients, delivery: Delivery) -> None:
        self.brokers, self.shared = brokers, shared
        settings = GroupSettings(delivery=delivery)
        self.sinks = [KafkaSessionSink(shared, stream, settings, STREAMS) for stream in range(STREAMS)]

    async def commit(self, stream: int, *sessions: bytes) -> None:
        """Commits the head with these sessions."""
        head = Head(epoch=1, seq=1, position=1, safe_offset=1)
        await self.sinks[stream].commit(
            Commit(head=head, sessions=[(b"k", session) for session in sessions], records=[b"checkpoint"])
        )

    @property
    def committed(self) -> set[int]:
        """The streams whose heads are committed."""
        topics = {topic for _, (topic, _) in self.brokers.committed}
        return {stream for stream in range(STREAMS) if NAMES.fragments(stream) in topics}

    def sessions(self, stream: int) -> list[bytes]:
        """What is in the stream's partition."""
        return ProducingKafka.values(self.brokers, SESSIONS, stream)


@contextlib.asynccontextmanager
async def member(delivery: Delivery = "exactly_once") -> AsyncIterator[World]:
    brokers = Brokers()
    for stream in range(STREAMS):
        brokers.create(NAMES.fragments(stream))
        brokers.create(SESSIONS, stream)
        brokers.create(CHECKPOINTS, stream)
    shared = SharedClients("fake:1", NAMES, GROUP)
    shared.cluster = Cluster("fake:1", brokers.connect)
    shared.sender = Sender(shared.cluster, deliver_s=DELIVER_S, max_batch_bytes=1_000)
    try:
        world = World(brokers, shared, delivery)
        for sink in world.sinks:
            await sink.open()
        yield world
    finally:
        await shared.close()


@pytest.mark.parametrize("delivery", ["at_least_once", "at_most_once"])
@virtual_time
async def test_the_weaker_deliveries_store_sessions_beside_the_head(delivery: Delivery) -> None:
    """In order, in any number of batches."""
    async with member(delivery) as world:
        sessions = [b"%03d" % n + b"x" * 100 for n in range(50)]
        await world.commit(0, *sessions)
        await world.commit(1)

        assert world.sessions(0) == sessions
        assert world.committed == {0, 1}


@pytest.mark.parametrize(
    ("delivery", "fault", "committed", "stored"),
    [
        ("at_least_once", "sessions", False, False),
        ("at_least_once", "head", False, True),
        ("at_most_once", "sessions", True, False),
        ("at_most_once", "head", False, False),
    ],
)
@virtual_time
async def test_a_failure_leaves_what_the_delivery_promises(
    delivery: Delivery, fault: str, committed: bool, stored: bool
) -> None:
    """`at_least_once`: no head without its sessions. `at_most_once`: no session without its head."""
    async with member(delivery) as world:
        if fault == "sessions":
            world.brokers.partitions[SESSIONS, 0].refusals.append(10)
        else:
            world.brokers.refuse(EndTransaction, 48)
        with pytest.raises(KafkaUnavailable):
            await world.commit(0, b"1")
        await asyncio.sleep(2 * DELIVER_S)

        assert world.committed == ({0} if committed else set())
        assert world.sessions(0) == ([b"1"] if stored else [])


@pytest.mark.parametrize("kind", [AddPartitions, ProduceRequest, AddOffsets, CommitOffset, EndTransaction])
@virtual_time
async def test_a_commit_that_takes_too_long_names_what_it_waits_for(kind: type) -> None:
    """The request, its broker, and for how long: `GET /streams` shows this of a stream that retries."""
    async with member() as world:
        world.brokers.mute_about = kind
        with pytest.raises(KafkaUnavailable) as silent:
            await world.commit(0, b"1")
        world.brokers.mute_about = None
        await world.sinks[1].open()
        code, name = (7, "RequestTimedOutError") if kind is ProduceRequest else (51, "ConcurrentTransactions")
        world.brokers.refuse(kind, *[code] * 1_000)
        with pytest.raises(KafkaUnavailable) as busy:
            await world.commit(1, b"1")

    request = f"{kind.__name__} to broker 1 at fake:1"
    unknown = "<KafkaSessionSink default/{}>, outcome of a commit unknown: Kafka took longer than 10 s: "
    assert silent.value.detail == unknown.format(0) + f"no answer to {request}"
    assert busy.value.detail == unknown.format(1) + f"the answer to {request} is {name}"


@virtual_time
async def test_a_failing_stream_leaves_the_shared_sender_to_the_others() -> None:
    """Their sessions are stored, whatever becomes of one stream's."""
    async with member("at_most_once") as world:
        world.brokers.partitions[SESSIONS, 0].refusals += [10, -1, 10]
        outcomes = await asyncio.gather(
            *(world.commit(stream, b"%d" % stream) for stream in range(STREAMS)), return_exceptions=True
        )

        assert [outcome is None for outcome in outcomes] == [False, True, True]
        assert [world.sessions(stream) for stream in range(STREAMS)] == [[], [b"1"], [b"2"]]


@virtual_time
async def test_a_cancelled_send_leaves_the_shared_sender_to_the_others() -> None:
    """Under `at_most_once` the heads are committed first, so what the others send by it would be lost."""
    async with member("at_most_once") as world:
        world.brokers.delay_s = 0.1
        commits = [asyncio.create_task(world.commit(stream, b"%d" % stream)) for stream in range(STREAMS)]
        await until(lambda: world.brokers.in_flight > 0 and world.committed == {0, 1, 2})
        commits[1].cancel()
        await asyncio.wait(commits)

        assert commits[1].cancelled()
        assert [world.sessions(stream) for stream in (0, 2)] == [[b"0"], [b"2"]]
        await world.commit(1, b"after")
        assert world.sessions(1)[-1] == b"after"


@virtual_time
async def test_a_tick_that_cannot_be_written_is_logged_and_no_more(caplog: pytest.LogCaptureFixture) -> None:
    """It is only a proposal; the stream goes on, and commits of others are not concerned."""
    async with member() as world:
        await world.sinks[0].tick()
        world.brokers.partitions[NAMES.fragments(0), 0].refusals += [19] * 100
        began_s = asyncio.get_running_loop().time()
        await world.sinks[0].tick()
        took_s = asyncio.get_running_loop().time() - began_s
        await world.commit(1, b"1")

        assert took_s <= TICK_TIMEOUT_S
        assert [record.message for record in caplog.records] == ["tick not written"]
        assert len(ProducingKafka.values(world.brokers, NAMES.fragments(0))) == 1
