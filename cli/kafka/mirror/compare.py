"""Compares a copy with its source: what is missing, how far it is behind, and whether it holds the same
records.

The offsets of both differ as a rule, because ends of transactions take some. So records are found by their
times, and compared in order: key, value, headers, time. `baton mirror check` shows a row for each partition.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import NamedTuple

import msgspec

from cli.kafka.bounds import Bounds, bounds_of
from cli.kafka.mirror.copy import copied_topics
from shared.kafka.admin.append_times import BROKER_TIME, TIMES
from shared.kafka.admin.catalog import list_all, read_settings
from shared.kafka.admin.committed import KafkaGroup
from shared.kafka.connect.cluster import Cluster
from shared.kafka.read.offsets import NONE, list_offsets
from shared.kafka.read.ranges import read_range
from shared.kafka.record import Partition
from shared.model.names import Names
from shared.together import together

SAME_SETTINGS = ("retention.ms", "retention.bytes", "cleanup.policy", "max.message.bytes")
AT_ONCE = 8
"""Partitions that are compared at the same time."""
COUNTED = 10_000
"""Up to so many offsets, what is missing is read and counted; beyond, the offsets are the number."""
BESIDE = 2_000
"""So many records with the same time are looked through for the first one that is compared."""


class Row(msgspec.Struct, kw_only=True):
    """A partition of a topic. `behind`: records that are not copied yet; `behind_s`: their times' span.
    `compared`: how many records were; `same_offsets`: whether each had its source's offset; None: none was.
    `faults`: what is wrong, in words.
    """

    topic: str
    partition: int
    source: tuple[int, int]
    target: tuple[int, int] | None = None
    behind: int = 0
    behind_s: float = 0.0
    compared: int = 0
    same_offsets: bool | None = None
    faults: list[str] = []


class _Record(NamedTuple):
    offset: int
    content: tuple[object, ...]

    @property
    def time_ms(self) -> int:
        time_ms = self.content[0]
        assert isinstance(time_ms, int)
        return time_ms


class Side(NamedTuple):
    """A partition at one of both, with its half-open offsets."""

    cluster: Cluster
    place: Partition
    first: int
    end: int

    async def records(self, first: int, end: int) -> AsyncIterator[_Record]:
        """Its committed records between these offsets."""
        async for one in read_range(
            self.cluster, self.place, max(first, self.first), min(end, self.end) - 1, is_committed=True
        ):
            yield _Record(one.offset, (one.timestamp, one.key, one.value, tuple(one.headers)))

    async def some(self, first: int, count: int) -> list[_Record]:
        """At most so many records from this offset on."""
        found = []
        async for one in self.records(first, self.end):
            found.append(one)
            if len(found) == count:
                break
        return found

    async def newest(self, count: int) -> list[_Record]:
        """The last records, at least `count` if there are as many."""
        width = count
        while True:
            found = [one async for one in self.records(self.end - width, self.end)]
            if len(found) >= count or width >= self.end - self.first:
                return found
            width *= 4

    async def offset_of_time(self, time_ms: int) -> int:
        """The offset of the first record that is not older; the end if there is none."""
        found = (await list_offsets(self.cluster, [self.place], time_ms))[self.place]
        return self.end if found == NONE else found


async def compare(source: Cluster, target: Cluster, names: Names, *, sample: int | None) -> list[Row]:
    """A row for each partition of the source's topics; `sample`: records at each end, None: all.

    Raises KafkaUnavailable.
    """
    topics = copied_topics(names, await list_all(source))
    there = set(await list_all(target))
    wanted = [TIMES, *SAME_SETTINGS]
    ours = await read_settings(source, topics, wanted) if topics else {}
    theirs = await read_settings(target, copies, wanted) if (copies := sorted(there & set(topics))) else {}
    limit = asyncio.Semaphore(AT_ONCE)
    rows: list[Row] = []

    async def one(topic: str) -> list[Row]:
        async with limit:
            # the copy first: all that it holds now is in what the source is asked for afterwards
            copied = await bounds_of(target, topic, is_committed=True) if topic in there else {}
            bounds = await bounds_of(source, topic, is_committed=True)
            if topic not in there:
                return [
                    Row(topic=topic, partition=n, source=place, faults=["is missing at the target"])
                    for n, place in bounds.items()
                ]
            faults = _faults_of_settings(
                {name: value.value for name, value in ours[topic].items()},
                {name: value.value for name, value in theirs[topic].items()},
            )
            if len(copied) != len(bounds):
                faults.append(f"has {len(copied)} partitions instead of {len(bounds)}")
            return [
                await _compare_partition(source, target, (topic, n), bounds, copied, sample, list(faults))
                for n in bounds
            ]

    for found in await together(map(one, topics)):
        rows += found
    return rows


async def synced_groups(target: Cluster, names: Names, topics: Sequence[str]) -> list[str]:
    """Groups of Baton that have committed offsets at the target: a copy that names the source's offsets.

    Raises KafkaUnavailable.
    """
    sessions = names.topic("sessions")
    groups = [
        "default",
        *(one.removeprefix(f"{sessions}.") for one in topics if one.startswith(f"{sessions}.")),
    ]
    kafka_groups = [names.kafka_group(group) for group in groups]
    return [name for name in kafka_groups if await KafkaGroup(target, name).all_committed()]


def _faults_of_settings(source: dict[str, str], target: dict[str, str]) -> list[str]:
    """What differs and should not.

    >>> _faults_of_settings({TIMES: BROKER_TIME}, {TIMES: BROKER_TIME})
    ['has LogAppendTime: copies bear the time at which they were made']
    """
    faults = [
        f"has {name}={target.get(name)} instead of {source[name]}"
        for name in SAME_SETTINGS
        if name in source and target.get(name) != source[name]
    ]
    if source.get(TIMES) == BROKER_TIME and target.get(TIMES) == BROKER_TIME:
        faults.append(f"has {BROKER_TIME}: copies bear the time at which they were made")
    return faults


async def _compare_partition(
    source: Cluster,
    target: Cluster,
    place: Partition,
    bounds: Bounds,
    copied: Bounds,
    sample: int | None,
    faults: list[str],
) -> Row:
    topic, number = place
    row = Row(topic=topic, partition=number, source=bounds[number], faults=faults)
    if number not in copied:
        return row
    row.target = copied[number]
    ours, theirs = Side(source, place, *bounds[number]), Side(target, place, *copied[number])
    tail = await theirs.newest(sample or 100)
    if tail:
        if (found := await _find(tail, ours)) is None:
            row.faults.append("its last records are not the source's, in their order")
        else:
            _note_match(row, tail, found)
            await _measure(row, ours, found[-1])
    else:
        await _measure(row, ours, None)
    await _compare_heads(row, ours, theirs, sample)
    return row


async def _compare_heads(row: Row, ours: Side, theirs: Side, sample: int | None) -> None:
    """Compares from the later one of both beginnings: retention removes whole segments at each side's own
    time."""
    heads = await ours.some(ours.first, 1), await theirs.some(theirs.first, 1)
    if not heads[0] or not heads[1]:
        return
    later, other = (theirs, ours) if heads[1][0].time_ms > heads[0][0].time_ms else (ours, theirs)
    begin = await other.offset_of_time((heads[1] if later is theirs else heads[0])[0].time_ms)
    if sample is not None:
        wanted = await later.some(later.first, sample)
        # the copy may be behind, even at its beginning
        beyond = [one async for one in _limited(other.records(begin, other.end), len(wanted) + BESIDE)]
        if (found := _run_in(wanted, beyond, is_prefix=later is ours)) is None:
            row.faults.append("its first records are not the source's, in their order")
        else:
            _note_match(row, wanted[: len(found)], found)
        return
    await _compare_all(row, later, other, begin)


async def _compare_all(row: Row, later: Side, other: Side, begin: int) -> None:
    """Compares record after record, to the end of the one that ends first."""
    first = (await later.some(later.first, 1))[0]
    others = other.records(begin, other.end)
    async for candidate in others:
        if candidate.content == first.content:
            break
    else:
        row.faults.append("its first records are not the source's, in their order")
        return
    pair: tuple[_Record, _Record] = (first, candidate)
    mine = later.records(first.offset + 1, later.end)
    while True:
        _note_match(row, [pair[0]], [pair[1]])
        try:
            pair = await anext(mine), await anext(others)
        except StopAsyncIteration:
            return
        if pair[0].content != pair[1].content:
            at = pair[0].offset if later.cluster is other.cluster else pair[1].offset
            row.faults.append(f"another record than the source's, at or after offset {at}")
            return


async def _limited(records: AsyncIterator[_Record], count: int) -> AsyncIterator[_Record]:
    async for one in records:
        yield one
        count -= 1
        if count <= 0:
            return


async def _find(wanted: Sequence[_Record], side: Side) -> list[_Record] | None:
    """The same records in the same order there, without others between them."""
    begin = await side.offset_of_time(wanted[0].time_ms)
    beyond = [one async for one in _limited(side.records(begin, side.end), len(wanted) + BESIDE)]
    return _run_in(wanted, beyond)


def _run_in(
    wanted: Sequence[_Record], found: Sequence[_Record], *, is_prefix: bool = False
) -> list[_Record] | None:
    """The part of `found` that equals `wanted`, or with `is_prefix` as much of its beginning as there is."""
    contents = [one.content for one in wanted]
    for at, one in enumerate(found):
        if one.content != contents[0]:
            continue
        part = list(found[at : at + len(contents)])
        is_same = [other.content for other in part] == contents[: len(part)]
        if is_same and (len(part) == len(contents) or is_prefix):
            return part
    return None


def _note_match(row: Row, mine: Sequence[_Record], others: Sequence[_Record]) -> None:
    row.compared += len(others)
    is_same = all(one.offset == other.offset for one, other in zip(mine, others, strict=False))
    row.same_offsets = is_same and row.same_offsets in (None, True)


async def _measure(row: Row, ours: Side, last: _Record | None) -> None:
    """How far the copy is behind, whose last record is this one of the source."""
    begin = ours.first if last is None else last.offset + 1
    row.behind = ours.end - begin
    if 0 < row.behind <= COUNTED:
        row.behind = len([one async for one in ours.records(begin, ours.end)])
    if row.behind:
        newest = await ours.newest(1)
        oldest = last or (await ours.some(begin, 1))[0]
        row.behind_s = round((newest[-1].time_ms - oldest.time_ms) / 1000, 3)
