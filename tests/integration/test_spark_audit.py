"""The audit on a real log: it reports no difference where there is none, and finds every planted one."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from services.control.spark.audit import job
from services.control.spark.audit.job import audit
from services.control.spark.audit.trusted import ALWAYS, OLDER
from services.control.spark.kafka.log import topic_id
from services.control.spark.lake.job import lake
from services.control.spark.lake.plan import Note
from shared.model.routing import initial_table
from shared.model.sessions import parse_session
from shared.model.start import GroupStart
from tests.spark import Pipeline, fragment
from tests.spark_plans import plans_of, shuffles
from tests.topics import records_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MINUTE = 60_000
FAULTS = ("missing", "overdue", "extra", "different", "duplicates", "misrouted", "split_keys")
FAULTS_OF_TABLE = (
    *("lake_missing", "lake_extra", "lake_different", "lake_duplicated", "lake_days"),
    "reports_different",
)
TABLE_SCHEMA = (
    "id string, `group` string, key string, reason string, stream long, epoch long, first_offset long, "
    "last_offset long, first_time long, last_time long, opened_at long, closed_at long, fragments long, "
    "bytes long, data array<string>, log long, topic_id string, topic_partition int, topic_offset long, "
    "day date"
)


def _log(seed: int, count: int) -> list[tuple[bytes | None, bytes | None]]:
    """Some hours of a few keys, with ends, gaps, repeats, disorder, markers, ticks and junk."""
    draw = random.Random(seed)
    time = 1_700_000_000_000
    records: list[tuple[bytes | None, bytes | None]] = []
    for number in range(count):
        time += draw.choice([500, 5_000, 60_000])
        key = f"k{draw.randrange(40)}"
        more: dict[str, Any] = {"data": {"n": number, "path": f"/{draw.randrange(9)}"}}
        if draw.random() < 0.1:
            more["end"] = True
        if draw.random() < 0.7:
            more["id"] = f"i{draw.choice([number, max(0, number - 30)])}"
        records.append(fragment(key, time - draw.choice([0, 0, 3 * MINUTE]), **more))
        if draw.random() < 0.05:
            odd = '{"key":"%s", "n": 1.00000000000000000001e+2 , "é": "\\u00e9é"}' % key  # noqa: UP031
            records.append((key.encode(), odd.encode()))
        if draw.random() < 0.01:
            records.append((None, b'{"time": %d}' % (time - 20 * MINUTE)))
        if draw.random() < 0.01:
            records.append((None, b"{}"))
        if draw.random() < 0.01:
            records.append((key.encode(), b'{"key": "another"}'))
    return records


async def test_an_honest_delivery_has_no_differences(
    spark: SparkSession, kafka: str, namespace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a log with every kind of record; the table is compared if there is one; by few judges or many.

    Sessions of an aborted transaction are not delivered. All is shuffled once.
    """
    pipeline = Pipeline(kafka=kafka, namespace=namespace)
    await pipeline.create()
    await pipeline.send(_log(1, 3000))
    closed, _ = await pipeline.sessions()
    await pipeline.abort([(session.key.encode(), value) for session, value in closed[:9]])
    sessions = await pipeline.deliver_all()

    result = await asyncio.to_thread(audit, spark, pipeline.request("audit", tmp_path))

    assert found_in(result) == {}, result["examples"]
    assert result["delivered"] == result["expected"] == len(sessions) > 300
    assert (result["verdict"], result["part"], result["lake_judged"]) == ("exact", "everything", 0)
    assert [(one["what"], "no table yet" in one["why"]) for one in result["left_out"]] == [("lake", True)]

    await fill_table(spark, pipeline, tmp_path)
    monkeypatch.setattr(job, "RECORDS_PER_JUDGE", 200)
    request = pipeline.request("audit", tmp_path)
    result, plans = await asyncio.to_thread(plans_of, spark, lambda: audit(spark, request))

    assert found_in(result) == {}, result["examples"]
    assert (result["verdict"], result["left_out"]) == ("exact", [])
    assert result["lake_judged"] == len(sessions)
    assert [one["what"] for one in result["trusted"]] == [*ALWAYS, OLDER]
    assert [shuffles(plan) for plan in plans if ".fragments." in plan] == [1]


async def test_a_group_that_follows_is_judged_from_its_start_without_what_others_hold(
    spark: SparkSession, kafka: str, namespace: str, tmp_path: Path
) -> None:
    """What is covered belongs to the followed group's sessions; with one of these gone, the audit expects
    its fragments here."""
    first = Pipeline(kafka=kafka, namespace=namespace)
    await first.create()
    await first.send(_log(5, 1500))
    sessions = await first.deliver_all()
    starts = {stream: 150 + stream for stream in range(first.streams)}
    reaching = [one for one, _ in sessions if one.first_offset < starts[one.stream] <= one.last_offset]
    covered: dict[int, dict[str, int]] = {stream: {} for stream in starts}
    for one in reaching:
        covered[one.stream][one.key] = one.last_offset
    chain = [GroupStart(follows="default", offsets=dict(starts))]
    settings = msgspec.structs.replace(first.settings, gap_ms=5 * MINUTE, idle_ms=10 * MINUTE)
    second = replace(first, group="second", settings=settings, chain=chain, covered=covered)
    await second.create()
    own = await second.deliver_all()

    result = await asyncio.to_thread(audit, spark, second.request("audit", tmp_path))
    unaware = replace(second, chain=[GroupStart(follows=None, offsets=dict(starts))])
    wrong = await asyncio.to_thread(audit, spark, unaware.request("audit", tmp_path))

    assert found_in(result) == {}, result["examples"]
    assert result["delivered"] == result["expected"] == len(own) > 100
    assert (result["verdict"], result["not_judged"], result["cut_streams"]) == ("exact", 0, 0)
    assert len(reaching) > 5
    assert found_in(wrong) != {}


