"""A rewound group, compared with an ordinary one that reads the same records.

A group has read the backlog of `bench.sessionize`. One group follows it from the middle of each stream, where
2,000 sessions are open, another one starts there alone. Each round runs both in processes of their own, from
the claim to the end of the log: so it counts that the rewound one reads the followed group's sessions, and
stores what they cover. Run it with `make bench`, or alone with `python -m bench groups`.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from typing import Any

from bench.report import Row
from bench.sessionize import FRAGMENTS, NAMES, STREAMS, fill, read_all
from shared.kafka.connect.cluster import Cluster
from shared.kafka.read.offsets import LATEST, list_offsets
from shared.model.start import GroupStart

ROUNDS = 5
FIRST = "first"


async def middles(kafka: str) -> dict[int, int | None]:
    """The middle of each stream."""
    logs = {n: (NAMES.fragments(n), 0) for n in range(STREAMS)}
    async with Cluster(kafka) as cluster:
        ends = await list_offsets(cluster, list(logs.values()), LATEST)
    return {n: ends[log] // 2 for n, log in logs.items()}


async def read_from_the_middle(kafka: str, group: str, follows: str | None) -> dict[str, float]:
    """Lets the group read to the end; its fragments per second, and how many of them are covered."""
    starts = await middles(kafka)
    began_s = time.perf_counter()
    workers = await read_all(kafka, group, [GroupStart(follows=follows, offsets=starts)])
    seconds = time.perf_counter() - began_s
    read = sum(worker.counts.fragments for worker in workers)
    assert read == FRAGMENTS - sum(start or 0 for start in starts.values()), read
    return {"per_s": read / seconds, "covered": sum(worker.counts.covered for worker in workers)}


def run(kafka: str, *, is_filled: bool = False) -> list[Row]:
    """Fills the backlog, unless it is there already, then measures both groups in turns."""
    if not is_filled:
        asyncio.run(fill(kafka))
    asyncio.run(read_all(kafka, FIRST))
    found: dict[str, list[float]] = {FIRST: [], "": []}
    for number in range(ROUNDS + 1):
        for follows, values in found.items():
            argv = [
                sys.executable,
                "-m",
                "bench.groups",
                kafka,
                f"round-{number}-{follows or 'alone'}",
                follows,
            ]
            done = subprocess.run(argv, check=True, capture_output=True, text=True, timeout=120)
            figures: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
            assert bool(figures["covered"]) == bool(follows), figures
            if number:  # the first round warms up the broker
                values.append(figures["per_s"])
    return [
        Row(
            name="a rewound group: fragments read",
            unit="1/s",
            baton=found[FIRST],
            baseline=found[""],
            target="≥ 0.95 ×",
        )
    ]


def _child(kafka: str, group: str, follows: str) -> None:
    import uvloop

    print(json.dumps(uvloop.run(read_from_the_middle(kafka, group, follows or None))))


if __name__ == "__main__":
    _child(*sys.argv[1:])
