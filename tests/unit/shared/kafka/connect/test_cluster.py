"""A process asks any broker about the cluster, over few connections; a silent one must not hold it up."""

from __future__ import annotations

import asyncio
from typing import Any, get_args

import pytest

from shared.errors import KafkaDenied, KafkaUnavailable
from shared.kafka.admin.committed import KafkaGroup
from shared.kafka.connect.cluster import NEXT_BROKER_S, Cluster, Lane
from shared.kafka.read.fetcher import Fetcher
from shared.kafka.read.offsets import LATEST, list_offsets
from shared.kafka.read.ranges import read_range
from shared.kafka.send.sender import Sender
from shared.kafka.send.transactional import TransactionalWriter
from shared.kafka.wire.metadata import Leader, MetadataRequest
from shared.kafka.wire.produce import ProduceRequest
from shared.kafka.wire.transactions import InitProducerId
from tests.fakes.kafka import FakeConnection, FakeKafka
from tests.fakes.kafka_admin import AdministeredKafka
from tests.fakes.kafka_produce import ProducingKafka
from tests.fakes.virtual_time import virtual_time


@pytest.mark.parametrize("silent", [1, 2, 3])
@virtual_time
async def test_a_silent_broker_is_asked_last(silent: int) -> None:
    """It costs one question a moment; the next ones go to others first, until it is the last that is left."""
    kafka, loop = FakeKafka(3), asyncio.get_running_loop()
    kafka.create("a")
    async with Cluster("fake:1", kafka.connect) as cluster:
        await cluster.refresh({"a"})
        kafka.muted.add(silent)
        took_s = []
        for _ in range(4):
            began_s = loop.time()
            await cluster.refresh({"a"})
            took_s.append(loop.time() - began_s)
        kafka.muted = {1, 2, 3} - {silent}
        kafka.wake()
        await cluster.refresh({"a"})

    assert took_s[0] < NEXT_BROKER_S + 0.1
    assert max(took_s[1:]) < 0.1
    assert cluster.id == "fake"


@virtual_time
async def test_what_the_brokers_say_of_each_other_is_known_by_name() -> None:
    """Addresses for reasons and logs, topics by id, and the next address where nobody listens."""
    kafka = FakeKafka(2)
    kafka.create("a", leader=2)
    async with Cluster("fake:9,fake:1", kafka.connect) as cluster:
        await cluster.refresh({"a"})

        assert cluster.nodes == [1, 2]
        assert [cluster.name_of(node) for node in (2, 9)] == ["broker 2 at fake:2", "broker 9"]
        assert [cluster.knows(node) for node in (2, 9)] == [True, False]
        assert cluster.leader("a", 0) == Leader(kafka.partitions["a", 0].topic_id, 2, 0)
        assert cluster.topic_id("a") == kafka.partitions["a", 0].topic_id
        assert [cluster.leader("a", 1), cluster.leader("b", 0), cluster.topic_id("b")] == [None] * 3
        assert [cluster.has(topic) for topic in ("a", "b")] == [True, False]
        with pytest.raises(KafkaUnavailable, match="broker 9 is unknown"):
            cluster.channel(9, "ask")


@virtual_time
async def test_a_broker_that_has_left_keeps_no_connection_and_leads_nothing() -> None:
    """Those to the others stay open; closing ends them."""
    kafka = FakeKafka(2)
    kafka.create("a", leader=2)
    async with Cluster("fake:1", kafka.connect) as cluster:
        await cluster.refresh({"a"})
        for node in (1, 2):
            await cluster.request(node, "ask", MetadataRequest([]))
        kafka.brokers.remove(2)
        await cluster.refresh()

        assert [(cluster.sockets, cluster.nodes), cluster.leader("a", 0)] == [(1, [1]), None]
        assert {one.node for one in kafka.connections if one.connected()} == {1}
    assert not any(one.connected() for one in kafka.connections)


@virtual_time
async def test_a_topic_without_a_right_is_denied_until_there_is_one() -> None:
    """Nobody takes it for one that does not exist."""
    kafka = FakeKafka()
    kafka.create("a")
    async with Cluster("fake:1", kafka.connect) as cluster:
        kafka.topic_errors["a"].append(29)
        with pytest.raises(KafkaDenied, match="topic a cannot be used"):
            await cluster.know({"a", "none"})
        before = [cluster.denies(topic) for topic in ("a", "none")]
        await cluster.know({"a"})
        after = [cluster.denies(topic) for topic in ("a", "none")]

    assert (before, after) == ([True, False], [False, False])


@virtual_time
async def test_brokers_that_know_no_broker_cannot_be_asked() -> None:
    """A broker answers while its controller has fenced it."""
    kafka = FakeKafka()
    kafka.unregistered = True
    async with Cluster("fake:1", kafka.connect) as cluster:
        with pytest.raises(KafkaUnavailable, match="the cluster has no broker"):
            await cluster.ask_any(MetadataRequest([]))
        kafka.unregistered = False
        assert (await cluster.ask_any(MetadataRequest([]))).cluster_id == "fake"


