"""The lake after losses: tables deleted or set back, records deleted or unreadable, two writers at once."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from aiokafka import TopicPartition
from aiokafka.admin import RecordsToDelete
from pyspark.sql import functions as f

from services.control.spark.lake import job, positions
from services.control.spark.lake.job import lake
from services.control.spark.lake.plan import LostRecords, Note
from services.control.spark.lake.positions import newest_note
from services.control.spark.lake.sums import Sums
from services.control.spark.lake.table import LakeTable
from shared.model.group import GroupSettings
from shared.model.sessions import session_id
from tests.lake import NOON_MS, forget_tables, hidden_files, session_record, table_keys
from tests.spark import Pipeline
from tests.topics import admin_client

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


async def test_a_table_that_was_deleted_or_set_back_holds_every_session_once_again(
    spark: SparkSession, kafka: str, namespace: str, tmp_path: Path
) -> None:
    """Nothing beside the table says how far it has come, so a run continues each of its states.

    A table whose log is damaged stops the run; without it, the table is made again.
    """
    pipeline = Pipeline(kafka=kafka, namespace=namespace)
    await pipeline.create()
    request = pipeline.request("lake", tmp_path)
    table, backup = Path(request.table("sessions")), tmp_path / "backup"
    once: dict[str, int] = {}

    async def grow(part: str) -> None:
        for partition in (0, 1):
            keys = [f"{part}{partition}{n}" for n in range(3)]
            records = [session_record(key, len(once) + n) for n, key in enumerate(keys)]
            await pipeline.deliver(records, partition=partition)
            once.update(dict.fromkeys(keys, 1))

    await grow("a")
    first = await asyncio.to_thread(lake, spark, request)
    await asyncio.to_thread(shutil.copytree, table, backup)
    await grow("b")
    await asyncio.to_thread(lake, spark, request)
    spark.sql(f"RESTORE delta.`{table}` TO VERSION AS OF {first['version']}")
    after_restore = await asyncio.to_thread(lake, spark, request)
    keys_after_restore = table_keys(spark, table)
    restored = newest_note(LakeTable(spark, str(table)), after_restore["version"], "default").note

    await asyncio.to_thread(shutil.rmtree, table)
    await asyncio.to_thread(shutil.move, backup, table)
    await grow("c")
    after_backup = await asyncio.to_thread(lake, spark, request)
    keys_after_backup = table_keys(spark, table)

    for commit in (table / "_delta_log").glob("*.json"):
        commit.write_text("nothing that Delta knows")
    forget_tables(spark)
    with pytest.raises(Exception, match=r"nothing that Delta knows|JSON|json"):
        await asyncio.to_thread(lake, spark, request)
    await asyncio.to_thread(shutil.rmtree, table)
    after_deletion = await asyncio.to_thread(lake, spark, request)

    assert restored is not None
    # nobody has summed up what an older version had, so the sums begin on the next day
    assert restored.sums == Sums(since="2023-11-16")
    assert keys_after_restore == {key: 1 for key in once if key[0] != "c"}
    assert keys_after_backup == table_keys(spark, table) == once
    assert [one["added"] for one in (after_restore, after_backup, after_deletion)] == [6, 12, 18]
    assert [one["sessions"] for one in (after_restore, after_backup, after_deletion)] == [12, 18, 18]


async def test_unreadable_records_are_set_aside_once_and_lost_ones_stop_the_run(
    spark: SparkSession, kafka: str, namespace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bad record does not stop the lake. Deleted records do, until the loss is accepted. What the topic had
    lost before its first read is said.

    Without the table of unreadable records, those come back whose records are read again. A note that others'
    commits are about to hide is written anew.
    """
    pipeline = Pipeline(kafka=kafka, namespace=namespace)
    await pipeline.create()
    request = pipeline.request("lake", tmp_path)
    await pipeline.deliver(
        [
            *(session_record("a", 1), (b"k", b'{"id":'), session_record("b", 2)),
            session_record("c", 3, group="other"),
        ]
    )

    first = await asyncio.to_thread(lake, spark, request)

    assert (first["added"], first["unreadable"]) == (2, 2)
    rows = spark.read.format("delta").load(request.table("unreadable")).orderBy("topic_offset").collect()
    assert [(row.group, row.topic_id, row.topic_partition, row.topic_offset) for row in rows] == [
        *(("default", first["topic_id"], 0, 1), ("default", first["topic_id"], 0, 3))
    ]
    assert (bytes(rows[0].key), bytes(rows[0].value), rows[1].why) == (
        *(b"k", b'{"id":'),
        "a session of group 'other'",
    )
    assert rows[0].appended > NOON_MS

    await asyncio.to_thread(shutil.rmtree, request.table("unreadable"))
    await pipeline.deliver([session_record(key, 10) for key in ("lost1", "lost2", "kept")])
    await pipeline.deliver([(b"k", b"{")], partition=1)
    async with admin_client(kafka) as admin:
        where = TopicPartition(pipeline.names.sessions("default"), 0)
        await admin.delete_records({where: RecordsToDelete(before_offset=6)})
    with pytest.raises(LostRecords, match=r"2 offsets of partition 0 .* 4 up to 6, .*accept_loss=1"):
        await asyncio.to_thread(lake, spark, request)
    accepted = await asyncio.to_thread(lake, spark, pipeline.request("lake", tmp_path, accept_loss=1))

    assert (accepted["skipped"], accepted["added"]) == (2, 1)
    rows = spark.read.format("delta").load(request.table("unreadable")).collect()
    assert [(row.topic_partition, row.topic_offset) for row in rows] == [(1, 0)]
    assert table_keys(spark, Path(request.table("sessions"))) == {"a": 1, "b": 1, "kept": 1}

    table = LakeTable(spark, request.table("sessions"))
    monkeypatch.setattr(positions, "OLD_COMMITS", 1)
    await asyncio.to_thread(table.set_properties, {"by": "others"})
    renewed = await asyncio.to_thread(lake, spark, request)
    idle = await asyncio.to_thread(lake, spark, request)
    await asyncio.to_thread(shutil.rmtree, request.table("sessions"))
    anew = await asyncio.to_thread(lake, spark, request)

    assert (renewed["commits"], renewed["added"], idle["commits"]) == (1, 0, 0)
    assert idle["offsets"] == renewed["offsets"] == accepted["offsets"]
    assert (anew["added"], anew["skipped"], anew["unreadable"]) == (1, 6, 1)
    assert spark.read.format("delta").load(request.table("unreadable")).count() == 1
    assert "6 offsets of partition 0" in anew["losses"][0]["loss"]


