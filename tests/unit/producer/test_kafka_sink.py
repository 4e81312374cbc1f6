"""The producer's sink on brokers in memory: what fails, fails alone, and nobody waits longer than told."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from services.producer.core.ingest import Portion
from services.producer.kafka.sink import KafkaFragmentSink
from shared.errors import KafkaUnavailable
from shared.kafka.connect.cluster import Cluster
from tests.fakes.kafka_produce import ProducingKafka
from tests.fakes.sink import sent
from tests.fakes.virtual_time import until, virtual_time

ACK_TIMEOUT_S = 10.0
NOTICED_S = 5.0
STREAMS = 3


def topic(stream: int) -> str:
    return f"fragments.{stream:04}"


class World:
    """Brokers with the topics of three streams, and a running sink."""

    def __init__(self, sink: KafkaFragmentSink, broker: ProducingKafka) -> None:
        self.sink, self.broker = sink, broker
        self.lost = 0

    async def send(self, *streams: int, value: bytes = b"v") -> tuple[str, float]:
        """The outcome of a request with one fragment for each stream, and how long it took."""
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        try:
            portions = {stream: Portion([at], [b"k"], [value]) for at, stream in enumerate(streams)}
            unstored = await sent(self.sink, portions)
        except KafkaUnavailable as error:
            return error.reason, loop.time() - began_s
        return f"all but {unstored}" if unstored else "stored", loop.time() - began_s

    def stored(self, stream: int) -> list[bytes]:
        return self.broker.values(topic(stream))


@contextlib.asynccontextmanager
async def working(brokers: int = 1) -> AsyncIterator[World]:
    broker = ProducingKafka(brokers)
    for stream in range(STREAMS):
        broker.create(topic(stream))
    async with Cluster("fake:1", broker.connect) as cluster:

        def count() -> None:
            world.lost += 1

        sink = KafkaFragmentSink(cluster, ack_timeout_s=ACK_TIMEOUT_S, on_lost=count)
        world = World(sink, broker)
        running = asyncio.create_task(sink.run())
        sink.set_topics([topic(stream) for stream in range(STREAMS)])
        await until(lambda: not sink.complaint())
        yield world
        running.cancel()
        await asyncio.wait({running})


@virtual_time
async def test_records_and_markers_are_stored_in_order() -> None:
    """Markers have no key; their offsets are reported by stream."""
    async with working() as world:
        assert (await world.send(0, 2, value=b"1"))[0] == "stored"
        assert await world.sink.send_to_all(b"m") == [1, 0, 1]
        assert (await world.send(0, value=b"2"))[0] == "stored"

        assert world.stored(0) == [b"1", b"m", b"2"]
        assert [record.key for record in world.broker.records(topic(0))] == [b"k", None, b"k"]


@pytest.mark.parametrize("fault", ["rejects", "no topic", "silent"])
@virtual_time
async def test_a_sick_stream_fails_alone_and_only_once_slowly(fault: str) -> None:
    """Then its circuit is open: its fragments are rejected at once, by index, until it works again."""
    async with working() as world:
        await world.send(0, 1, 2)
        partition = world.broker.partitions[topic(1), 0]
        if fault == "rejects":
            partition.refusals += [10] * 1000
        elif fault == "no topic":
            del world.broker.partitions[topic(1), 0]
        else:
            partition.refusals += [19] * 100_000
        slowly = asyncio.create_task(world.send(1))
        while not slowly.done():
            assert (await world.send(0, 2))[0] == "stored"
            await asyncio.sleep(0.1)

        outcomes = [await world.send(0, 1, 2) for _ in range(20)]
        assert {outcome for outcome, _ in outcomes} == {"all but [1]"}
        assert max(took_s for _, took_s in outcomes) < 0.1
        assert [remark.partition(":")[0] for remark in world.sink.remarks()] == ["stream 1"]
        assert world.sink.complaint() == ""
        with pytest.raises(KafkaUnavailable):
            await world.sink.send_to_all(b"m")

        partition.refusals.clear()
        world.broker.partitions[topic(1), 0] = partition
        await asyncio.sleep(30)  # longer than any pause
        outcomes = [await world.send(0, 1, 2) for _ in range(3)]
        assert {outcome for outcome, _ in outcomes} == {"stored"}
        assert world.sink.remarks() == []
        assert world.lost >= 1


@virtual_time
async def test_a_trial_without_a_leader_is_refused_at_once() -> None:
    """It could only cost its sender the whole time that Kafka may take."""
    async with working() as world:
        await world.send(0, 1)
        world.broker.partitions[topic(1), 0].leader = -1
        slowly = asyncio.create_task(world.send(1))
        while not slowly.done():
            await world.send(0)
            await asyncio.sleep(0.1)

        took_s = []
        for _ in range(200):  # over several trials
            took_s.append((await world.send(0, 1))[1])
            await asyncio.sleep(0.1)
        assert max(took_s) < 0.1
        assert world.sink.remarks() == [f"stream 1: {topic(1)} has no leader"]


@virtual_time
async def test_a_stream_waits_for_a_new_leader() -> None:
    """Where it has worked before, an election costs time, but no fragment."""
    async with working() as world:
        await world.send(1)
        world.broker.partitions[topic(1), 0].leader = -1
        sending = asyncio.create_task(world.send(1))
        await asyncio.sleep(ACK_TIMEOUT_S / 2)
        world.broker.partitions[topic(1), 0].leader = 1

        assert (await sending)[0] == "stored"
        assert world.sink.remarks() == []


@virtual_time
async def test_a_silent_kafka_costs_the_requests_that_wait() -> None:
    """Those that follow are refused at once, until Kafka answers again; no stream is to blame."""
    async with working() as world:
        await world.send(0, 1)
        world.broker.is_mute = True
        waiting = await asyncio.gather(*(world.send(stream % 2) for stream in range(10)))
        complaint = world.sink.complaint()
        at_once = await world.send(0)
        world.broker.is_mute = False
        world.broker.wake()
        await until(lambda: not world.sink.complaint(), within_s=NOTICED_S)

        reason = f"Kafka has not acknowledged for {ACK_TIMEOUT_S:g} s"
        assert max(took_s for _, took_s in waiting) < 1.1 * ACK_TIMEOUT_S
        assert {outcome for outcome, _ in waiting} == {"Kafka did not acknowledge the fragments in time"}
        assert (complaint, at_once) == (reason, (reason, 0.0))
        assert (await world.send(0, 1))[0] == "stored"
        assert world.sink.remarks() == []


@pytest.mark.parametrize("how", ["mute", "gone", "no leader"])
@virtual_time
async def test_an_outage_is_noticed_without_traffic(how: str) -> None:
    """And so is its end."""
    async with working() as world:
        if how == "mute":
            world.broker.is_mute = True
        elif how == "gone":
            world.broker.brokers.clear()
            world.broker.cut(1)
        else:
            for partition in world.broker.partitions.values():
                partition.leader = -1
        await until(lambda: bool(world.sink.complaint()), within_s=NOTICED_S)

        world.broker.is_mute = False
        world.broker.wake()
        world.broker.brokers = [1]
        for partition in world.broker.partitions.values():
            partition.leader = 1
        await until(lambda: not world.sink.complaint(), within_s=NOTICED_S)
        assert (await world.send(0))[0] == "stored"


@virtual_time
async def test_streams_may_be_added_at_any_time() -> None:
    """A broker may not have heard of their topics yet."""
    async with working() as world:
        await world.send(0)
        world.sink.set_topics([topic(stream) for stream in range(STREAMS + 1)])
        sending = asyncio.create_task(world.send(STREAMS))
        await asyncio.sleep(0.5)
        world.broker.create(topic(STREAMS))

        assert (await sending)[0] == "stored"


@virtual_time
async def test_a_cancelled_request_does_not_affect_others() -> None:
    """Its fragments may be stored all the same."""
    async with working() as world:
        await world.send(0)
        world.broker.delay_s = 0.1
        requests = [asyncio.create_task(world.send(0, value=b"%d" % n)) for n in range(3)]
        await asyncio.sleep(0.05)
        requests[1].cancel()

        assert [(await requests[n])[0] for n in (0, 2)] == ["stored", "stored"]
        assert world.stored(0) == [b"v", b"0", b"1", b"2"]
