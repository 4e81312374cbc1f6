"""Judges what is current in a group, as a program of its own: it shares no code with Baton or its tests.

`python seam_judge.py BOOTSTRAP PREFIX STREAMS < current.json`: reads the fragments of all streams and the
sessions that the answer of `GET /groups/{g}/current` names, and prints what is wrong, one line each. Every
readable fragment must stand in exactly one current session, in the order of the log; only a repeat of an id
that its key has had may stand in none.
"""

from __future__ import annotations

import asyncio
import collections
import itertools
import json
import sys
from typing import Any

import aiokafka


async def read(bootstrap: str, topic: str) -> list[Any]:
    """All committed records of a topic, partition after partition."""
    consumer = aiokafka.AIOKafkaConsumer(
        bootstrap_servers=bootstrap,
        isolation_level="read_committed",
        enable_auto_commit=False,
        auto_offset_reset="earliest",
    )
    await consumer.start()
    try:
        numbers = await consumer._client.fetch_all_metadata()
        places = [aiokafka.TopicPartition(topic, n) for n in numbers.partitions_for_topic(topic)]
        consumer.assign(places)
        ends = await consumer.end_offsets(places)
        found = []
        while any([await consumer.position(place) < ends[place] for place in places]):
            for records in (await consumer.getmany(timeout_ms=500)).values():
                found += records
        return found
    finally:
        await consumer.stop()


def is_current(session: dict[str, Any], cuts: list[dict[str, Any]] | None) -> bool:
    """Whether the answer names this session."""
    if cuts is None:
        return True
    cut = next(cut for cut in cuts if cut["stream"] == session["stream"])
    return cut["below"] is None or session["first_offset"] < cut["below"]


def judge_key(stream: int, key: str, log: list[Any], sessions: list[dict[str, Any]]) -> list[str]:
    """What is wrong with one key: its records, and its current sessions in the order of the log."""
    where, wrong, had = f"stream {stream}, {key}", [], set()
    for before, after in itertools.pairwise(sessions):
        if before["last_offset"] >= after["first_offset"]:
            wrong.append(f"{where}: sessions overlap at {after['first_offset']}")
    left = [
        (session["first_offset"], session["last_offset"], collections.deque(session["data"]))
        for session in sessions
    ]
    for offset, fragment in log:
        held = next((data for first, last, data in left if first <= offset <= last), None)
        if held and held[0] == fragment:
            held.popleft()
            had.add(fragment["id"])
        elif fragment["id"] not in had:
            wrong.append(f"{where}: the fragment at {offset} is in no current session")
    return wrong + [f"{where}: {len(data)} fragments too many" for _, _, data in left if data]


async def main(bootstrap: str, prefix: str, streams: int) -> list[str]:
    """What is wrong."""
    logs: dict[tuple[int, str], list[Any]] = collections.defaultdict(list)
    sessions: dict[tuple[int, str], list[Any]] = collections.defaultdict(list)
    for stream in range(streams):
        for record in await read(bootstrap, f"{prefix}fragments.{stream:04}"):
            if record.key is not None and record.value != b"poison":
                logs[stream, record.key.decode()].append((record.offset, json.loads(record.value)))
    counts: collections.Counter[str] = collections.Counter()
    for one in json.load(sys.stdin)["current"]:
        for record in await read(bootstrap, one["topic"]):
            session = json.loads(record.value)
            if is_current(session, one["cuts"]):
                counts[one["group"]] += 1
                sessions[session["stream"], session["key"]].append(session)
    wrong = [] if logs and counts else ["nothing was read"]
    for place in logs.keys() | sessions.keys():
        in_order = sorted(sessions[place], key=lambda session: session["first_offset"])
        wrong += judge_key(*place, logs[place], in_order)
    return wrong


if __name__ == "__main__":
    for line in asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3]))):
        print(line)