async def test_of_two_writers_that_planned_the_same_batch_one_appends_it(
    spark: SparkSession, kafka: str, namespace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A driver that stood still right before its commit, while another took over, adds nothing twice.

    Other groups' commits between the two change nothing about that; nor does a table set back meanwhile.
    None of these runs reads a file that an earlier one has written.
    """
    pipeline = Pipeline(kafka=kafka, namespace=namespace)
    other = Pipeline(kafka=kafka, namespace=namespace, group="other")
    await pipeline.create()
    await other.create()
    request = pipeline.request("lake", tmp_path)
    table = Path(request.table("sessions"))
    await pipeline.deliver([session_record("first", 1)])
    await asyncio.to_thread(lake, spark, request)
    happened: list[str] = []

    def stands_still() -> None:
        if not happened:
            happened.append("another run")
            lake(spark, other.request("lake", tmp_path))
            assert lake(spark, request)["added"] == 2
            lake(spark, other.request("lake", tmp_path))

    await other.deliver([session_record("elsewhere", 1, group="other")])
    await pipeline.deliver([session_record("a", 2), session_record("b", 3)])
    with hidden_files(table):
        overtaken = await asyncio.to_thread(lake, spark, request, stands_still)

    assert (overtaken["added"], overtaken["sessions"]) == (0, 3)
    assert table_keys(spark, table) == {"first": 1, "a": 1, "b": 1}
    assert table_keys(spark, table, "other") == {"elsewhere": 1}

    check = positions.still_holds

    def set_back(*arguments: object) -> None:
        if len(happened) == 1:
            happened.append("a restore")
            spark.sql(f"RESTORE delta.`{table}` TO VERSION AS OF 1")
        check(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(job, "still_holds", set_back)
    await pipeline.deliver([session_record("c", 4)])
    await asyncio.to_thread(lake, spark, request)

    assert table_keys(spark, table) == {"first": 1, "a": 1, "b": 1, "c": 1}


async def test_a_topic_that_was_created_anew_adds_what_the_table_does_not_hold(
    spark: SparkSession, kafka: str, namespace: str, tmp_path: Path
) -> None:
    """Its offsets mean nothing to the old ones, and a session that both topics hold appears once.

    Columns that a newer version has added do not disturb. Rows that somebody deleted stay so, by any
    statement, and those that somebody added are not added again. A topic that ends below what the lake has
    read stops it, until the loss is accepted.
    """
    pipeline = Pipeline(kafka=kafka, namespace=namespace, settings=GroupSettings())
    await pipeline.create()
    request = pipeline.request("lake", tmp_path)
    table = Path(request.table("sessions"))
    await pipeline.deliver([session_record(key, n) for n, key in enumerate("abcd")])
    before = await asyncio.to_thread(lake, spark, request)
    spark.sql(f"ALTER TABLE delta.`{table}` ADD COLUMNS (later STRING)")
    spark.sql(f"DELETE FROM delta.`{table}` WHERE key = 'd'")
    async with admin_client(kafka) as admin:
        await admin.delete_topics([pipeline.names.sessions("default")])
    await pipeline.create()
    await pipeline.deliver([session_record(key, n) for n, key in enumerate("bcxyz", start=1)], partition=1)

    after = await asyncio.to_thread(lake, spark, request)

    assert before["topic_id"] != after["topic_id"]
    assert (after["added"], after["duplicates"], after["sessions"]) == (3, 2, 6)
    assert table_keys(spark, table) == dict.fromkeys("abcxyz", 1)
    assert "later" in spark.read.format("delta").load(str(table)).columns

    spark.sql(
        f"MERGE INTO delta.`{table}` t USING (SELECT 'z' AS key) s ON t.key = s.key WHEN MATCHED THEN DELETE"
    )
    rest = spark.read.format("delta").load(str(table)).where("key != 'y'")
    new = {"key": f.lit("new"), "id": f.lit(session_id("default", 0, "new", 9)), "first_offset": f.lit(9)}
    added = rest.where("key = 'x'").withColumns(new)
    rest.unionByName(added).write.format("delta").mode("overwrite").save(str(table))
    await pipeline.deliver([session_record("new", 9)], partition=1)
    edited = await asyncio.to_thread(lake, spark, request)

    assert (edited["added"], edited["duplicates"], edited["sessions"]) == (0, 1, 5)
    assert table_keys(spark, table) == dict.fromkeys([*"abcx", "new"], 1)

    _note_more(spark, table, edited)
    with pytest.raises(LostRecords, match=r"partition 1 .* at offset 6, but .* up to 9"):
        await asyncio.to_thread(lake, spark, request)
    accepted = await asyncio.to_thread(lake, spark, pipeline.request("lake", tmp_path, accept_loss=1))

    # deleted ones too: the lake cannot know what these offsets held
    assert table_keys(spark, table) == dict.fromkeys([*"abcxyz", "new"], 1)
    assert (accepted["added"], accepted["duplicates"]) == (2, 4)


def _note_more(spark: SparkSession, table: Path, result: dict[str, Any]) -> None:
    """Commits nothing but a note that the lake has read 9 offsets of partition 1."""
    topics = {result["topic_id"]: {0: 0, 1: 9}}
    transaction = LakeTable(spark, str(table)).begin(job.application_of("default"))
    transaction.write(spark.read.format("delta").load(str(table)).limit(0))
    number = transaction.recorded() + 1
    transaction.commit(Note(group="default", number=number, topics=topics).encode(), number)
