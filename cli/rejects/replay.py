"""Sending rejects again: those of one reason, in their order, each once.

Reads the topic up to where it ended at the start, so what is refused again (and so stands in the topic
anew) waits for the next time. The place is kept when the producer has acknowledged; what an interruption
sends twice has the same id both times, and the second is dropped as a repeat. Used by
`cli/rejects/command.py`.
"""

from __future__ import annotations

import re
from codecs import BOM_UTF8
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from cli.importing.fragments import Outgoing
from cli.importing.lanes import BatchLimits, Lane
from cli.importing.tally import Tally
from cli.kafka.rejects import StoredReject
from cli.receipts import Receipt

_OBJECT = re.compile(rb"(?:\xef\xbb\xbf)?[ \t\r\n]*\{(?=[ \t\r\n]*(\})?)")


class RejectedPlaces(Protocol):
    """Where rejects come from, and where the place is kept: `RejectedLog`, or a twin in tests."""

    bounds: Mapping[int, tuple[int, int]]

    def read(self, partition: int, start: int) -> AsyncIterator[Sequence[StoredReject]]:
        """What a partition holds from `start` to its end, in pages."""

    async def place(self, partition: int) -> int | None:
        """Up to where the reason was sent again."""

    async def keep_place(self, partition: int, offset: int) -> None:
        """All below `offset` was sent again."""


class ProducerCalls(Protocol):
    """Where fragments go: `BatonClient`, or a twin in tests."""

    async def post_fragments(self, body: bytes) -> Receipt:
        """What became of the NDJSON's fragments."""

    async def post_fragment(self, body: bytes) -> Receipt:
        """What became of the one JSON object."""


@dataclass(slots=True, kw_only=True)
class Replayed:
    """Counts so far: `found` of the reason = `cut` + `no_object` + those to be sent.

    `tally` counts what was sent; the first place of a reason in it is an offset.
    """

    found: int = 0
    cut: int = 0
    no_object: int = 0
    tally: Tally = field(default_factory=Tally)

    @property
    def to_send(self) -> int:
        """Those that can be sent again."""
        return self.found - self.cut - self.no_object

    @property
    def all_accepted(self) -> bool:
        """Whether every reject that was found is a fragment now."""
        return self.tally.accepted == self.found


@dataclass(frozen=True, slots=True, kw_only=True)
class _Batch:
    """Fragments for one request; one that is written in several lines goes alone, as NDJSON has none such."""

    fragments: list[Outgoing]
    is_alone: bool


def replay_id(partition: int, offset: int) -> str:
    """The id under which a reject is sent again."""
    return f"rejected/{partition}/{offset}"


def with_id(value: bytes, identifier: str) -> bytes | None:
    """The JSON object with the id put right behind its opening brace; None for what is no object.

    All other bytes stay as they were. An id of its own stands later, and so is the one that counts.

    >>> with_id(b'{"key": "a"}', "rejected/0/7"), with_id(b" { }", "rejected/0/8"), with_id(b"[1]", "x")
    (b'{"id":"rejected/0/7","key": "a"}', b' {"id":"rejected/0/8" }', None)
    """
    found = _OBJECT.match(value)
    if found is None:
        return None
    comma = b"" if found[1] else b","
    return b'%b"id":"%b"%b%b' % (value[: found.end()], identifier.encode(), comma, value[found.end() :])


async def replay(
    log: RejectedPlaces,
    producer: ProducerCalls,
    reason: str,
    *,
    limits: BatchLimits,
    replayed: Replayed,
    on_progress: Callable[[], None] = lambda: None,
) -> None:
    """Sends the rejects of a reason again; `replayed` has the counts, also when this raises.

    Raises KafkaUnavailable, and whatever `producer` raises to give up; the place is kept up to there.
    """
    async for partition, page in _pages(log):
        kept = 0
        for batch in _batches(_outgoing(page, reason, replayed), limits):
            await _send(batch, producer, limits, replayed.tally, on_progress)
            kept = batch.fragments[-1].line + 1
            await log.keep_place(partition, kept)
        if kept <= page[-1].offset:
            await log.keep_place(partition, page[-1].offset + 1)


async def count(log: RejectedPlaces, reason: str, replayed: Replayed) -> None:
    """Counts what `replay` would find; sends nothing and keeps no place. Raises KafkaUnavailable."""
    async for _, page in _pages(log):
        for _ in _outgoing(page, reason, replayed):
            pass


async def _pages(log: RejectedPlaces) -> AsyncIterator[tuple[int, Sequence[StoredReject]]]:
    for partition, (first, end) in log.bounds.items():
        place = await log.place(partition)
        # a place beyond the end is one in a topic that is gone
        start = first if place is None or place > end else place
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


def _batches(fragments: Iterable[Outgoing], limits: BatchLimits) -> Iterator[_Batch]:
    batch: list[Outgoing] = []
    size = 0
    for fragment in fragments:
        is_alone = b"\n" in fragment.value or fragment.value.startswith(BOM_UTF8)
        size += len(fragment.value) + 1
        if batch and (is_alone or size > limits.bytes or len(batch) == limits.fragments):
            yield _Batch(fragments=batch, is_alone=False)
            batch, size = [], len(fragment.value) + 1
        if is_alone:
            yield _Batch(fragments=[fragment], is_alone=True)
            size = 0
        else:
            batch.append(fragment)
    if batch:
        yield _Batch(fragments=batch, is_alone=False)


class _Alone:
    """Posts what a lane sends as the one JSON object that it is."""

    def __init__(self, producer: ProducerCalls) -> None:
        self._producer = producer

    async def post_fragments(self, body: bytes) -> Receipt:
        return await self._producer.post_fragment(body)


async def _send(
    batch: _Batch, producer: ProducerCalls, limits: BatchLimits, tally: Tally, on_progress: Callable[[], None]
) -> None:
    lane = Lane(_Alone(producer) if batch.is_alone else producer, tally, limits, on_progress)
    for fragment in batch.fragments:
        await lane.offer(fragment)  # has room for two such batches
    lane.close()
    await lane.run()
