"""The sink's contract, on a real broker and in memory; and how the real one survives a failing broker."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable

import pytest
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType

from services.producer.core.ingest import Portion
from services.producer.kafka.sink import KafkaFragmentSink
from services.producer.ports import FragmentSink
from shared.errors import KafkaUnavailable
from shared.kafka.admin.topics import ensure_topics, fragments_topics
from shared.kafka.connect.cluster import Cluster
from shared.model.names import Names
from tests.fakes.sink import InMemoryFragmentSink, Record, sent
from tests.servers import KafkaServer
from tests.topics import admin_client, records_of
from tests.waiting import running, until

STREAMS = 4


@contextlib.asynccontextmanager
async def kafka_sink(
    kafka: str,
    namespace: str,
    *,
    ack_timeout_s: float = 10.0,
    max_batch_bytes: int = 512 * 1024,
) -> AsyncIterator[KafkaFragmentSink]:
    """A running sink whose topics exist."""
    names = Names(namespace)
    await ensure_topics(kafka, fragments_topics(names, STREAMS, 3_600_000), 1)
    async with Cluster(kafka) as cluster:
        sink = KafkaFragmentSink(cluster, ack_timeout_s=ack_timeout_s, max_batch_bytes=max_batch_bytes)
        async with running(sink.run()):
            sink.set_topics([names.fragments(stream) for stream in range(STREAMS)])
            await until(lambda: not sink.complaint())
            yield sink


async def read_all(kafka: str, namespace: str) -> list[list[Record]]:
    """All records of the streams' topics, in offset order."""
    topics = [Names(namespace).fragments(stream) for stream in range(STREAMS)]
    return [[(record.key, record.value) for record in await records_of(kafka, topic)] for topic in topics]


def portion(*names: bytes, first: int = 0) -> Portion:
    return Portion(list(range(first, first + len(names))), [b"k-" + name for name in names], list(names))


@pytest.fixture(params=["kafka", "memory"])
async def either(
    request: pytest.FixtureRequest, namespace: str
) -> AsyncIterator[tuple[FragmentSink, Callable[[], object]]]:
    """The real sink and its twin, each with a function that reads what it stored."""
    if request.param == "memory":
        memory = InMemoryFragmentSink(STREAMS)
        yield memory, lambda: memory.logs
        return
    kafka: str = request.getfixturevalue("kafka")
    async with kafka_sink(kafka, namespace) as sink:
        yield sink, lambda: read_all(kafka, namespace)


async def kept(read: Callable[[], object]) -> object:
    found = read()
    return await found if asyncio.iscoroutine(found) else found


async def test_records_are_kept_per_stream_in_order(
    either: tuple[FragmentSink, Callable[[], object]],
) -> None:
    """Contract: keys and values are unchanged, streams keep the order of the sends, markers have no key."""
    sink, read = either

    first = await sent(sink, {0: portion(b"a", b"b"), 2: portion(b"c", first=2)})
    offsets = await sink.send_to_all(b'{"time":1}')
    second = await sent(sink, {2: portion(b"d")})

    assert (first, second) == ([], [])
    assert offsets == [2, 0, 1, 0]
    marker = (None, b'{"time":1}')
    assert await kept(read) == [
        [(b"k-a", b"a"), (b"k-b", b"b"), marker],
        [marker],
        [(b"k-c", b"c"), marker, (b"k-d", b"d")],
        [marker],
    ]


async def test_many_requests_at_once_keep_their_order(
    either: tuple[FragmentSink, Callable[[], object]],
) -> None:
    """Contract: within a stream a later send has higher offsets, however many sends are in flight."""
    sink, read = either
    requests = [[b"%d.%d" % (number, item) for item in range(20)] for number in range(50)]

    answers = await asyncio.gather(*(sent(sink, {1: portion(*request)}) for request in requests))

    assert answers == [[]] * 50
    logs = await kept(read)
    assert isinstance(logs, list)
    assert [value for _, value in logs[1]] == [value for request in requests for value in request]


async def test_requests_larger_than_a_batch_are_kept_whole(kafka: str, namespace: str) -> None:
    """A request's records may span several batches to one stream."""
    values = [b"%06d" % number + b"x" * 1_000 for number in range(200)]

    async with kafka_sink(kafka, namespace, max_batch_bytes=16 * 1024) as sink:
        assert await sent(sink, {3: portion(*values)}) == []

    assert [value for _, value in (await read_all(kafka, namespace))[3]] == values


async def test_without_a_broker_the_sink_rejects_at_once() -> None:
    """And its complaint says why."""
    async with Cluster("127.0.0.1:1") as cluster:
        sink = KafkaFragmentSink(cluster, ack_timeout_s=1.0)
        async with running(sink.run()):
            sink.set_topics(["t"])
            await until(lambda: "does not answer" in sink.complaint())

            with pytest.raises(KafkaUnavailable):
                await sent(sink, {0: portion(b"a")})
            with pytest.raises(KafkaUnavailable):
                await sink.send_to_all(b"{}")


