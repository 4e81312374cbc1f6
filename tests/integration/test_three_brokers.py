"""Streams, transactions and lost logs on three brokers that stop, die and come back."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

import pytest
from aiokafka import AIOKafkaProducer

from services.consumer.adapters.kafka.log import KafkaStreamLog
from services.consumer.core.commits.turn import StreamLimits
from services.consumer.stream.context import Claimed, GroupContext
from services.consumer.stream.worker import StreamWorker
from shared.errors import KafkaUnavailable
from shared.kafka.admin.committed import KafkaGroup
from shared.kafka.connect.cluster import Cluster
from shared.kafka.send.transactional import GroupOffset, ProducerFenced, TransactionalWriter
from shared.kafka.wire.fetch import FetchRequest, Place, Wish
from shared.model.group import GroupSettings
from shared.model.names import Names
from tests.kafka_cluster import KafkaCluster, kafka_cluster
from tests.topics import records_of
from tests.waiting import running, until

WITHIN_S = 30.0
STREAMS = 4
ALONE = 3
"""The stream whose log has one replica, on node 2."""
GROUP = "g"


@pytest.fixture(scope="module")
def _brokers() -> Iterator[KafkaCluster]:
    with kafka_cluster() as cluster:
        yield cluster


@pytest.fixture
def brokers(_brokers: KafkaCluster) -> Iterator[KafkaCluster]:
    """Three brokers; what a test stops or kills is started again afterwards."""
    yield _brokers
    _brokers.start()


@contextlib.asynccontextmanager
async def working(log: KafkaStreamLog, streams: int) -> AsyncIterator[list[StreamWorker]]:
    """The workers of all streams, stopped at the end of the block."""

    async def is_mine() -> bool:
        return True

    context = GroupContext(
        group="default",
        settings=GroupSettings(),
        limits=StreamLimits(commit_s=0.2),
        log=log,
        now_s=asyncio.get_running_loop().time,
        wall_ms=lambda: int(time.time() * 1000),
    )
    claimed = Claimed(is_mine=is_mine, lease_alive=lambda: True, commit_s=0.2)
    workers = [StreamWorker(n, 1, context, claimed) for n in range(streams)]
    async with asyncio.TaskGroup() as tasks:
        for worker in workers:
            tasks.create_task(worker.run())
        try:
            yield workers
        finally:
            for worker in workers:
                worker.stop()


async def feed(kafka: str, topic: str, pause_s: float) -> None:
    """Appends sessions of one fragment each, with the keys 0, 1, …, whatever the brokers do."""
    # a batch may wait as long as its leader is away
    async with AIOKafkaProducer(
        bootstrap_servers=kafka, enable_idempotence=True, request_timeout_ms=120_000, retry_backoff_ms=50
    ) as producer:
        for n in itertools.count():
            value = b'{"key":"%d","end":true}' % n
            await producer.send(topic, value, key=b"%d" % n, partition=0)
            await asyncio.sleep(pause_s)


def committed(worker: StreamWorker) -> int:
    """The position of the last commit."""
    return worker.core.head.position if worker.core is not None else 0


async def until_commits(workers: list[StreamWorker], more: int = 30) -> None:
    """Returns when each of the workers has committed so many more records."""
    goals = [committed(worker) + more for worker in workers]
    await until(
        lambda: all(committed(one) >= goal for one, goal in zip(workers, goals, strict=True)),
        lambda: [(one, committed(one), one.retries.status) for one in workers],
        WITHIN_S,
    )


async def test_streams_are_read_and_delivered_exactly_once_while_brokers_come_and_go(
    brokers: KafkaCluster, namespace: str
) -> None:
    """Leaders move in order, and after a kill; a log that is away with its only broker holds up no other."""
    names = Names(namespace)
    replicas = {names.fragments(n): [[2, 3, 1]] for n in range(STREAMS)} | {names.fragments(ALONE): [[2]]}
    await brokers.create(
        replicas
        | {
            names.sessions("default"): [[2, 3, 1], [3, 1, 2]] * 2,
            names.checkpoints("default"): [[3, 2, 1], [2, 1, 3]] * 2,
        },
        {"message.timestamp.type": "LogAppendTime", "min.insync.replicas": "1"},
    )
    log = KafkaStreamLog(brokers.address, names, "default", GroupSettings(), STREAMS)
    async with working(log, STREAMS) as workers, contextlib.AsyncExitStack() as feeding:
        for n in range(STREAMS):
            await feeding.enter_async_context(running(feed(brokers.address, names.fragments(n), 0.02)))
        await until_commits(workers)
        epochs = [leader_epoch(log, names, n) for n in range(STREAMS)]
        session = fetch_session(log, 2)
        for number, leave in ((2, brokers.nodes[2].stop), (3, brokers.nodes[3].kill)):
            await asyncio.to_thread(leave)
            await until_commits(workers[:ALONE] if number == 2 else workers)
            await asyncio.to_thread(brokers.start)
            await until_commits(workers)
        await feeding.aclose()
        written = [await keys(brokers, names.fragments(n)) for n in range(STREAMS)]
        await until_commits(workers, 0)
        await until(
            lambda: [committed(one) for one in workers] == [len(one) for one in written],
            lambda: workers,
            WITHIN_S,
        )
        grown = [leader_epoch(log, names, n) - epoch for n, epoch in enumerate(epochs)]
        next_session = fetch_session(log, 2)
    delivered = [
        await keys(brokers, names.sessions("default"), n, at_least=len(found))
        for n, found in enumerate(written)
    ]
    await log.close()

    assert delivered == written
    assert min(map(len, delivered)) > 100
    assert min(grown[:ALONE]) >= 2
    assert 0 not in (session, next_session)
    assert session != next_session


def leader_epoch(log: KafkaStreamLog, names: Names, stream: int) -> int:
    """Grows with each leader of the stream's log."""
    leader = log._shared.cluster.leader(names.fragments(stream), 0)
    return leader.epoch if leader is not None else -1


