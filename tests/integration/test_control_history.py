"""Control's history in its topic, on a real Kafka: it outlives control, two share it, outages pass."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

from aiokafka import AIOKafkaProducer

from services.control.adapters.topics.history import KafkaHistory
from services.control.core.history.group_history import parse_sample
from services.control.live.view.history import History
from shared.kafka.admin.topics import ensure_topics, history_topic
from shared.model.names import DEFAULT_GROUP, Names
from tests.servers import KafkaServer
from tests.topics import records_of
from tests.unit.control.sources import small_baton
from tests.waiting import running, until


class OneControl:
    """The history of one control over the small Baton, and its topic."""

    def __init__(self, kafka: str, names: Names, writer: str) -> None:
        self.view = small_baton().view()
        self.topic = KafkaHistory(kafka, names, replication=1)
        self.history = History(self.view, list, self.topic.write, writer=writer)

    @property
    def lags(self) -> list[float]:
        """The lag in each slot in which it is known."""
        return [lag for lag in self.history.of_group(DEFAULT_GROUP).lag if lag is not None]


@contextlib.asynccontextmanager
async def control(kafka: str, names: Names, writer: str = "http://a") -> AsyncIterator[OneControl]:
    """A control that reads back and writes during the block."""
    one = OneControl(kafka, names, writer)
    await one.view.step()
    async with running(one.topic.run(one.history.restore)):
        yield one


async def test_a_restarted_control_shows_the_hour_of_the_one_before(kafka: str, namespace: str) -> None:
    """What is not a sample in the topic is skipped."""
    names = Names(namespace)
    await ensure_topics(kafka, [history_topic(names)], 1)
    async with AIOKafkaProducer(bootstrap_servers=kafka) as producer:
        await producer.send_and_wait(names.history, b"not a sample")
        await producer.send_and_wait(names.history, None, key=b"k")
    async with control(kafka, names) as first:
        first.history.step()
        await records_of(kafka, names.history, at_least=3)

    async with control(kafka, names) as again:
        await until(lambda: again.lags == first.lags == [150])


async def test_two_controls_fill_one_hour(kafka: str, namespace: str) -> None:
    """Each names itself in what it writes; a third one shows each slot once."""
    names = Names(namespace)
    async with control(kafka, names) as a, control(kafka, names, "http://b") as b:
        a.history.step()
        b.history.step()
        written = await records_of(kafka, names.history, at_least=2)
    samples = [parse_sample(record.value) for record in written]

    async with control(kafka, names, "http://c") as third:
        await until(lambda: len(third.lags) == len({sample.at for sample in samples}))

    assert {sample.writer for sample in samples} == {"http://a", "http://b"}


async def test_samples_wait_while_kafka_is_away(kafka_server: KafkaServer, namespace: str) -> None:
    """Also before the topic could be created; the numbers are shown meanwhile."""
    names = Names(namespace)
    kafka_server.kill()
    async with control(kafka_server.address, names) as one:
        one.history.step()
        shown = one.lags
        await asyncio.to_thread(kafka_server.start)

        (record,) = await records_of(kafka_server.address, names.history, at_least=1)

    assert (shown, parse_sample(record.value).totals.lag) == ([150], 150)
