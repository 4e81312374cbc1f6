"""One reading by itself: what its reader gets, what its fetcher asks for it, and when it wants more."""

from __future__ import annotations

import asyncio

import pytest

from shared.errors import KafkaUnavailable
from shared.kafka.read import reading
from shared.kafka.read.reading import CALM_S, MOST_FETCH_BYTES, Reading
from shared.kafka.wire.fetch import NO_EPOCH, FetchedPartition, Place, Wish
from shared.kafka.wire.metadata import Leader
from tests.fakes.kafka_log import FakePartition
from tests.fakes.virtual_time import virtual_time

TOPIC_ID = b"t" * 16
PLACE = Place(TOPIC_ID, 3)


class OneReading:
    """A reading of a log from offset 5 on; `changes`: how often it has told its fetcher of a change."""

    def __init__(self, **how: bool) -> None:
        self.changes = 0
        self.log = FakePartition(TOPIC_ID, epoch=7)
        self.log.append(*[b"v"] * 5)
        self.one = Reading("t", 3, 5, self._changed, **how)
        self.one.leader = Leader(TOPIC_ID, 1, 9)

    def _changed(self, one: Reading) -> None:
        assert isinstance(one, Reading)
        self.changes += 1

    def answer(self, records: bytes, asked_bytes: int = 100) -> None:
        """What the broker gives to the present wish."""
        aborted = [(producer, first) for producer, first, _ in self.log.aborted]
        self.one.accept(
            FetchedPartition(PLACE, 0, self.log.end, 0, aborted, records, None, None), asked_bytes
        )

    def append(self, count: int, producer: int = -1) -> None:
        """Appends a batch, and fetches it."""
        self.log.append(*[b"v"] * count, producer=producer)
        self.answer(self.log.batches[-1].data)

    async def take(self, most: int = 100) -> list[int]:
        return [record.offset for record in await self.one.take(0.0, most)]


@virtual_time
async def test_a_call_waits_for_the_first_record_as_long_as_it_may() -> None:
    """Not at all if it may not, or if there is a record."""
    held, loop = OneReading(), asyncio.get_running_loop()
    took_s = []
    for timeout_s in (0.0, 0.5, 5.0):
        began_s = loop.time()
        assert await held.one.take(timeout_s, 10) == []
        took_s.append(loop.time() - began_s)
    held.append(1)
    began_s = loop.time()
    assert len(await held.one.take(5.0, 10)) == 1

    assert took_s == [0.0, 0.5, 5.0]
    assert loop.time() == began_s


@virtual_time
async def test_a_fetch_asks_for_what_follows_the_last_one() -> None:
    """With the epochs that the broker compares; after a seek it has read nothing."""
    held, size = OneReading(), reading.FETCH_BYTES
    one = held.one
    asked = [one.ask]
    held.append(3)
    asked.append(one.ask)
    held.answer(b"")
    asked.append(one.ask)
    one.seek(6)
    asked.append(one.ask)
    one.leader = Leader(TOPIC_ID, 2, 10)
    asked.append(one.ask)

    wishes = [(5, 9, NO_EPOCH), (8, 9, 7), (8, 9, 7), (6, 9, NO_EPOCH), (6, 10, NO_EPOCH)]
    assert asked == [(PLACE, Wish(*wish, size)) for wish in wishes]