def fetch_session(log: KafkaStreamLog, node: int) -> int:
    """The id of the session of the long poll to a broker; 0 for none."""
    _, poll = log._shared.fetcher._lanes[node]
    return poll._session.id


async def keys(brokers: KafkaCluster, topic: str, partition: int = 0, *, at_least: int = 0) -> list[bytes]:
    """The keys of a partition's committed records, in order, once there are at least that many."""
    records = await records_of(brokers.address, topic, partition, at_least=at_least)
    return [record.key for record in records]


async def opened(cluster: Cluster, name: str) -> TransactionalWriter:
    """A writer that has fenced the ones before, as soon as the brokers allow it."""
    writer = TransactionalWriter(cluster, name, timeout_ms=12_000)
    await retried(writer.open)
    return writer


async def retried(work: Callable[[], Awaitable[None]]) -> None:
    """Repeats what Kafka does not answer."""
    async with asyncio.timeout(WITHIN_S):
        while True:
            try:
                return await work()
            except KafkaUnavailable:
                await asyncio.sleep(0.05)


async def test_a_transaction_is_whole_or_nothing_when_its_coordinator_dies(
    brokers: KafkaCluster, namespace: str
) -> None:
    """A fenced writer stays fenced by the next coordinator; an end without an answer succeeded or did not."""
    fenced, unknown = f"{namespace}.fenced", f"{namespace}.unknown"
    await brokers.create({fenced: [[1, 2, 3]], unknown: [[1, 3, 2]]})
    cluster = Cluster(brokers.address)
    ids = [f"{namespace}.{n}" for n in range(40)]
    writers = [await opened(cluster, name) for name in ids]
    node = next(writer._coordinator for writer in writers if writer._coordinator != 1)
    old, ending, *_ = (writer for writer in writers if writer._coordinator == node)
    await old.add([(fenced, 0)])
    await old.write((fenced, 0), [(b"old", b"", [])])
    new = await opened(cluster, old._id)
    await ending.add([(unknown, 0)])
    await ending.write((unknown, 0), [(b"1", b"", [])])
    await ending.commit_offset(GroupOffset(group=GROUP, partition=(unknown, 0), offset=1, metadata=""))
    end = asyncio.create_task(ending.end(is_commit=True))
    await asyncio.sleep(0)
    await asyncio.to_thread(brokers.nodes[node].kill)
    with contextlib.suppress(KafkaUnavailable):
        await end

    with pytest.raises(ProducerFenced):
        await retried(lambda: old.end(is_commit=True))
    new = await opened(cluster, new._id)
    await new.add([(fenced, 0)])
    await new.write((fenced, 0), [(b"new", b"", [])])
    await new.end(is_commit=True)
    await opened(cluster, ending._id)
    found = await KafkaGroup(cluster, GROUP).committed([(unknown, 0)])
    has_succeeded = found[unknown, 0].offset == 1

    assert await keys(brokers, fenced) == [b"new"]
    assert await keys(brokers, unknown) == [b"1"] * has_succeeded
    await cluster.close()


async def test_a_log_that_lost_its_end_to_an_unclean_leader_stops_its_stream(
    brokers: KafkaCluster, namespace: str
) -> None:
    """The new leader says where the logs diverge, and the worker sees that what it has read is gone."""
    names = Names(namespace)
    topic = names.fragments(0)
    await brokers.create(
        {topic: [[2, 3]]},
        {"message.timestamp.type": "LogAppendTime", "unclean.leader.election.enable": "true"},
    )
    await brokers.create({names.sessions("default"): [[1, 2, 3]], names.checkpoints("default"): [[1, 2, 3]]})
    log = KafkaStreamLog(brokers.address, names, "default", GroupSettings(), 1)
    cluster = Cluster(brokers.address)
    async with working(log, 1) as (worker,):
        await append(brokers, topic, 10)
        await asyncio.to_thread(brokers.nodes[3].kill)
        await append(brokers, topic, 10)
        await until(lambda: committed(worker) == 20, within_s=WITHIN_S)
        await cluster.know([topic])
        before = cluster.leader(topic, 0)
        await asyncio.to_thread(brokers.nodes[2].kill)
        await asyncio.to_thread(brokers.nodes[3].start)
        await append(brokers, topic, 15)
        await until(worker.rewound.is_set, lambda: (worker, worker.position, worker.retries.status), WITHIN_S)
        why = worker.retries.why
    await cluster.refresh([topic])
    after = cluster.leader(topic, 0)
    assert before is not None
    assert after is not None
    wish = Wish(20, after.epoch, before.epoch, 1_000_000)
    request = FetchRequest({Place(after.topic_id, 0): wish}, 100, 1_000_000)
    (fetched,) = (await cluster.request(after.node, "load", request)).partitions
    await cluster.close()
    await log.close()

    assert (before.node, after.node) == (2, 3)
    assert fetched.diverges_at == 10
    # whether the new log has grown past the position when the worker looks
    assert why.startswith(("the record at 19 was appended at", "the log ends below position 20"))


async def append(brokers: KafkaCluster, topic: str, count: int) -> None:
    """Appends records; returns when all replicas in step have them."""
    async with AIOKafkaProducer(
        bootstrap_servers=brokers.address, acks="all", retry_backoff_ms=50
    ) as producer:
        for n in range(count):
            await producer.send_and_wait(topic, b'{"key":"%d","end":true}' % n, key=b"%d" % n, partition=0)