async def test_faults_of_the_table_are_found(
    spark: SparkSession, kafka: str, namespace: str, tmp_path: Path
) -> None:
    """Rows removed, altered, doubled and invented count apart; those of another topic are not judged.

    Altered: also a null behind the fragments, the partition of another day, a null key.

    Rows at the end of the topic are missing too, and all of them if the table was emptied.
    """
    pipeline = Pipeline(kafka=kafka, namespace=namespace)
    await pipeline.create()
    await pipeline.send([fragment(f"k{n}", data=n, end=True) for n in range(12)])
    await pipeline.deliver_all()
    request = pipeline.request("audit", tmp_path)

    def plant(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        rows[2]["data"] = ["{}"]
        rows[3]["last_time"] += 1
        rows[6] |= {"topic_id": "another", "id": "gone"}
        rows[7]["data"].append(None)
        rows[8]["day"] -= timedelta(days=40)
        rows[9]["key"] = None
        return [*rows[1:10], rows[4], rows[5] | {"id": "invented"}]

    await fill_table(spark, pipeline, tmp_path, plant)
    result = await asyncio.to_thread(audit, spark, request)
    copied = pipeline.request("audit", tmp_path / "copied")
    table = spark.read.format("delta").load(request.table("sessions"))
    table.write.format("delta").save(copied.table("sessions"))
    without_note = await asyncio.to_thread(audit, spark, copied)
    spark.sql(f"DELETE FROM delta.`{request.table('sessions')}`")
    emptied = await asyncio.to_thread(audit, spark, request)

    assert [name for name in FAULTS if result[name]] == []
    assert {name: result[name] for name in FAULTS_OF_TABLE} == {
        "lake_missing": 5,
        "lake_extra": 2,
        "lake_different": 4,
        "lake_duplicated": 1,
        "lake_days": 0,
        "reports_different": 0,
    }, result["examples"]
    assert (result["verdict"], result["lake_not_judged"]) == ("differs", 1)
    assert without_note["lake_missing"] == 3
    assert "does not say how far" in without_note["left_out"][0]["why"]
    assert (emptied["verdict"], emptied["lake_missing"]) == ("differs", 12)


async def test_every_planted_fault_is_found(
    spark: SparkSession, kafka: str, namespace: str, tmp_path: Path
) -> None:
    """A session lost, doubled, with a changed byte or a shifted boundary, in a wrong stream, invented; a key
    in a wrong stream. A session that silence has ended withheld, unless its owner is still on the way to it.
    """
    pipeline = Pipeline(kafka=kafka, namespace=namespace, streams=2)
    await pipeline.create()
    silent, slow = [f"still{n}" for n in range(4)], [f"quiet{n}" for n in range(3)]
    assert {initial_table(2).stream_for(key.encode()) for key in silent} == {0}
    assert {initial_table(2).stream_for(key.encode()) for key in slow} == {1}
    await pipeline.send([fragment(key, 1_700_000_000_000 - 36 * MINUTE) for key in (*silent, *slow)])
    await pipeline.send([fragment("quiet7", 1_700_000_000_000, end=True)])
    await pipeline.send(
        [fragment(f"k{n % 8}", 1_700_000_000_000 + n, data=n, end=n >= 24) for n in range(32)]
    )
    wrong = 1 - initial_table(2).stream_for(b"astray")
    await pipeline.send([fragment("astray", end=True)] * 2, stream=wrong)
    sessions, positions = await pipeline.sessions()
    honest = {session.key: value for session, value in sessions}
    planted = [
        ("k0", []),
        ("k1", [honest["k1"]] * 2),
        ("k2", [honest["k2"].replace(b'"data":10', b'"data":11')]),
        ("k3", [_with(honest["k3"], fragments=3, without_last=True)]),
        ("k4", [_with(honest["k4"], stream=1 - parse_session(honest["k4"]).stream)]),
        ("k5", [honest["k5"], _with(honest["k5"], id="f" * 32)]),
        ("k6", [honest["k6"], b"{"]),
        # a sound delivery: the epoch depends on who closed the session
        ("k7", [_with(honest["k7"], epoch=9)]),
        *((session.key, [value]) for session, value in sessions if session.key == "astray"),
        *((key, [honest[key]]) for key in ("still0", "quiet7")),
    ]
    await pipeline.deliver([(key.encode(), value) for key, values in planted for value in values])
    await pipeline.commit(positions, silent_to={1: 0})

    result = await asyncio.to_thread(audit, spark, pipeline.request("audit", tmp_path))

    found = sorted((example["kind"], example["key"]) for example in result["examples"])
    assert found == [
        *(("different", "k2"), ("different", "k3")),
        *(("extra", ""), ("extra", "k1"), ("extra", "k4"), ("extra", "k5")),
        *(("misrouted", "astray"), ("missing", "k0"), ("missing", "k4")),
        *(("overdue", key) for key in silent[1:]),
    ]
    faults = {"missing": 2, "overdue": 3, "extra": 4, "different": 2, "misrouted": 2}
    assert found_in(result) == faults
    assert result["verdict"] == "differs"
    assert result["not_judged"] == result["under_way"] == len(slow)
    assert [one["what"] for one in result["left_out"]] == ["lake", "sessions that silence has ended"]


async def test_a_stream_that_was_started_over_is_judged_by_its_present_log(
    spark: SparkSession, kafka: str, namespace: str, tmp_path: Path
) -> None:
    """What the log before it delivered is counted, and the present log must be delivered in full.

    The lake holds the sessions of both until those of the earlier log are deleted, as docs/lake.md says. The
    rows of their day are not those that it has written, until it takes them as they are.
    """
    pipeline = Pipeline(kafka=kafka, namespace=namespace, streams=1)
    await pipeline.create()
    await pipeline.send([fragment(f"k{n % 4}", data=n, end=n % 10 == 9) for n in range(100)])
    before, positions = await pipeline.sessions()
    after, _ = await pipeline.sessions(log=52)
    assert {session.id for session, _ in before}.isdisjoint(session.id for session, _ in after)
    await pipeline.deliver([(session.key.encode(), value) for session, value in (*before, *after[1:])])
    await pipeline.commit(positions, log=52)
    request = pipeline.request("audit", tmp_path)
    both = await asyncio.to_thread(lake, spark, request)
    spark.sql(f"DELETE FROM delta.`{request.table('sessions')}` WHERE log < 52")
    later = await asyncio.to_thread(lake, spark, request)
    deleted = await asyncio.to_thread(audit, spark, request)
    await asyncio.to_thread(lake, spark, pipeline.request("lake", tmp_path, recount=1))

    result = await asyncio.to_thread(audit, spark, request)

    assert (both["added"], later["added"]) == (len(before) + len(after) - 1, 0)
    assert found_in(deleted) == {"missing": 1, "lake_days": 1}, deleted["examples"]
    assert (
        f"{len(after) - 1} rows instead of {len(before) + len(after) - 1}"
        in deleted["examples"][-1]["detail"]
    )
    assert found_in(result) == {"missing": 1}, result["examples"]
    assert [one["what"] for one in result["trusted"]] == list(ALWAYS)
    assert (result["not_judged"], result["judged"]) == (len(before), len(after))
    assert (result["lake_not_judged"], result["lake_judged"]) == (len(before), len(after) - 1)


def found_in(result: dict[str, Any]) -> dict[str, int]:
    """The numbers of differences that are not 0."""
    return {name: result[name] for name in (*FAULTS, *FAULTS_OF_TABLE) if result[name]}


async def fill_table(
    spark: SparkSession,
    pipeline: Pipeline,
    lake: Path,
    plant: Callable[[list[dict[str, Any]]], list[dict[str, Any]]] = list,
) -> None:
    """Writes the delivered sessions into the table, with where they are in the topic, after `plant`.

    The commit notes that the table holds all of them.
    """
    topic = pipeline.names.sessions(pipeline.group)
    own_id = await asyncio.to_thread(topic_id, spark, pipeline.kafka, topic)
    rows = []
    ends = {0: 0, 1: 0}
    for partition in ends:
        for record in await records_of(pipeline.kafka, topic, partition):
            session = parse_session(record.value)
            row = {name: getattr(session, name) for name in msgspec.structs.asdict(session)}
            row |= {"data": [bytes(raw).decode() for raw in session.data], "topic_id": own_id}
            row |= {"topic_partition": partition, "topic_offset": record.offset}
            ends[partition] = record.offset + 1
            row |= {"day": datetime.fromtimestamp(session.opened_at / 1000, UTC).date()}
            rows.append(row)
    names = [one.split()[0].strip("`") for one in TABLE_SCHEMA.split(", ")]
    frame = spark.createDataFrame([tuple(row[name] for name in names) for row in plant(rows)], TABLE_SCHEMA)
    note = Note(group=pipeline.group, topics={own_id: ends}).encode()
    table = pipeline.request("audit", lake).table("sessions")
    frame.write.format("delta").partitionBy("group", "day").option("userMetadata", note).save(table)


def _with(value: bytes, *, without_last: bool = False, **fields: Any) -> bytes:
    session = msgspec.json.decode(value) | fields
    if without_last:
        session["data"].pop()
    return msgspec.json.encode(session)
