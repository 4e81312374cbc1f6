"""Reads what a take-over depends on from the target's Kafka and ZooKeeper, and carries its steps out.

`take_over.py` decides. Reading the streams takes as long as reading everything that was copied; it is done
only for a group that is to follow.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Mapping

from cli.kafka.bounds import bounds_of
from cli.kafka.mirror.config import WORKERS
from cli.kafka.mirror.copied_sessions import CopiedStream
from cli.kafka.mirror.take_over import (
    Copy,
    Following,
    MakeGroup,
    MakeTable,
    Step,
    StreamCopy,
    TopicFacts,
    table_of,
)
from services.control.core.groups.rewinds import time_of_wish
from shared.errors import Conflict
from shared.kafka.admin.append_times import TIMES
from shared.kafka.admin.catalog import change_settings, count_replicas, list_all, read_settings
from shared.kafka.admin.committed import KafkaGroup
from shared.kafka.admin.topics import MIN_INSYNC
from shared.kafka.connect.cluster import Cluster
from shared.kafka.read.offsets import LATEST, NONE, list_offsets
from shared.kafka.read.ranges import read_range
from shared.model.names import Names
from shared.model.start import GroupStart
from shared.together import together
from shared.zookeeper.group_chain import read_start
from shared.zookeeper.stream_table import read_table
from shared.zookeeper.znodes import Create, Operation, Znodes

Note = Callable[[str], None]


def copied_topics(names: Names, topics: Collection[str]) -> list[str]:
    """Those of the topics that a mirror copies.

    >>> copied_topics(Names(), ["fragments.0000", "sessions.a", "sessions", "sessionsx", "baton.events"])
    ['fragments.0000', 'sessions', 'sessions.a']
    """
    sessions = names.topic("sessions")
    return sorted(
        topic
        for topic in topics
        if topic.startswith((names.topic("fragments."), f"{sessions}.")) or topic == sessions
    )


async def read_copy(
    cluster: Cluster, znodes: Znodes, names: Names, following: Following | None, note: Note = lambda _: None
) -> Copy:
    """What is at the target; the streams only for a group that is to follow and does not exist yet.

    Raises KafkaUnavailable, ZooKeeperUnavailable, TableUnreadable, InvalidInput.
    """
    topics = copied_topics(names, await list_all(cluster))
    settings = await read_settings(cluster, topics, [TIMES, MIN_INSYNC]) if topics else {}
    replicas = await count_replicas(cluster, topics) if topics else {}
    table = await read_table(znodes, names)
    groups = await _groups(znodes, names)
    copy = Copy(
        names=names,
        topics={
            topic: TopicFacts(
                settings={name: one.value for name, one in settings[topic].items()},
                replicas=max(replicas.get(topic, [1])),
            )
            for topic in topics
        },
        copiers=await KafkaGroup(cluster, WORKERS).count_members(),
        undecided=await _undecided(
            cluster, [topic for topic in topics if names.stream_of(topic) is not None]
        ),
        table=table.count if table is not None else None,
        groups=groups,
    )
    is_followed = following is not None and following.follows in copy.delivering_groups()
    if following is None or not is_followed or following.group in groups or copy.copiers or copy.undecided:
        return copy
    streams = await _read_streams(cluster, names, copy.count, following, note)
    return dataclasses.replace(copy, streams=streams)


async def carry_out(cluster: Cluster, znodes: Znodes, names: Names, step: Step) -> None:
    """Does one step; one that another process has just done is done. Raises Unavailable, Conflict."""
    if isinstance(step, MakeGroup):
        await _make_group(znodes, names, step)
    elif isinstance(step, MakeTable):
        await znodes.make_path(names.root)
        await znodes.create(names.table, table_of(step.streams))
    else:
        await change_settings(cluster, step.topic, step.changes)


async def _make_group(znodes: Znodes, names: Names, step: MakeGroup) -> None:
    # all in one transaction: members of a group without its start would begin where the log does
    await znodes.make_path(names.groups)
    made: list[Operation] = [
        Create(names.group(step.group), step.settings.encode()),
        Create(names.start(step.group), step.start.encode()),
        *(
            Create(path, b"")
            for path in (names.streams(step.group), names.claims(step.group), names.members(step.group))
        ),
    ]
    if not await znodes.transact(made) and await read_start(znodes, names, step.group) != step.start:
        raise Conflict(f"group {step.group!r} has just been made by somebody else: look again")


async def _undecided(cluster: Cluster, topics: Collection[str]) -> list[str]:
    places = [(topic, 0) for topic in topics]
    ends = await list_offsets(cluster, places, LATEST)
    decided = await list_offsets(cluster, places, LATEST, is_committed=True)
    return [place[0] for place in places if decided[place] < ends[place]]


async def _groups(znodes: Znodes, names: Names) -> dict[str, GroupStart | None]:
    if await znodes.get(names.groups, awaits_creation=False) is None:
        return {}
    found = await znodes.children(names.groups)
    starts = await together(read_start(znodes, names, group) for group in found)
    return dict(zip(found, starts, strict=True))


async def _read_streams(
    cluster: Cluster, names: Names, count: int, following: Following, note: Note
) -> Mapping[int, StreamCopy]:
    logs = {stream: (names.fragments(stream), 0) for stream in range(count)}
    bounds = {stream: (await bounds_of(cluster, log[0]))[0] for stream, log in logs.items()}
    streams = {stream: CopiedStream(stream, *bounds[stream]) for stream in logs}
    note(f"reading the sessions of {following.follows}")
    await _read_sessions(cluster, names.sessions(following.follows), streams, CopiedStream.add_session)
    for stream, log in logs.items():
        note(f"reading {log[0]}")
        first, end = bounds[stream]
        async for record in read_range(cluster, log, first, end - 1, is_committed=True):
            streams[stream].add_record(record.offset, record.key, record.value, record.timestamp)
    note(f"reading the sessions of {following.follows} again")
    await _read_sessions(cluster, names.sessions(following.follows), streams, CopiedStream.add_ids)
    time_ms = time_of_wish(following.to)
    places = list(logs.values())
    at = await list_offsets(cluster, places, time_ms) if time_ms is not None else {}
    for one in streams.values():
        one.finish()
    return {
        stream: StreamCopy(
            first=bounds[stream][0],
            end=bounds[stream][1],
            at=None if at.get(log, NONE) == NONE else at[log],
            delivered=streams[stream].delivered,
            fault=streams[stream].fault,
        )
        for stream, log in logs.items()
    }


async def _read_sessions(
    cluster: Cluster,
    topic: str,
    streams: Mapping[int, CopiedStream],
    add: Callable[[CopiedStream, bytes], None],
) -> None:
    bounds = await bounds_of(cluster, topic)
    for partition, (first, end) in bounds.items():
        here = [one for stream, one in streams.items() if stream % len(bounds) == partition]
        async for record in read_range(cluster, (topic, partition), first, end - 1, is_committed=True):
            for one in here:
                add(one, record.value or b"")