@virtual_time
async def test_a_new_topic_does_not_read_all_others_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A member opens a thousand streams one by one; a doubt or a refresh is about all topics in use."""
    kafka, send = FakeKafka(), FakeConnection.send
    named: list[list[str]] = []

    async def noted(connection: FakeConnection, request: Any) -> Any:
        if isinstance(request, MetadataRequest):
            named.append([name for _, name, _ in request.topics])
        return await send(connection, request)

    monkeypatch.setattr(FakeConnection, "send", noted)
    names = [f"t{n}" for n in range(5)]
    for name in names:
        kafka.create(name)
    async with Cluster("fake:1", kafka.connect) as cluster:
        for name in names[:3]:
            await cluster.know([name])
        await asyncio.gather(*(cluster.know([name]) for name in names[3:]))
        one_by_one = list(named)
        cluster.doubt()
        await cluster.know([])
        await cluster.refresh()

        assert all(cluster.leader(name, 0) for name in names)
    assert one_by_one[:3] == [["t0"], ["t1"], ["t2"]]
    assert sorted(name for some in one_by_one for name in some) == names
    assert named[len(one_by_one) :] == [names, names]


@pytest.mark.parametrize("callers", [1, 2, 4])
@virtual_time
async def test_all_who_share_a_reading_of_the_metadata_see_its_failure(callers: int) -> None:
    """None of them may go on as if it knew its topic; afterwards each can ask again."""
    kafka = FakeKafka()
    kafka.create("a")
    async with Cluster("fake:1", kafka.connect) as cluster:
        await cluster.refresh({"a"})
        kafka.is_mute = True
        asking = [asyncio.create_task(cluster.know([f"t{n}"])) for n in range(callers)]
        failures = await asyncio.gather(*asking, return_exceptions=True)
        kafka.is_mute = False
        for n in range(callers):
            kafka.create(f"t{n}")
        await cluster.know([f"t{n}" for n in range(callers)])

        assert all(cluster.has(f"t{n}") for n in range(callers))
    assert [type(failure) for failure in failures] == [KafkaUnavailable] * callers


@virtual_time
async def test_a_cancelled_reading_of_the_metadata_is_made_again_for_the_others() -> None:
    """The caller that happened to make it may be cancelled at any time; the others learn what they asked."""
    kafka = FakeKafka()
    kafka.create("a")
    async with Cluster("fake:1", kafka.connect) as cluster:
        await cluster.refresh({"a"})
        kafka.create("a", leader=1).epoch = 7  # made anew
        kafka.is_mute = True
        first, second, third = (asyncio.create_task(cluster.refresh()) for _ in range(3))
        await asyncio.wait({first})
        await asyncio.sleep(0)  # the second reads, for the third as well
        second.cancel()
        kafka.is_mute = False
        await third

        leader = cluster.leader("a", 0)
    assert isinstance(first.exception(), KafkaUnavailable)
    assert second.cancelled()
    assert leader is not None
    assert leader.epoch == 7


@pytest.mark.parametrize(
    ("topic", "node", "epoch", "is_news"),
    [
        ("a", 2, 6, True),
        ("a", 1, 6, True),
        ("a", 2, 5, False),
        ("a", 2, 4, False),
        ("a", 3, 6, False),
        ("a", 3, 5, False),
        ("b", 2, 6, False),
    ],
)
@virtual_time
async def test_a_leader_that_a_broker_names_is_news_if_it_is_later_and_known(
    topic: str, node: int, epoch: int, is_news: bool
) -> None:
    """An older answer must not lead readers back, and a broker without an address cannot be asked."""
    kafka = FakeKafka(2)
    kafka.create("a").epoch = 5
    async with Cluster("fake:1", kafka.connect) as cluster:
        await cluster.refresh({"a"})
        before = cluster.leader("a", 0)

        assert cluster.correct(topic, 0, node, epoch) == is_news
        found = cluster.leader("a", 0)
        assert found is not None
        assert (found == before) != is_news
        assert not is_news or (found.node, found.epoch) == (node, epoch)


class EveryKafka(ProducingKafka, AdministeredKafka):
    """Brokers that answer whatever a process of Baton asks."""

    async def answer(self, node: int, request: Any) -> Any:
        is_of_sender = isinstance(request, ProduceRequest) or (
            isinstance(request, InitProducerId) and request.transactional_id is None
        )
        return await (ProducingKafka if is_of_sender else AdministeredKafka).answer(self, node, request)


@virtual_time
async def test_a_process_has_at_most_eight_connections_to_a_broker() -> None:
    """With all that it does at the same time: many streams, transactions, sick partitions, questions."""
    kafka, most = EveryKafka(), 0
    for n in range(24):
        kafka.create(f"t{n}").append(b"0", b"1")
    kafka.create("sick").refusals.extend([7] * 3)

    async def transact(cluster: Cluster, n: int) -> None:
        writer = TransactionalWriter(cluster, f"w{n}", timeout_ms=12_000)
        await writer.open()
        await writer.add([(f"t{n}", 0)])
        await writer.end(is_commit=True)

    async with Cluster("fake:1", kafka.connect) as cluster:
        fetcher = Fetcher(cluster)
        sender = Sender(cluster, deliver_s=4.0, max_batch_bytes=1_000)
        readings = [fetcher.read(f"t{n}", 0, 0) for n in range(24)]

        async def count() -> None:
            nonlocal most
            while True:
                most = max(most, sum(connection.connected() for connection in kafka.connections))
                await asyncio.sleep(0.001)

        counting = asyncio.create_task(count())
        async with asyncio.timeout(60):
            await asyncio.gather(
                *(transact(cluster, n) for n in range(24)),
                *(sender.send((topic, 0), [(None, b"v", [])]) for topic in ("sick", "t0", "t1")),
                *(one.take(1.0, 10) for one in readings),
                *(KafkaGroup(cluster, f"g{n}").committed([("t0", 0)]) for n in range(24)),
                list_offsets(cluster, [(f"t{n}", 0) for n in range(24)], LATEST),
                anext(read_range(cluster, ("t1", 0), 0, 1, is_committed=False)),
            )
        counting.cancel()
        await sender.close()
        await fetcher.close()

    assert len(get_args(Lane)) - 1 == 8  # the fourth lane for transactions is a parameter of the bench
    assert most == 8
