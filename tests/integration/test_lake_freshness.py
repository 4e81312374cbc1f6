"""How far a lake is behind a real sessions topic: by its commits' notes or its rows, without Spark."""

from __future__ import annotations

import math
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.admin import NewTopic
from deltalake import DeltaTable
from prometheus_client import CollectorRegistry

from services.control.adapters.topics.sessions import KafkaSessions
from services.control.live.feed.feed import EventFeed
from services.control.live.metrics import registry_for
from services.control.live.view.freshness import Freshness
from services.control.spark.lake.plan import Note
from services.control.tables.lake import Lake
from services.control.tables.positions import COMMITS, LakePositions
from shared.model.names import Names
from tests.tables import session, write_sessions
from tests.topics import admin_client, delete_below
from tests.unit.control.http.test_app import InMemoryRunner
from tests.unit.control.sources import small_baton
from tests.waiting import until

RETENTION_MS = 7 * 86_400_000


async def deliver(kafka: str, topic: str, partition: int, values: Sequence[bytes]) -> list[tuple[int, int]]:
    """Appends records in one transaction; returns offset and time of each."""
    async with (
        AIOKafkaProducer(bootstrap_servers=kafka, transactional_id=f"{topic}.test") as producer,
        producer.transaction(),
    ):
        sent = [await producer.send_and_wait(topic, value, partition=partition) for value in values]
    return [(one.offset, one.timestamp) for one in sent]


async def create(kafka: str, topic: str) -> None:
    """A sessions topic with two partitions."""
    async with admin_client(kafka) as admin:
        configs = {"retention.ms": str(RETENTION_MS), "message.timestamp.type": "LogAppendTime"}
        await admin.create_topics([NewTopic(topic, 2, 1, topic_configs=configs)])


async def id_of_topic(topics: KafkaSessions) -> str:
    """Kafka's id of the default group's topic."""

    async def find_id() -> str:
        state = await topics.describe("default")
        return state.topic_id if state else ""

    return await until(find_id)


async def test_the_lake_is_behind_by_what_it_lacks(kafka: str, namespace: str, tmp_path: Path) -> None:
    """Records and age of the oldest; markers of transactions alone are nothing; deleted records are lost."""
    names = Names(namespace)
    topic = names.sessions("default")
    await create(kafka, topic)
    view = small_baton().view()
    await view.step()
    clock = [0]
    positions = LakePositions(Lake(str(tmp_path), namespace))
    async with KafkaSessions(kafka, names) as topics:
        topic_id = await id_of_topic(topics)
        freshness = Freshness(positions, topics, view, names, every_s=1, now_ms=lambda: clock[0])
        expected = Freshness(
            positions, topics, view, names, every_s=1, scheduled=["default"], now_ms=lambda: clock[0]
        )
        registry = registry_for(view, InMemoryRunner(), EventFeed(), freshness=freshness.rows)

        def hold(partition: int, *offsets: int, id_: str = topic_id) -> None:
            places: dict[str, Any] = {"topic_id": id_, "topic_partition": partition}
            rows = [session(n, topic_offset=n, **places) for n in offsets]
            write_sessions(tmp_path / namespace, rows)

        first = await deliver(kafka, topic, 0, [b"a", b"b"])
        second = await deliver(kafka, topic, 1, [b"c"])
        third = await deliver(kafka, topic, 0, [b"d"])
        await freshness.step()
        assert freshness.rows() == []  # there is no table that could be behind
        clock[0] = first[0][1] + 7000
        await expected.step()
        (row,) = expected.rows()  # a schedule should have made it
        assert (row.behind_s, row.behind_records, row.loss_in_s) == (7.0, 5 + 2, RETENTION_MS / 1000 - 7)

        # another topic of the same name had these offsets
        hold(0, 0, 1, 2, 3, id_="earlier")
        clock[0] = first[0][1] + 5000
        await freshness.step()
        (row,) = freshness.rows()
        assert (row.group, row.topic, row.oldest_at, row.lost_records) == ("default", topic, first[0][1], 0)
        assert (row.behind_s, row.behind_records) == (5.0, 5 + 2)  # three transactions with a marker each
        assert (row.retention_ms, row.loss_in_s) == (RETENTION_MS, RETENTION_MS / 1000 - 5)
        assert gauge(registry, "baton_lake_loss_in_seconds") == row.loss_in_s

        hold(0, 0, 1)
        hold(1, 0)
        await freshness.step()
        (row,) = freshness.rows()
        assert (row.oldest_at, row.behind_records) == (third[0][1], 2)

        hold(0, third[0][0])
        await freshness.step()
        (row,) = freshness.rows()
        assert (row.behind_records, row.behind_s, row.oldest_at, row.loss_in_s) == (0, 0.0, None, None)
        assert gauge(registry, "baton_lake_loss_in_seconds") == math.inf

        # compacted, the table holds the same; restored, it holds less
        table = DeltaTable(tmp_path / namespace / "sessions")
        table.optimize.compact()
        await freshness.step()
        assert freshness.rows()[0].behind_records == 0
        table.restore(table.version() - 2)
        await freshness.step()
        assert freshness.rows()[0].oldest_at == third[0][1]

        fourth = await deliver(kafka, topic, 1, [b"e", b"f"])
        await delete_below(kafka, topic, third[0][0] + 1)
        await freshness.step()
        (row,) = freshness.rows()
        assert row.lost_records == 2  # the record, and the marker before it
        assert row.oldest_at == fourth[0][1]
        assert second[0][0] == 0

        shutil.rmtree(tmp_path / namespace / "sessions")
        await expected.step()
        (row,) = expected.rows()
        assert (row.oldest_at, row.lost_records) == (second[0][1], 0)