async def test_the_sink_survives_a_stalled_broker(kafka_server: KafkaServer, namespace: str) -> None:
    """While Kafka is silent, sends fail, and soon at once; afterwards the same sink works."""
    async with kafka_sink(kafka_server.address, namespace, ack_timeout_s=1.0) as sink:
        assert await sent(sink, {0: portion(b"before")}) == []
        kafka_server.pause()

        waited = await asyncio.gather(*(attempt(sink, b"%d" % number) for number in range(100)))
        complaint = sink.complaint()
        at_once = await attempt(sink, b"at once")
        kafka_server.resume()
        await until(lambda: not sink.complaint())
        assert await sent(sink, {0: portion(b"after")}) == []

    stored = [value for _, value in (await read_all(kafka_server.address, namespace))[0]]
    assert waited == ["refused"] * 100
    assert "has not acknowledged for 1 s" in complaint
    assert at_once == "refused"
    assert (stored[0], stored[-1]) == (b"before", b"after")
    assert b"at once" not in stored


async def test_the_sink_survives_a_restart_of_the_broker(kafka_server: KafkaServer, namespace: str) -> None:
    """The same sink uses the broker again; acknowledged records are still there."""
    async with kafka_sink(kafka_server.address, namespace, ack_timeout_s=2.0) as sink:
        assert await sent(sink, {0: portion(b"before")}) == []
        await asyncio.to_thread(kafka_server.kill)
        refused = await attempt(sink, b"while away")
        await asyncio.to_thread(kafka_server.start)

        await until_kept(sink)

    stored = [value for _, value in (await read_all(kafka_server.address, namespace))[0]]
    assert refused == "refused"
    assert (stored[0], stored[-1]) == (b"before", b"after")


@pytest.mark.parametrize("how", ["mute", "gone"])
async def test_an_outage_is_noticed_without_traffic(
    how: str, kafka_server: KafkaServer, namespace: str
) -> None:
    """The sink probes Kafka by itself, and notices its return too."""
    async with kafka_sink(kafka_server.address, namespace, ack_timeout_s=60) as sink:
        await asyncio.to_thread(kafka_server.pause if how == "mute" else kafka_server.kill)
        await until(lambda: "does not answer" in sink.complaint())

        await asyncio.to_thread(kafka_server.resume if how == "mute" else kafka_server.start)
        await until(lambda: not sink.complaint())

        assert await sent(sink, {0: portion(b"after")}) == []


@pytest.mark.parametrize("fault", ["its topic is gone", "its topic rejects"])
async def test_a_failing_stream_does_not_affect_the_others(fault: str, kafka: str, namespace: str) -> None:
    """Its fragments are rejected at once, by index; other streams store theirs; a recovery is noticed."""
    topic = Names(namespace).fragments(1)
    async with (
        kafka_sink(kafka, namespace, ack_timeout_s=1.0) as sink,
        admin_client(kafka) as admin,
    ):
        assert await attempt(sink, b"before") == "kept"

        if fault == "its topic is gone":
            await admin.delete_topics([topic])
        else:
            await limit_batches(admin, topic, "1")  # no probe may pass, however late it comes
        first = await until(lambda: failed(sink, b"first" * 100))  # the broker may hear of it a little later
        await until(lambda: bool(sink.remarks()) and not sink.complaint())
        meanwhile = [await attempt(sink, b"meanwhile") for _ in range(100)]
        remarks = sink.remarks()
        with pytest.raises(KafkaUnavailable):
            await sink.send_to_all(b"meanwhile")
        if fault == "its topic is gone":
            specs = fragments_topics(Names(namespace), STREAMS, 3_600_000)
            # a broker may still be deleting the old topic
            await until(lambda: ensure_topics(kafka, [specs[1]], 1))
        else:
            await limit_batches(admin, topic, "1000000")
        await until_kept(sink)

        assert not sink.remarks()
        assert len(await sink.send_to_all(b"a marker")) == STREAMS
        assert await attempt(sink, b"last") == "kept"

    logs = await read_all(kafka, namespace)
    assert first in ("refused", "all but [1]")
    assert meanwhile == ["all but [1]"] * 100
    assert [text.partition(":")[0] for text in remarks] == ["stream 1"]
    assert [value for _, value in logs[0]].count(b"meanwhile") == 100
    assert b"meanwhile" not in [value for _, value in logs[1]]
    assert logs[0][-1] == logs[1][-1] == (b"k-last", b"last")


async def failed(sink: KafkaFragmentSink, value: bytes) -> str:
    """The outcome of an attempt that failed; "" if it did not."""
    outcome = await attempt(sink, value)
    return "" if outcome == "kept" else outcome


async def until_kept(sink: KafkaFragmentSink) -> None:
    """Sends `after` until it is kept."""

    async def is_kept() -> bool:
        return await attempt(sink, b"after") == "kept"

    await until(is_kept, sink.remarks)


async def limit_batches(admin: AIOKafkaAdminClient, topic: str, size: str) -> None:
    """Limits the batches of the topic from now on."""
    resource = ConfigResource(ConfigResourceType.TOPIC, topic, {"max.message.bytes": size})
    await admin.alter_configs([resource])


async def attempt(sink: KafkaFragmentSink, value: bytes) -> str:
    try:
        async with asyncio.timeout(20):
            unstored = await sent(sink, {0: portion(value), 1: portion(value, first=1)})
    except KafkaUnavailable:
        return "refused"
    return f"all but {unstored}" if unstored else "kept"
