"""The audit on a real log: no difference where there is none, and every planted one is found."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import TYPE_CHECKING, Any

from services.control.spark.audit import audit
from tests.spark import Pipeline, fragment

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
    """The audit's own fold and the consumer's assembler agree on a log with everything in it."""
    pipeline = Pipeline(kafka=kafka, namespace=namespace)
    await pipeline.create()
    await pipeline.send(_log(1, 3000))
    sessions, positions = await pipeline.sessions()
    await pipeline.deliver([(session.key.encode(), value) for session, value in sessions])
    await pipeline.commit(positions)

    result = await asyncio.to_thread(audit, spark, pipeline.request("audit", tmp_path))

    assert (result["missing"], result["extra"], result["different"]) == (0, 0, 0), result["examples"]
    assert result["delivered"] == result["expected"] == len(sessions) > 300
