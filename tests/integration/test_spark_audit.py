"""The audit on a real log: it reports no difference where there is none, and finds every planted one."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from services.control.spark.audit import audit
from shared.model.sessions import parse_session
from tests.spark import Pipeline, fragment
from tests.topics import delete_below

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MINUTE = 60_000


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
        if draw.random() < 0.01:
            records.append((None, b'{"time": %d}' % (time - 20 * MINUTE)))
        if draw.random() < 0.01:
            records.append((None, b"{}"))
        if draw.random() < 0.01:
            records.append((key.encode(), b'{"key": "another"}'))
    return records


async def test_an_honest_delivery_has_no_differences(
    spark: SparkSession, kafka: str, namespace: str, tmp_path: Path
) -> None:
    """The audit's own fold and the consumer's assembler agree on a log with every kind of record."""
    pipeline = Pipeline(kafka=kafka, namespace=namespace)
    await pipeline.create()
    await pipeline.send(_log(1, 3000))
    sessions, positions = await pipeline.sessions()
    await pipeline.deliver([(session.key.encode(), value) for session, value in sessions])
    await pipeline.commit(positions)

    result = await asyncio.to_thread(audit, spark, pipeline.request("audit", tmp_path))

    assert (result["missing"], result["extra"], result["different"]) == (0, 0, 0), result["examples"]
    assert result["delivered"] == result["expected"] == len(sessions) > 300


async def test_every_planted_fault_is_found(
    spark: SparkSession, kafka: str, namespace: str, tmp_path: Path
) -> None:
    """A session lost, doubled, with a changed byte, with a shifted boundary, in a wrong stream, invented."""
    pipeline = Pipeline(kafka=kafka, namespace=namespace, streams=2)
    await pipeline.create()
    await pipeline.send(
        [fragment(f"k{n % 8}", 1_700_000_000_000 + n, data=n, end=n >= 24) for n in range(32)]
    )
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
        # a sound delivery: epoch and closing time depend on who closed the session, and when
        ("k7", [_with(honest["k7"], epoch=9, closed_at=1)]),
    ]
    await pipeline.deliver([(key.encode(), value) for key, values in planted for value in values])
    await pipeline.commit(positions)

    result = await asyncio.to_thread(audit, spark, pipeline.request("audit", tmp_path))

    found = sorted((example["kind"], example["key"]) for example in result["examples"])
    assert found == [
        *(("different", "k2"), ("different", "k3")),
        *(("extra", ""), ("extra", "k1"), ("extra", "k4"), ("extra", "k5")),
        *(("missing", "k0"), ("missing", "k4")),
    ]
    assert (result["missing"], result["extra"], result["different"]) == (2, 4, 2)
    assert result["sound"] is False


async def test_sessions_cut_by_retention_are_counted_but_not_judged(
    spark: SparkSession, kafka: str, namespace: str, tmp_path: Path
) -> None:
    """With the start of the log gone, the audit reports nothing as missing or extra that may be right."""
    pipeline = Pipeline(kafka=kafka, namespace=namespace, streams=1)
    await pipeline.create()
    await pipeline.send([fragment(f"k{n % 4}", data=n, end=n % 10 == 9) for n in range(100)])
    sessions, positions = await pipeline.sessions()
    await pipeline.deliver([(session.key.encode(), value) for session, value in sessions])
    await pipeline.commit(positions)
    await delete_below(kafka, pipeline.names.fragments(0), 50)

    result = await asyncio.to_thread(audit, spark, pipeline.request("audit", tmp_path))

    assert (result["missing"], result["extra"], result["different"]) == (0, 0, 0), result["examples"]
    assert (result["cut_streams"], result["fragments"], result["judged"]) == (1, 50, 0)
    assert result["not_judged"] >= len(sessions)


async def test_a_stream_that_was_started_over_is_judged_by_its_present_log(
    spark: SparkSession, kafka: str, namespace: str, tmp_path: Path
) -> None:
    """What the log before it delivered is counted, and the present log must be delivered in full."""
    pipeline = Pipeline(kafka=kafka, namespace=namespace, streams=1)
    await pipeline.create()
    await pipeline.send([fragment(f"k{n % 4}", data=n, end=n % 10 == 9) for n in range(100)])
    before, positions = await pipeline.sessions()
    after, _ = await pipeline.sessions(log=52)
    assert {session.id for session, _ in before}.isdisjoint(session.id for session, _ in after)
    await pipeline.deliver([(session.key.encode(), value) for session, value in (*before, *after[1:])])
    await pipeline.commit(positions, log=52)

    result = await asyncio.to_thread(audit, spark, pipeline.request("audit", tmp_path))

    assert (result["missing"], result["extra"], result["different"]) == (1, 0, 0), result["examples"]
    assert (result["not_judged"], result["judged"]) == (len(before), len(after))


def _with(value: bytes, *, without_last: bool = False, **fields: Any) -> bytes:
    session = msgspec.json.decode(value) | fields
    if without_last:
        session["data"].pop()
    return msgspec.json.encode(session)
