"""What every log guarantees its workers, run against Kafka (integration) and the in-memory twin (unit).

A test module subclasses `LogContract` and provides the fixtures `stream_log` and `append`.
"""

from __future__ import annotations

import asyncio

import pytest

from services.consumer.core.commits import stream as commits
from services.consumer.core.commits.commit import Commit
from services.consumer.core.commits.stream import Stream
from services.consumer.core.commits.turn import StreamLimits
from services.consumer.ports import Fenced, FragmentReader, SessionSink, StreamLog
from shared.errors import KafkaUnavailable
from shared.model.fragments import encode_marker
from shared.model.group import GroupSettings
from shared.model.sessions import parse_session
from shared.model.start import Cut
from tests.logs import commit_of
from tests.reference import Rec
from tests.topics import Append
from tests.waiting import DEADLINE_S

SETTINGS = GroupSettings(repeat_ms=1_000_000_000)


def fragment(key: str, *, end: bool = False, pad: int = 0) -> bytes:
    return f'{{"key":"{key}","end":{str(end).lower()},"data":"{"x" * pad}"}}'.encode()


async def read_to_end(reader: FragmentReader, offset: int) -> list[Rec]:
    """All records from the offset on."""
    _, end = await reader.bounds()
    await reader.open(offset)
    found: list[Rec] = []
    async with asyncio.timeout(DEADLINE_S):
        while not found or found[-1].offset + 1 < end:
            found += [Rec(r.offset, r.timestamp, r.key, r.value or b"") for r in await reader.fetch(1.0)]
    await reader.close()
    return found


async def opened(sink: SessionSink, epoch: int = 1) -> Stream:
    """The stream as a new owner loads it."""
    await sink.open()
    return Stream(
        group="default",
        stream=0,
        epoch=epoch,
        settings=SETTINGS,
        limits=StreamLimits(max_replay_fragments=8),
        checkpoint=await sink.load(await sink.head()),
        now_s=0.0,
    )


async def commit(stream: Stream, sink: SessionSink) -> Commit:
    """Commits the stream's changes, then trims what that commit makes superfluous."""
    prepared = commit_of(stream)
    below = stream.committed(prepared, await sink.commit(prepared), 0.0)
    if below:
        await sink.trim(below)
    return prepared


