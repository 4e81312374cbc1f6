"""What every log shows of a loss, run against Kafka (integration) and the in-memory twin (unit).

A test module subclasses `LostLogContract` and provides the fixtures `stream_log`, `append` and `operator`.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

import pytest

from services.consumer.ports import FragmentReader, StreamLog
from shared.errors import InvalidInput
from tests.log_contract import commit, fragment, opened, read_to_end
from tests.reference import Rec
from tests.topics import Append
from tests.waiting import DEADLINE_S


class Operator(Protocol):
    """What befalls a stream's topics, by an accident or by an operator's hand."""

    async def lose_end(self, stream: int, keep: int) -> None:
        """The log loses its records from offset `keep` on."""

    async def retain_from(self, stream: int, first: int) -> None:
        """Retention removes the log's records below `first`."""

    async def start_over(self, stream: int) -> None:
        """The committed offset and the checkpoint records are deleted, after all members have stopped."""

    async def lose_checkpoints(self, stream: int) -> None:
        """The checkpoints topic is deleted and created anew."""


async def appended(append: Append, count: int) -> list[Rec]:
    """Appends `count` fragments that end their sessions to stream 0, and returns them without times."""
    values = [(f"k{n}".encode(), fragment(f"k{n}", end=True)) for n in range(count)]
    return [Rec(await append(0, key, value), 0, key, value) for key, value in values]


async def fetched(reader: FragmentReader, count: int) -> list[Rec]:
    """The next `count` records or more."""
    found: list[Rec] = []
    async with asyncio.timeout(DEADLINE_S):
        while len(found) < count:
            found += [Rec(r.offset, r.timestamp, r.key, r.value or b"") for r in await reader.fetch(1.0)]
    return found


class LostLogContract:
    """The guarantees. Every test has its own stream 0."""

    async def test_a_reader_whose_log_may_have_changed_repeats_the_last_record(
        self, stream_log: StreamLog, append: Append, operator: Operator
    ) -> None:
        """Its append time shows whether the log is still the same one, though the offsets go on as before."""
        await appended(append, 3)
        reader = stream_log.reader(0)
        await reader.bounds()
        await reader.open(0)
        before = await fetched(reader, 3)

        await operator.lose_end(0, 1)
        await appended(append, 5)
        after = await fetched(reader, 2)

        # a client that asks in between finds its offset out of range, and begins at the log's start
        assert after[0].offset in (0, 2)
        again = next(record for record in after if record.offset == 2)
        assert again.timestamp != before[2].timestamp
        await reader.close()

    async def test_a_reader_below_the_logs_start_continues_there(
        self, stream_log: StreamLog, append: Append, operator: Operator
    ) -> None:
        """Retention may remove the record that was to be compared."""
        await appended(append, 5)
        await operator.retain_from(0, 3)
        reader = stream_log.reader(0)
        assert await reader.bounds() == (3, 5)

        await reader.open(1)

        assert [record.offset for record in await fetched(reader, 2)] == [3, 4]
        await reader.close()

    async def test_a_stream_that_is_started_over_has_another_log_number(
        self, stream_log: StreamLog, append: Append, operator: Operator
    ) -> None:
        """So none of its sessions gets an id of before, and every owner before its first commit agrees."""
        await appended(append, 1)
        records = await read_to_end(stream_log.reader(0), 0)
        numbers = []
        for epoch in range(1, 4):
            sink = stream_log.sink(0)
            stream = await opened(sink, epoch)
            await sink.close()
            sink = stream_log.sink(0)
            assert (await opened(sink, epoch)).head == stream.head
            numbers.append(stream.head.log)
            assert stream.position == 0
            stream.fold(records, 0.0)
            await commit(stream, sink)
            assert (await sink.head()).log == numbers[-1]
            await sink.close()
            await operator.start_over(0)

        assert numbers[0] == 0
        assert numbers == sorted(set(numbers))

    async def test_a_head_whose_checkpoints_are_gone_is_rejected(
        self, stream_log: StreamLog, append: Append, operator: Operator
    ) -> None:
        """No record will ever come: an operator must decide."""
        await appended(append, 3)
        sink = stream_log.sink(0)
        stream = await opened(sink)
        for record in await read_to_end(stream_log.reader(0), 0):
            stream.fold([record], 0.0)
            await commit(stream, sink)
        await sink.close()
        await operator.lose_checkpoints(0)

        successor = stream_log.sink(0)
        with pytest.raises(InvalidInput, match="checkpoints end at 0"):
            await opened(successor, epoch=2)
        await successor.close()
