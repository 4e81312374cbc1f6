"""Reads what a group has delivered, independently of the code under test, and judges it.

The expectation is the dumb twin's eager fold over each stream's raw log (tests/reference.py) and the
fragments' own ids. It is compared with the sessions topic, read `read_committed`, and with the heads.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from shared.kafka.admin.committed import KafkaGroup
from shared.kafka.admin.heads import read_heads
from shared.kafka.connect.cluster import Cluster
from shared.model.group import GroupSettings
from shared.model.head import Counts, Head
from shared.model.names import DEFAULT_GROUP, Names
from shared.model.sessions import Session, parse_session
from tests.reference import Rec, delivered_row, fold_eagerly
from tests.topics import records_of


@dataclass(frozen=True, slots=True)
class Where:
    """A group's log and output: streams 0 … streams - 1, partitions of the sessions topic."""

    kafka: str
    names: Names
    streams: int
    partitions: int
    group: str = DEFAULT_GROUP

    async def heads(self) -> Mapping[int, Head]:
        """The committed heads."""
        async with Cluster(self.kafka) as cluster:
            kafka_group = KafkaGroup(cluster, self.names.kafka_group(self.group))
            return (await read_heads(kafka_group, self.names, range(self.streams))).all()

    async def log(self, stream: int) -> list[Rec]:
        """The raw log of a stream."""
        records = await records_of(self.kafka, self.names.fragments(stream))
        return [Rec(one.offset, one.timestamp, one.key, one.value) for one in records]

    async def delivered(self) -> list[Session]:
        """The sessions, as a `read_committed` reader sees them, partition after partition."""
        topic = self.names.sessions(self.group)
        return [
            parse_session(record.value)
            for partition in range(self.partitions)
            for record in await records_of(self.kafka, topic, partition)
        ]


def ids_of(values: Iterable[bytes]) -> list[str]:
    """The ids of the fragments that can be read."""
    found = []
    for value in values:
        try:
            fragment = json.loads(value)
        except ValueError:
            continue
        if "id" in fragment:
            found.append(fragment["id"])
    return found


async def judge(where: Where, settings: GroupSettings, delivered: list[Session]) -> list[str]:
    """What is wrong with the output of a group whose sessions have all been closed; empty when nothing is.

    Rule by rule: no session id twice, every fragment in exactly one session, sessions equal to the eager
    fold, counts of the heads exact.
    """
    wrong = []
    heads = await where.heads()
    twice = [one for one, number in Counter(session.id for session in delivered).items() if number > 1]
    if twice:
        wrong.append(f"{len(twice)} session ids twice, as {twice[:3]}")
    sent: set[str] = set()
    for stream in range(where.streams):
        log = await where.log(stream)
        found = [session for session in delivered if session.stream == stream]
        wrong += judge_log(stream, log, found, settings)
        if (counts := heads[stream].counts) != (right := counts_of(log, found)):
            wrong.append(f"stream {stream}: {counts} in the head instead of {right}")
        sent |= set(ids_of(record.value for record in log))
    in_sessions = Counter(one for session in delivered for one in ids_of(map(bytes, session.data)))
    if in_sessions != Counter(sent):
        lost, doubled = sent - in_sessions.keys(), [one for one, n in in_sessions.items() if n > 1]
        wrong.append(f"{len(lost)} fragments lost, {len(doubled)} doubled: {list(lost)[:3]} {doubled[:3]}")
    return wrong


def judge_log(
    stream: int, log: list[Rec], delivered: Iterable[Session], settings: GroupSettings
) -> list[str]:
    """What is wrong with a stream's sessions by its raw log alone; empty when nothing is."""
    closed, still_open = fold_eagerly(log, settings)
    wrong = [f"stream {stream}: {len(still_open)} sessions are still open"] if still_open else []
    expected = Counter(session.row() for session in closed)
    rows = Counter(map(delivered_row, delivered))
    for what, difference in (("missing", expected - rows), ("extra", rows - expected)):
        if difference:
            examples = [row[:3] for row in list(difference)[:3]]
            wrong.append(f"stream {stream}: {difference.total()} sessions {what}, as {examples}")
    return wrong


def counts_of(log: list[Rec], sessions: list[Session]) -> Counts:
    """The counts that a head must have at the end of a log whose fragments all have ids."""
    keyless = [record.value for record in log if record.key is None]
    readable = [record.value for record in log if record.key is not None and ids_of([record.value])]
    ticks = sum(value == b"{}" for value in keyless)
    in_sessions = sum(session.fragments for session in sessions)
    return Counts(
        fragments=len(readable),
        bytes=sum(map(len, readable)),
        repeats=len(readable) - in_sessions,
        markers=len(keyless) - ticks,
        ticks=ticks,
        unreadable=len(log) - len(keyless) - len(readable),
        sessions=len(sessions),
        delivered=in_sessions,
        delivered_bytes=sum(session.bytes for session in sessions),
    )
