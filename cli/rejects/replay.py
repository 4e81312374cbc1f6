"""Replays rejects: sends those of one reason again, in their order, each once.

It reads the topic up to its end at the start, so a fragment that is rejected again (and appended to the
topic) waits for the next replay. The offset is committed after the producer's acknowledgement. After an
interruption a fragment may be sent twice, with the same id, and consumers drop the repeat. Used by
`cli/rejects/command.py`.
"""

from __future__ import annotations

import re
from codecs import BOM_UTF8
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from cli.http.client import BatonClient
from cli.importing.fragments import Outgoing
from cli.importing.lanes import BatchLimits, Lane
from cli.importing.tally import Tally
from cli.kafka.rejects import StoredReject

# the opening brace after an optional byte order mark; the group matches if the object is empty
_OBJECT = re.compile(rb"(?:\xef\xbb\xbf)?[ \t\r\n]*\{(?=[ \t\r\n]*(\})?)")


class ReplayLog(Protocol):
    """The topic of rejects and how far one reason was replayed: `RejectedLog`, or a fake in tests."""

    bounds: Mapping[int, tuple[int, int]]

    def read(self, partition: int, start: int) -> AsyncIterator[Sequence[StoredReject]]:
        """The rejects of a partition from `start` to its end, in pages."""

    async def committed(self, partition: int) -> int | None:
        """The offset up to which the reason was replayed."""

    async def commit(self, partition: int, offset: int) -> None:
        """Records that everything below `offset` was replayed."""


@dataclass(slots=True, kw_only=True)
class Replayed:
    """Counts so far: `found` rejects of the reason = `cut` + `no_object` + `to_send`.

    `tally` counts what was sent; the `line` of its reasons is an offset.
    """

    found: int = 0
    cut: int = 0
    no_object: int = 0
    tally: Tally = field(default_factory=Tally)

    @property
    def to_send(self) -> int:
        """The number of rejects that can be sent again."""
        return self.found - self.cut - self.no_object

    @property
    def all_accepted(self) -> bool:
        """Whether every reject was accepted this time."""
        return self.tally.accepted == self.found


def replay_id(partition: int, offset: int) -> str:
    """The id of a replayed reject that was posted without one."""
    return f"rejected/{partition}/{offset}"


def with_id(value: bytes, identifier: str) -> bytes | None:
    """The JSON object with the id inserted after its opening brace; None for anything else.

    All other bytes stay the same. If the object has an id, that one comes later and therefore wins.

    >>> with_id(b'{"key": "a"}', "rejected/0/7"), with_id(b" { }", "rejected/0/8"), with_id(b"[1]", "x")
    (b'{"id":"rejected/0/7","key": "a"}', b' {"id":"rejected/0/8" }', None)
    """
    found = _OBJECT.match(value)
    if found is None:
        return None
    comma = b"" if found[1] else b","
    return b'%b"id":"%b"%b%b' % (value[: found.end()], identifier.encode(), comma, value[found.end() :])


async def replay(
    log: ReplayLog,
    producer: BatonClient,
    reason: str,
    *,
    limits: BatchLimits,
    replayed: Replayed,
) -> None:
    """Sends the rejects of a reason again; `replayed` has the counts, even when this raises.

    Raises KafkaUnavailable and the errors of `producer`; what was acknowledged before stays committed.
    """
    async for partition, page in _pages(log):
        # below every offset: nothing of this page is committed yet
        committed = 0
        for batch in _batches(_outgoing(page, reason, replayed), limits):
            await _send(batch, producer, limits, replayed.tally)
            committed = batch[-1].line + 1
            await log.commit(partition, committed)
        # also past rejects of other reasons, so that the next replay does not read them again
        if committed <= page[-1].offset:
            await log.commit(partition, page[-1].offset + 1)


async def count(log: ReplayLog, reason: str, replayed: Replayed) -> None:
    """Counts what `replay` would find; sends and commits nothing. Raises KafkaUnavailable."""
    async for _, page in _pages(log):
        for _ in _outgoing(page, reason, replayed):
            pass


async def _pages(log: ReplayLog) -> AsyncIterator[tuple[int, Sequence[StoredReject]]]:
    for partition, (first, end) in log.bounds.items():
        committed = await log.committed(partition)
        # an offset beyond the end belongs to an earlier topic of this name, which was deleted
        start = first if committed is None or committed > end else committed
        async for page in log.read(partition, start):
            yield partition, page


def _outgoing(page: Iterable[StoredReject], reason: str, replayed: Replayed) -> Iterator[Outgoing]:
    for stored in page:
        reject = stored.reject
        if reject.reason != reason:
            continue
        replayed.found += 1
        value = with_id(reject.value, replay_id(stored.partition, stored.offset))
        if reject.is_cut:
            replayed.cut += 1
        elif value is None:
            replayed.no_object += 1
        else:
            yield Outgoing(stored.offset, stored.time_ms, value)


def _batches(fragments: Iterable[Outgoing], limits: BatchLimits) -> Iterator[list[Outgoing]]:
    batch: list[Outgoing] = []
    size = 0
    for fragment in fragments:
        size += len(fragment.value) + 1
        is_full = size > limits.bytes or len(batch) == limits.fragments
        if batch and (is_full or _is_alone(fragment) or _is_alone(batch[0])):
            yield batch
            batch, size = [], len(fragment.value) + 1
        batch.append(fragment)
    if batch:
        yield batch


def _is_alone(fragment: Outgoing) -> bool:
    """Whether the fragment must be sent alone: NDJSON holds neither line breaks nor a byte order mark."""
    return b"\n" in fragment.value or fragment.value.startswith(BOM_UTF8)


async def _send(batch: list[Outgoing], producer: BatonClient, limits: BatchLimits, tally: Tally) -> None:
    # a lane for each batch: it halves what is too large for the producer, and counts the outcome
    post = producer.post_fragment if _is_alone(batch[0]) else producer.post_fragments
    lane = Lane(post, tally, limits)
    for fragment in batch:
        # never waits, although the lane does not run yet: it has room for two such batches
        await lane.offer(fragment)
    lane.close()
    await lane.run()