class LogContract:
    """The guarantees. Every test has its own streams 0 and 1."""

    async def test_records_are_read_in_order_from_any_offset(
        self, stream_log: StreamLog, append: Append
    ) -> None:
        """Offsets ascend by one, keys and values are as appended, and times are the broker's."""
        for n in range(5):
            await append(0, b"k", fragment("k", pad=n))

        found = await read_to_end(stream_log.reader(0), 2)

        assert [(r.offset, r.key, r.value) for r in found] == [
            (n, b"k", fragment("k", pad=n)) for n in (2, 3, 4)
        ]
        assert found[0].timestamp > 0

    async def test_a_fetch_without_records_returns_in_time(self, stream_log: StreamLog) -> None:
        """Nothing to read is an empty result, not an error."""
        reader = stream_log.reader(0)
        await reader.bounds()
        await reader.open(0)

        assert list(await reader.fetch(0.05)) == []
        assert reader.end == 0
        await reader.close()

    async def test_a_cancelled_fetch_loses_no_record(self, stream_log: StreamLog, append: Append) -> None:
        """The next fetch returns what the cancelled one would have returned."""
        reader = stream_log.reader(0)
        await reader.bounds()
        await reader.open(0)
        fetching = asyncio.ensure_future(reader.fetch(30))
        await asyncio.sleep(0)
        fetching.cancel()
        await append(0, b"k", fragment("k"))

        async with asyncio.timeout(DEADLINE_S):
            while not (found := list(await reader.fetch(1.0))):
                pass

        assert [record.offset for record in found] == [0]
        await reader.close()

    async def test_a_new_stream_has_an_empty_checkpoint(self, stream_log: StreamLog) -> None:
        """Without a commit or a checkpoint, the stream starts at position 0 in epoch 0."""
        sink = stream_log.sink(0)

        stream = await opened(sink)

        assert (stream.head.position, stream.head.epoch) == (0, 0)
        await sink.close()

    async def test_the_next_owner_loads_what_was_committed(
        self, stream_log: StreamLog, append: Append
    ) -> None:
        """Head, covered keys and parked sessions survive, even large ones over several whole sets."""
        for n in range(120):
            await append(0, b"long", fragment("long", pad=3000))
            key = f"k{n}"
            await append(0, key.encode(), fragment(key, end=True, pad=n))
        records = await read_to_end(stream_log.reader(0), 0)
        sink = stream_log.sink(0)
        stream = await opened(sink)
        for at in range(0, len(records), 5):
            stream.fold(records[at : at + 5], 0.0)
            await commit(stream, sink)
        await sink.close()

        follower = stream_log.sink(0)
        found = await opened(follower, epoch=2)

        assert found.head == stream.head
        assert found.head.position == 240
        assert found.head.safe_offset > 220
        assert found.head.counts.sessions == 120
        assert found.assembler.covered.entries == stream.assembler.covered.entries
        parked = found.assembler.open["long"]
        assert parked.data == stream.assembler.open["long"].data[: len(parked.data)]
        assert len(parked.data) > 100
        await follower.close()

    async def test_the_next_owner_finishes_a_marker_that_was_committed_in_part(
        self, stream_log: StreamLog, append: Append, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """What an owner has delivered of a marker's sessions is covered, and the position lets the next owner
        read the marker again."""
        monkeypatch.setattr(commits, "MAX_PENDING_BYTES", 5_000)
        for n in range(7):
            await append(0, b"k%d" % n, fragment(f"k{n}"))
        await append(0, None, encode_marker(9_000_000_000_000))
        records = await read_to_end(stream_log.reader(0), 0)
        sink = stream_log.sink(0)
        stream = await opened(sink)
        stream.fold(records, 0.0)
        parts = [await commit(stream, sink)]
        stream.fold(records[7:], 0.0)
        parts.append(await commit(stream, sink))
        await sink.close()

        follower = stream_log.sink(0)
        found = await opened(follower, epoch=2)
        assert found.head.position == 7
        while found.position < 8:
            found.fold(records[found.position :], 0.0)
            parts.append(await commit(found, follower))

        assert [len(part.sessions) for part in parts] == [3, 3, 1]
        assert sorted(key for part in parts for key, _ in part.sessions) == [b"k%d" % n for n in range(7)]
        await follower.close()

    async def test_a_later_sink_of_the_stream_fences_an_earlier_one(
        self, stream_log: StreamLog, append: Append
    ) -> None:
        """A fenced sink's commit never takes effect: it raises Fenced, or its outcome stays unknown."""
        await append(0, b"k", fragment("k", end=True))
        records = await read_to_end(stream_log.reader(0), 0)
        zombie = stream_log.sink(0)
        stream = await opened(zombie)
        stream.fold(records, 0.0)
        owner = stream_log.sink(0)
        await opened(owner, epoch=2)

        with pytest.raises((Fenced, KafkaUnavailable)):
            await commit(stream, zombie)

        assert (await owner.head()).position == 0
        await zombie.close()
        await owner.close()

    async def test_sinks_of_different_streams_are_independent(
        self, stream_log: StreamLog, append: Append
    ) -> None:
        """Opening a sink fences only earlier sinks of its own stream."""
        await append(0, b"k", fragment("k", end=True))
        records = await read_to_end(stream_log.reader(0), 0)
        sink = stream_log.sink(0)
        stream = await opened(sink)
        stream.fold(records, 0.0)
        other = stream_log.sink(1)
        await other.open()

        await commit(stream, sink)

        assert (await other.head()).position == 0
        await sink.close()
        await other.close()
        successor = stream_log.sink(0)
        assert (await opened(successor)).head.position == 1
        await successor.close()

    async def test_a_tick_is_a_record_without_a_key(self, stream_log: StreamLog, append: Append) -> None:
        """It is appended to the stream's own log, with the broker's time."""
        sink = stream_log.sink(0)
        await sink.tick()

        found = await read_to_end(stream_log.reader(0), 0)

        assert [(r.key, r.value) for r in found] == [(None, b"{}")]
        await sink.close()

    async def test_one_call_returns_the_ends_of_all_streams(
        self, stream_log: StreamLog, append: Append
    ) -> None:
        """The watchdog compares them with the positions."""
        await append(0, b"k", fragment("k"))  # a log that has just been made may not have a leader yet
        await append(1, b"k", fragment("k"))
        await append(1, b"k", fragment("k"))

        assert dict(await stream_log.ends([0, 1])) == {0: 1, 1: 2}

    async def test_everything_that_a_group_has_delivered_can_be_read(
        self, stream_log: StreamLog, append: Append
    ) -> None:
        """All commits that are known to have succeeded, at once; nothing of a group that never delivered."""
        sink = stream_log.sink(0)
        stream = await opened(sink)
        for n in range(3):
            await append(0, b"k", fragment("k", end=True, pad=n))
            stream.fold((await read_to_end(stream_log.reader(0), n))[-1:], 0.0)
            await commit(stream, sink)
        await sink.close()

        found = [parse_session(raw) async for raw in stream_log.delivered(Cut("default", 9), 0, 0)]

        assert [(one.key, one.first_offset, one.last_offset) for one in found] == [
            ("k", n, n) for n in range(3)
        ]
        assert [raw async for raw in stream_log.delivered(Cut("none", 9), 0, 0)] == []
