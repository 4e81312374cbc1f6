"""Judges what is current in a group, as a program of its own: it shares no code with Baton or its tests.

`python seam_judge.py BOOTSTRAP PREFIX STREAMS < current.json`: reads the fragments of all streams and the
sessions that the answer of `GET /groups/{g}/current` names, and prints what is wrong, one line each. Every
readable fragment must stand in exactly one current session, in the order of the log; only a repeat of an id
that its key has had may stand in none.

With `--keep FILE` it only writes the fragments to a file. With `--lost FILE` it judges the logs in there too
whose topics have been made anew since, by the current sessions of logs that are gone.
"""

from __future__ import annotations

import argparse
import asyncio
import collections
import itertools
import json
import sys
from pathlib import Path
from typing import Any

import aiokafka

Logs = dict[str, list[Any]]
"""By stream the readable fragments of its log: offset, append time, key, value."""
ANEW, GONE = "", "lost "
"""The log that a stream has, and the one that it had before."""


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


async def read_logs(bootstrap: str, prefix: str, streams: int) -> Logs:
    """The readable fragments of all streams, as JSON has them."""
    return {
        str(stream): [
            [record.offset, record.timestamp, record.key.decode(), json.loads(record.value)]
            for record in await read(bootstrap, f"{prefix}fragments.{stream:04}")
            if record.key is not None and record.value != b"poison"
        ]
        for stream in range(streams)
    }


def log_of(session: dict[str, Any], cuts: list[dict[str, Any]] | None) -> str | None:
    """Which log of its stream the session is from, None if the answer does not name the session."""
    if cuts is None:
        return ANEW
    cut = next(cut for cut in cuts if cut["stream"] == session["stream"])
    number = session.get("log", 0)
    if number != cut["log"]:
        return GONE if number < cut["log"] else None
    if cut["below"] is None:
        return GONE
    return ANEW if session["first_offset"] < cut["below"] else None


def judge_key(where: str, log: list[Any], sessions: list[dict[str, Any]]) -> list[str]:
    """What is wrong with one key: its records, and its current sessions in the order of the log."""
    wrong, had = [], set()
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


async def main(bootstrap: str, prefix: str, streams: int, lost: Logs) -> list[str]:
    """What is wrong."""
    logs: dict[str, list[Any]] = collections.defaultdict(list)
    sessions: dict[str, list[Any]] = collections.defaultdict(list)
    there = await read_logs(bootstrap, prefix, streams)
    gone = {stream: log for stream, log in lost.items() if log and there[stream][: len(log)] != log}
    for which, of_streams in ((ANEW, there), (GONE, gone)):
        for stream, log in of_streams.items():
            for offset, _, key, fragment in log:
                logs[f"{which}stream {stream}, {key}"].append((offset, fragment))
    counts: collections.Counter[str] = collections.Counter()
    for one in json.load(sys.stdin)["current"]:
        for record in await read(bootstrap, one["topic"]):
            session = json.loads(record.value)
            of_log = log_of(session, one["cuts"])
            if of_log is not None:
                counts[one["group"]] += 1
                sessions[f"{of_log}stream {session['stream']}, {session['key']}"].append(session)
    wrong = [] if logs and counts else ["nothing was read"]
    if lost and not gone:
        wrong.append("no log is gone")
    for place in logs.keys() | sessions.keys():
        in_order = sorted(sessions[place], key=lambda session: session["first_offset"])
        wrong += judge_key(place, logs[place], in_order)
    return wrong


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("bootstrap")
    parser.add_argument("prefix")
    parser.add_argument("streams", type=int)
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--lost", type=Path)
    given = parser.parse_args()
    where = given.bootstrap, given.prefix, given.streams
    if given.keep:
        given.keep.write_text(json.dumps(asyncio.run(read_logs(*where))))
    else:
        kept = json.loads(given.lost.read_text()) if given.lost else {}
        for line in asyncio.run(main(*where, kept)):
            print(line)
