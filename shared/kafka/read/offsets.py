"""Asks the leaders of partitions for their logs' bounds, or to move them: one request to each broker."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from typing import Final

from aiokafka.protocol.admin import DeleteRecordsRequest
from aiokafka.protocol.offset import OffsetRequest

from shared.backoff import Backoff
from shared.errors import KafkaUnavailable
from shared.kafka.connect.cluster import MOVED, REQUEST_TIMEOUT_S, Cluster
from shared.kafka.connect.refusals import reason_of, refusal
from shared.kafka.record import Partition
from shared.together import together

EARLIEST: Final = -2
LATEST: Final = -1
NONE: Final = -1
"""In place of an offset: no record is as late as asked for."""
_TIMED_OUT: Final = 7
"""The leader has deleted, and not all of its followers have yet."""
Questions = list[tuple[str, list[tuple[int, int]]]]
"""By topic: partitions, and the number that each is asked with."""
Answers = Iterable[tuple[Partition, int, int]]
"""Partition, error code, and offset."""


class _Moved(KafkaUnavailable):
    """The partition is led by another broker."""


async def list_offsets(
    cluster: Cluster, partitions: Collection[Partition], which: int, *, is_committed: bool = False
) -> dict[Partition, int]:
    """The first offset of each partition (`EARLIEST`), or the next one to be written (`LATEST`).

    `which` may also be a time in ms: then it is the offset of the first record that is not older, or `NONE`.
    With `is_committed`, `LATEST` is the first record whose transaction has not ended. Looks for new leaders
    for at most `REQUEST_TIMEOUT_S`, and raises KafkaUnavailable if one of the offsets cannot be had.
    """

    async def ask(node: int, questions: Questions) -> Answers:
        return await _ask_offsets(cluster, node, questions, is_committed=is_committed)

    return await _ask_leaders(cluster, dict.fromkeys(partitions, which), ask)


async def list_known_offsets(
    cluster: Cluster, partitions: Collection[Partition], which: int, *, is_committed: bool = False
) -> dict[Partition, int]:
    """What `list_offsets` returns, of each partition that has a leader which answers; asks once.

    Raises KafkaUnavailable if none of them can be had.
    """
    await cluster.know({topic for topic, _ in partitions})
    by_node, _ = _by_leader(cluster, dict.fromkeys(partitions, which))
    asking = [
        _ask_offsets(cluster, node, questions, is_committed=is_committed)
        for node, questions in by_node.items()
    ]
    found: dict[Partition, int] = {}
    for answer in await asyncio.gather(*asking, return_exceptions=True):
        if isinstance(answer, KafkaUnavailable):
            continue
        if isinstance(answer, BaseException):
            raise answer
        found |= {place: offset for place, error, offset in answer if not error}
    if len(found) < len(partitions):
        cluster.doubt()
    if not found:
        raise KafkaUnavailable("no leader answers")
    return found


async def _ask_offsets(cluster: Cluster, node: int, questions: Questions, *, is_committed: bool) -> Answers:
    answer = await cluster.request(node, "ask", OffsetRequest(-1, int(is_committed), questions))
    return (
        ((topic, number), error, offset) for topic, rows in answer.topics for number, error, _, offset in rows
    )


async def delete_records(cluster: Cluster, below: Mapping[Partition, int]) -> None:
    """Deletes the records below an offset of each partition; the offsets of the others stay.

    Only the leaders are waited for: their followers may take half a second, and all questions over the same
    connection would wait with them. So some of the records may come back with another leader. Looks for new
    leaders for at most `REQUEST_TIMEOUT_S`. Raises KafkaUnavailable; then some may be deleted.
    """

    async def ask(node: int, questions: Questions) -> Answers:
        request = DeleteRecordsRequest(questions, 0)
        answer = await cluster.request(node, "ask", request)
        return (
            ((topic, number), 0 if error == _TIMED_OUT else error, first)
            for topic, rows, *_ in answer.topics
            for number, first, error, *_ in rows
        )

    await _ask_leaders(cluster, below, ask)


async def _ask_leaders(
    cluster: Cluster, asked: Mapping[Partition, int], ask: Callable[[int, Questions], Awaitable[Answers]]
) -> dict[Partition, int]:
    """The offset that each partition's leader answers."""
    loop = asyncio.get_running_loop()
    until_s = loop.time() + REQUEST_TIMEOUT_S
    backoff = Backoff(first_s=0.02, cap_s=0.5)
    while True:
        try:
            return await _ask_leaders_once(cluster, asked, ask)
        except _Moved:
            if loop.time() > until_s:
                raise
        await asyncio.sleep(backoff.next_s())
        await cluster.refresh({topic for topic, _ in asked})


async def _ask_leaders_once(
    cluster: Cluster, asked: Mapping[Partition, int], ask: Callable[[int, Questions], Awaitable[Answers]]
) -> dict[Partition, int]:
    await cluster.know({topic for topic, _ in asked})
    by_node, orphan = _by_leader(cluster, asked)
    if orphan is not None:
        raise _Moved(f"{orphan[0]}/{orphan[1]} has no leader")
    found = {}
    for answers in await together(ask(node, questions) for node, questions in by_node.items()):
        for (topic, number), error, offset in answers:
            if error in MOVED:
                raise _Moved(f"{topic}/{number} is refused", cause=reason_of(error))
            if error:
                raise refusal(f"{topic}/{number} is refused", error)
            found[topic, number] = offset
    if left_out := asked.keys() - found.keys():
        raise KafkaUnavailable(f"no answer about {len(left_out)} partitions, e.g. {min(left_out)}")
    return found


def _by_leader(
    cluster: Cluster, asked: Mapping[Partition, int]
) -> tuple[dict[int, Questions], Partition | None]:
    """What to ask each broker, and a partition without a leader, if there is one."""
    by_node: dict[int, dict[str, list[tuple[int, int]]]] = {}
    orphan = None
    for (topic, number), value in asked.items():
        leader = cluster.leader(topic, number)
        if leader is None:
            orphan = topic, number
        else:
            by_node.setdefault(leader.node, {}).setdefault(topic, []).append((number, value))
    return {node: list(topics.items()) for node, topics in by_node.items()}, orphan
