"""Replays rejects: sends those of one reason again, in their order, each once.

It reads the topic up to its end at the start, so a fragment that is rejected again (and appended to the
topic) waits for the next replay. The place is committed after the producer's acknowledgement. After an
interruption a fragment may be sent twice, with the same id, and consumers drop the repeat. Dismissed rejects
are not sent, and neither is an earlier record of one that was rejected again. A place in another log (the
topic was deleted) is replaced. Used by `cli/rejects/command.py`.
"""

from __future__ import annotations

import re
from codecs import BOM_UTF8
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from cli.http.client import BatonClient
from cli.importing.parsing.fragments import Outgoing
from cli.importing.sending.lanes import BatchLimits, Lane
from cli.importing.tally import Tally
from cli.kafka.rejects import Place, StoredReject
from cli.rejects.identity import OpenRejects, posted_of

# the opening brace after an optional byte order mark; the group matches if the object is empty
_OBJECT = re.compile(rb"(?:\xef\xbb\xbf)?[ \t\r\n]*\{(?=[ \t\r\n]*(\})?)")


class ReplayLog(Protocol):
    """The topic of rejects and how far one reason was replayed: `RejectedLog`, or a fake in tests."""

    bounds: Mapping[int, tuple[int, int]]
    opened_at: Mapping[int, Place]

    def read(self, partition: int, start: int) -> AsyncIterator[Sequence[StoredReject]]:
        """The rejects of a partition from `start` to its end, in pages."""

    def forget(self, partition: int) -> None:
        """Makes the next commit replace the place, however far that was."""

    async def commit(self, partition: int, place: Place) -> None:
        """Records that everything below the place was replayed."""


@dataclass(slots=True, kw_only=True)
class Replayed:
    """Counts so far: `found` open rejects of the reason = `cut` + `no_object` + `to_send`.

    `dismissed` ones are not among them. `tally` counts what was sent; the `line` of its reasons is an offset.
    `has_started_over`: the topic was created anew since the last replay, so this one began at its start.
    """

    found: int = 0
    dismissed: int = 0
    cut: int = 0
    no_object: int = 0
    has_started_over: bool = False
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
    """The id of a replayed reject that was posted without one, by the place where it was rejected first."""
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
    rejects = await read_open(log)
    async for partition, page in _pages(log, replayed):
        # below every offset: nothing of this page is committed yet
        committed = 0
        for batch in _batches(_outgoing(page, reason, rejects, replayed), limits):
            await _send(batch, producer, limits, replayed.tally)
            committed = batch[-1].line + 1
            await log.commit(partition, Place(offset=committed, appended_ms=batch[-1].time_ms))
        # also past rejects of other reasons, so that the next replay does not read them again
        if committed <= page[-1].offset:
            await log.commit(partition, Place(offset=page[-1].offset + 1, appended_ms=page[-1].time_ms))


async def count(log: ReplayLog, reason: str, replayed: Replayed) -> None:
    """Counts what `replay` would find; sends and commits nothing. Raises KafkaUnavailable."""
    rejects = await read_open(log)
    async for _, page in _pages(log, replayed):
        for _ in _outgoing(page, reason, rejects, replayed):
            pass


async def read_open(log: ReplayLog, starts: Mapping[int, int] | None = None) -> OpenRejects:
    """Which rejects are open, from the whole topic, or from these offsets on. Raises KafkaUnavailable."""
    found = OpenRejects()
    for partition, (first, _) in log.bounds.items():
        async for page in log.read(partition, first if starts is None else starts[partition]):
            found.add(page)
    return found


async def _pages(log: ReplayLog, replayed: Replayed) -> AsyncIterator[tuple[int, Sequence[StoredReject]]]:
    for partition, (start, _) in log.bounds.items():
        place = log.opened_at.get(partition)
        if place is not None and await _is_of_this_log(log, partition, place):
            start = place.offset
        elif place is not None:
            log.forget(partition)
            replayed.has_started_over = True
        async for page in log.read(partition, start):
            yield partition, page


async def _is_of_this_log(log: ReplayLog, partition: int, place: Place) -> bool:
    """Whether the place was stored for this topic, and not for a deleted one of the same name.

    A log is recognized by its last record, as those of streams are (docs/adr/0025).
    """
    first, end = log.bounds[partition]
    if place.offset > end:
        return False
    # an earlier version stored no time, or retention has deleted the record
    if place.appended_ms is None or place.offset <= first:
        return True
    async for page in log.read(partition, place.offset - 1):
        return page[0].offset >= place.offset or page[0].time_ms == place.appended_ms
    return True


def _outgoing(
    page: Iterable[StoredReject], reason: str, rejects: OpenRejects, replayed: Replayed
) -> Iterator[Outgoing]:
    for stored in page:
        reject = stored.reject
        if reject.reason != reason or not rejects.is_newest(stored):
            continue
        if rejects.is_dismissed(stored):
            replayed.dismissed += 1
            continue
        replayed.found += 1
        posted = posted_of(stored)
        value = with_id(posted.value, replay_id(posted.partition, posted.offset))
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
