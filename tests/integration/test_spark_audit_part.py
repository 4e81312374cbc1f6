"""The audit of what is left: after retention, while it deletes, and of a part that a user chooses."""

from __future__ import annotations

import asyncio
import zlib
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from services.control.spark.audit import job
from services.control.spark.audit.job import audit
from shared.model.group import GroupSettings
from shared.model.routing import initial_table
from tests.integration.test_spark_audit import found_in
from tests.spark import Pipeline, fragment
from tests.topics import delete_below, records_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FORGETFUL = GroupSettings(idle_ms=0, repeat_ms=0)
"""A key is certain again as soon as the broker's clock has moved on."""


async def test_sessions_cut_by_retention_are_counted_but_not_judged(
    spark: SparkSession, kafka: str, namespace: str, tmp_path: Path
) -> None:
    """With the start of the log gone, the audit reports nothing as missing or extra that may be right."""
    pipeline = Pipeline(kafka=kafka, namespace=namespace, streams=1)
    await pipeline.create()
    await pipeline.send([fragment(f"k{n % 4}", data=n, end=n % 10 == 9) for n in range(100)])
    sessions = await pipeline.deliver_all()
    await delete_below(kafka, pipeline.names.fragments(0), 50)

    result = await asyncio.to_thread(audit, spark, pipeline.request("audit", tmp_path))

    assert found_in(result) == {}, result["examples"]
    assert (result["cut_streams"], result["fragments"], result["judged"]) == (1, 50, 0)
    assert result["not_judged"] >= len(sessions)
    assert result["verdict"] == "nothing judged"


async def test_sessions_that_retention_has_removed_are_not_missing(
    spark: SparkSession, kafka: str, namespace: str, tmp_path: Path
) -> None:
    """A sessions topic that begins above 0 says nothing of what came before; what came later is judged."""
    pipeline, before = await _two_batches(kafka, namespace)
    sessions, positions = await pipeline.sessions()
    lost = next(session for session, _ in sessions[before:] if session.key == "b5")
    kept = [(session.key.encode(), value) for session, value in sessions if session is not lost]
    await pipeline.deliver(kept)
    await pipeline.commit(positions)
    await delete_below(kafka, pipeline.names.sessions("default"), 5)

    result = await asyncio.to_thread(audit, spark, pipeline.request("audit", tmp_path))

    assert found_in(result) == {"missing": 1}, result["examples"]
    assert [one["key"] for one in result["examples"]] == ["b5"]
    assert (result["judged"], result["not_judged"]) == (len(sessions) - 5, 5)
    left_out = [one["what"] for one in result["left_out"] if one["what"] != "lake"]
    assert left_out == ["the sessions topic"]


@pytest.mark.parametrize("is_read", [False, True])
async def test_retention_that_deletes_during_the_run_does_not_fail_it(
    spark: SparkSession,
    kafka: str,
    namespace: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    is_read: bool,
) -> None:
    """Before the records are read or after: what is surely there is judged, and the rest is named."""
    pipeline, before = await _two_batches(kafka, namespace)
    sessions = await pipeline.deliver_all()
    deleted: list[str] = []
    judge = job._judge

    def judged(*arguments: Any) -> Any:
        verdicts = judge(*arguments) if is_read else None
        if not deleted:
            for topic in (pipeline.names.sessions("default"), pipeline.names.fragments(0)):
                deleted.append(topic)
                # the next attempt leaves out two more
                asyncio.run(delete_below(kafka, topic, 1))
        return verdicts or judge(*arguments)

    monkeypatch.setattr(job, "_judge", judged)

    result = await asyncio.to_thread(audit, spark, pipeline.request("audit", tmp_path))

    assert len(deleted) == 2
    assert found_in(result) == {}, result["examples"]
    judged_least = len(sessions) if is_read else len(sessions) - before
    assert result["judged"] >= judged_least
    assert any("during the run" in one["why"] for one in result["left_out"]) is not is_read
    assert result["verdict"] == "exact"


async def test_retention_that_deletes_during_every_attempt_does_not_fail_it(
    spark: SparkSession, kafka: str, namespace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next attempt starts ahead of what retention removes next. The result says how much it left out."""
    pipeline, _ = await _two_batches(kafka, namespace)
    sessions = await pipeline.deliver_all()
    attempts: list[int] = []
    judge = job._judge

    def judged(*arguments: Any) -> Any:
        attempts.append(len(attempts) + 1)
        for topic in (pipeline.names.sessions("default"), pipeline.names.fragments(0)):
            asyncio.run(delete_below(kafka, topic, 2 * len(attempts)))
        return judge(*arguments)

    monkeypatch.setattr(job, "_judge", judged)

    result = await asyncio.to_thread(audit, spark, pipeline.request("audit", tmp_path))

    assert attempts == [1, 2]
    assert found_in(result) == {}, result["examples"]
    assert (result["verdict"], 0 < result["judged"] < len(sessions)) == ("exact", True)
    (why,) = [one["why"] for one in result["left_out"] if one["what"] == "the oldest records"]
    assert "the next 8 offsets" in why


async def test_a_part_of_the_log_is_judged(
    spark: SparkSession, kafka: str, namespace: str, tmp_path: Path
) -> None:
    """Some streams, what began since a time, a sample of the keys: faults outside are not seen."""
    pipeline, _ = await _two_batches(kafka, namespace, streams=2)
    sessions, positions = await pipeline.sessions()
    table = initial_table(2)
    lost = {"a0", "a1", "b2", "b3", "b4"}
    await pipeline.deliver(
        [(session.key.encode(), value) for session, value in sessions if session.key not in lost]
    )
    await pipeline.commit(positions)
    parts: list[tuple[dict[str, str], set[str]]] = [
        ({"streams": "1"}, {key for key in lost if table.stream_for(key.encode()) == 1}),
        ({"since": _end_of_first_batch(sessions)}, {"b2", "b3", "b4"}),
        ({"sample": "0.5"}, {key for key in lost if zlib.crc32(key.encode()) < 2**31}),
    ]

    for part, expected in parts:
        result = await asyncio.to_thread(audit, spark, pipeline.request("audit", tmp_path, **part))

        assert {one["key"] for one in result["examples"]} == expected, part
        assert found_in(result) == {"missing": len(expected)}
        assert 0 < result["judged"] < len(sessions)
        assert next(iter(part)) in result["part"]


async def _two_batches(kafka: str, namespace: str, streams: int = 1) -> tuple[Pipeline, int]:
    """Sessions of the keys a0 … a9, and, when the broker's clock has moved on, of b0 … b9; how many a's."""
    pipeline = Pipeline(kafka=kafka, namespace=namespace, streams=streams, settings=FORGETFUL)
    await pipeline.create()
    await pipeline.send([fragment(f"a{n}", end=True) for n in range(10)])
    for _ in range(2):
        topics = [pipeline.names.fragments(stream) for stream in range(streams)]
        newest = max([(await records_of(kafka, topic))[-1].timestamp for topic in topics])
        for stream, topic in enumerate(topics):
            while (await records_of(kafka, topic))[-1].timestamp <= newest:
                await pipeline.send([(None, b"{}")], stream=stream)
    await pipeline.send([fragment(f"b{n}", end=True) for n in range(10)])
    return pipeline, 10


def _end_of_first_batch(sessions: list[tuple[Any, bytes]]) -> str:
    """The first time at which all sessions of the first batch had been appended."""
    last_ms = max(session.opened_at for session, _ in sessions if session.key.startswith("a"))
    return datetime.fromtimestamp((last_ms + 1) / 1000, UTC).isoformat(timespec="milliseconds")