@virtual_time
async def test_a_batch_that_does_not_fit_is_asked_for_with_twice_as_much() -> None:
    """Up to a bound; a late answer to less changes nothing."""
    held, size = OneReading(), reading.FETCH_BYTES
    for asked, expected in [
        (size, 2 * size),
        (size // 2, 2 * size),
        (2 * size, 4 * size),
        (MOST_FETCH_BYTES, MOST_FETCH_BYTES),
    ]:
        held.answer(held.log.batches[0].data[:-1], asked)
        assert held.one.ask[1].max_bytes == expected


@virtual_time
async def test_it_goes_back_to_the_last_record_that_was_taken_since_the_seek() -> None:
    """Its reader compares that one; before the first there is none."""
    one = (held := OneReading()).one
    one.repeat()
    at = [one.next_offset]
    held.append(3)
    await held.take(2)
    one.repeat()
    at.append(one.next_offset)
    one.seek(7)
    one.repeat()
    at.append(one.next_offset)

    assert at == [5, 6, 7]
    assert one.size == 0


@virtual_time
async def test_the_end_is_what_was_fetched_or_what_somebody_has_heard() -> None:
    """Whichever is more."""
    held = OneReading()
    ends = [Reading("t", 0, 0, lambda one: None).end, held.one.end]
    held.append(3)
    ends.append(held.one.end)
    held.one.note_end(11)
    ends.append(held.one.end)
    held.one.note_end(2)
    ends.append(held.one.end)
    held.log.end = 20
    held.answer(b"")
    ends.append(held.one.end)

    assert ends == [0, 5, 8, 11, 8, 20]


@virtual_time
async def test_it_asks_for_more_once_there_is_room_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """And only once: when less than half of a fetch waits, or when it was left out of the last one."""
    held = OneReading()
    one = held.one
    assert not one.is_left_out
    held.append(4)
    held.append(4)
    monkeypatch.setattr(reading, "FETCH_BYTES", one.size)
    found = []
    for most in (1, 4, 1):
        held.changes, one.is_urgent = 0, False
        await held.take(most)
        found.append((one.has_room, held.changes, one.is_urgent))
    one.is_left_out = True
    await held.take(1)

    # the second one frees the first of two equal batches
    assert found == [(False, 0, False), (True, 1, True), (True, 0, False)]
    assert (held.changes, one.is_urgent, one.is_left_out) == (1, True, False)


@virtual_time
async def test_a_failed_reading_fetches_nothing_until_it_is_sought() -> None:
    """Each call raises the reason."""
    one = (held := OneReading()).one
    one.fail("this is why")
    for _ in range(2):
        with pytest.raises(KafkaUnavailable, match="this is why"):
            await one.take(1.0, 10)
    assert not one.has_room

    held.changes, one.is_urgent = 0, False
    one.seek(6)
    assert (one.has_room, held.changes, one.is_urgent) == (True, 1, True)
    assert await one.take(1.0, 10) == []


@virtual_time
async def test_a_paused_reading_keeps_its_place_and_ignores_what_comes() -> None:
    """It tells its fetcher when it stops, and when it goes on."""
    one = (held := OneReading()).one
    held.append(3)
    await held.take(2)
    held.changes = 0
    one.pause()
    held.append(3)
    assert (one.has_room, one.size, one.next_offset, held.changes) == (False, 0, 7, 1)
    one.resume()
    assert (one.has_room, one.is_urgent, held.changes) == (True, True, 2)


@pytest.mark.parametrize(
    ("how", "expected"), [({}, [5, 6]), ({"is_committed": False}, [5, 6]), ({"is_committed": True}, [])]
)
@virtual_time
async def test_records_of_aborted_transactions_are_left_out_if_asked(
    how: dict[str, bool], expected: list[int]
) -> None:
    """The broker names the transactions in its answer."""
    held = OneReading(**how)
    held.log.aborted = [(4, 5, 6)]
    held.append(2, producer=4)

    assert await held.take() == expected


@virtual_time
async def test_a_doubted_leader_is_looked_for_at_once_and_then_ever_later() -> None:
    """After a calm, at once again."""
    one, loop = OneReading().one, asyncio.get_running_loop()
    waits = []
    for pause_s in (1.0, 0.0, 0.0, CALM_S, 0.0):
        await asyncio.sleep(max(0.0, one.look_at_s - loop.time()) + pause_s)
        one.doubt()
        assert one.leader is None
        waits.append(one.look_at_s - loop.time())

    assert [wait == 0 for wait in waits] == [True, False, False, True, False]
    assert 0.02 < waits[1] <= 0.05
    assert 0.05 <= waits[2] <= 0.1
    assert waits[4] <= 0.05
