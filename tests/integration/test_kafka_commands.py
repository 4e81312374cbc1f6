"""`baton kafka` on real Kafka: one record, a topic's settings, and what a stream has committed."""

from __future__ import annotations

import asyncio
import json

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from click.testing import CliRunner, Result

from cli.main import cli
from shared.kafka.connect.cluster import Cluster
from shared.kafka.read.offsets import EARLIEST, LATEST, list_offsets
from shared.model.names import Names
from tests.waiting import until


async def baton(kafka: str, names: Names, *arguments: str) -> Result:
    """Runs `baton kafka …` on this Kafka."""
    environment = {"BATON_KAFKA": kafka, "BATON_NAMESPACE": names.namespace}
    run = CliRunner().invoke
    return await asyncio.to_thread(run, cli, ["kafka", *arguments], env=environment)


async def test_a_record_is_shown_whole_and_safe(kafka: str, names: Names) -> None:
    """With its headers; an offset without a record is an error that names the offsets there are."""
    async with AIOKafkaProducer(bootstrap_servers=kafka) as producer:
        for value in (b"first", b"second \x1b[2J \xff"):
            await producer.send_and_wait(names.fragments(1), value, key=b"k", headers=[("h", b"v")])

    shown = await baton(kafka, names, "record", "fragments.0001", "1", "-o", "json")
    missing = await baton(kafka, names, "record", "fragments.0001", "2")

    assert json.loads(shown.stdout) | {"time": ""} == {
        "time": "",
        "key": "k",
        "header h": "v",
        "value": "second \\x1b[2J \\xff",
    }
    assert missing.exit_code == 1
    assert "holds the offsets 0 … 1" in str(missing.exception)


async def test_a_changed_setting_leaves_the_others(kafka: str, names: Names) -> None:
    """The brokers know it a moment after the controller."""

    async def settings() -> dict[str, str]:
        shown = await baton(kafka, names, "settings", "sessions", "-o", "json")
        return dict(json.loads(shown.stdout))

    before = await settings()

    changed = await baton(kafka, names, "settings", "sessions", "segment.bytes=16777216")
    another = await baton(kafka, names, "settings", "sessions", "segment.ms=86400000")
    rejected = await baton(kafka, names, "settings", "sessions", "segment.bytes=many")

    assert before["max.message.bytes"]
    expected = before | {"segment.bytes": "16777216", "segment.ms": "86400000"}

    async def is_known() -> bool:
        return await settings() == expected

    await until(is_known, within_s=10)
    assert (changed.exit_code, another.exit_code) == (0, 0)
    assert rejected.exit_code == 1


async def test_a_stream_forgets_its_offset_and_on_request_its_checkpoints(kafka: str, names: Names) -> None:
    """Only that stream; the offsets of the checkpoints go on, because they number the logs."""
    checkpoints = [TopicPartition(names.checkpoints("default"), n) for n in (0, 1)]
    heads = [TopicPartition(names.fragments(n), 0) for n in (0, 1)]
    async with AIOKafkaProducer(bootstrap_servers=kafka) as producer:
        for place in checkpoints:
            await producer.send_and_wait(place.topic, b"x", partition=place.partition)

    async def committed() -> list[int | None]:
        group = names.kafka_group("default")
        async with AIOKafkaConsumer(
            bootstrap_servers=kafka, group_id=group, enable_auto_commit=False
        ) as consumer:
            consumer.assign(heads)
            if is_first:
                await consumer.commit(dict.fromkeys(heads, 5))
            return [await consumer.committed(place) for place in heads]

    async def bounds() -> list[tuple[int, int]]:
        async with Cluster(kafka) as cluster:
            firsts = await list_offsets(cluster, checkpoints, EARLIEST)
            ends = await list_offsets(cluster, checkpoints, LATEST)
        return [(firsts[place], ends[place]) for place in checkpoints]

    is_first = True
    assert await committed() == [5, 5]
    is_first = False

    head_only = await baton(kafka, names, "forget", "1", "--yes")
    assert (await committed(), await bounds()) == ([5, None], [(0, 1), (0, 1)])
    both = await baton(kafka, names, "forget", "1", "--yes", "--checkpoints")
    assert (await committed(), await bounds()) == ([5, None], [(0, 1), (1, 1)])
    declined = await baton(kafka, names, "forget", "0")
    unknown = await baton(kafka, names, "forget", "2", "--yes")

    assert [answer.exit_code for answer in (head_only, both, declined, unknown)] == [0, 0, 1, 1]
    assert str(unknown.exception) == "there is no stream 2; there are 0 … 1"
    assert await committed() == [5, None]