def gauge(registry: CollectorRegistry, name: str) -> float | None:
    """The gauge of the default group."""
    return registry.get_sample_value(name, {"group": "default"})


async def test_what_a_commit_notes_is_exact(kafka: str, namespace: str, tmp_path: Path) -> None:
    """A deleted marker of a transaction is no lost record; a note holds until the table is restored."""
    names, lake = Names(namespace), tmp_path / namespace
    topic = names.sessions("default")
    await create(kafka, topic)
    view = small_baton().view()
    await view.step()
    async with KafkaSessions(kafka, names) as topics:
        topic_id = await id_of_topic(topics)
        freshness = Freshness(LakePositions(Lake(str(tmp_path), namespace)), topics, view, names, every_s=1)

        def append(offset: int, group: str = "default", note: Note | None = None) -> None:
            place: dict[str, Any] = {"topic_id": topic_id, "topic_partition": 0, "topic_offset": offset}
            row = session(offset, group=group, **place)
            write_sessions(lake, [row], note.encode() if note else "")

        async def lost() -> int:
            await freshness.step()
            (row,) = freshness.rows()
            return row.lost_records

        ((offset, _),) = await deliver(kafka, topic, 0, [b"a"])
        await delete_below(kafka, topic, offset + 2)  # with the marker
        append(offset, note=Note(group="default", topics={topic_id: {0: offset + 2, 1: 0}}))
        assert await lost() == 0

        for number in range(COMMITS[0]):
            append(number, group="other", note=Note(group="other", topics={topic_id: {0: number + 1}}))
        DeltaTable(lake / "sessions").optimize.compact()
        assert await lost() == 0

        append(offset)
        assert await lost() == 0
        table = DeltaTable(lake / "sessions")
        table.restore(table.version() - 1)
        assert await lost() == 1  # rows do not say where transactions ended


async def test_a_failure_keeps_the_last_numbers_and_is_logged_once(
    kafka: str, namespace: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A lake that cannot be read, and a cluster that has not been read yet."""
    (tmp_path / "sessions" / "_delta_log").mkdir(parents=True)
    (tmp_path / "sessions" / "_delta_log" / f"{0:020}.json").write_text("nothing that Delta knows")
    async with KafkaSessions(kafka, Names(namespace)) as topics:
        view = small_baton().view()
        freshness = Freshness(
            LakePositions(Lake(str(tmp_path), "")), topics, view, Names(namespace), every_s=1
        )
        await freshness.step()
        await view.step()
        await freshness.step()
        await freshness.step()

    assert freshness.rows() == []
    assert [record.message for record in caplog.records] == ["freshness not measured"] * 2
