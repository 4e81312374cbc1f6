"""Readers that take nothing, and what they leave to the others who share a fetcher."""

from __future__ import annotations

import asyncio

import pytest

from shared.kafka.read import fetch_lane, fetcher, reading
from tests.fakes.kafka import FakeKafka
from tests.fakes.virtual_time import virtual_time
from tests.unit.shared.kafka.read.fetching import fill, numbered, reading_from, values

HOGS = 20
ROOM = 40_000


@pytest.fixture(autouse=True)
def small_fetches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sizes in proportion to the room: a reading may hold a tenth of it."""
    monkeypatch.setattr(fetch_lane, "ANSWER_BYTES", 8_000)
    monkeypatch.setattr(fetch_lane, "FETCH_BYTES", 4_000)
    monkeypatch.setattr(reading, "FETCH_BYTES", 4_000)
    monkeypatch.setattr(fetcher, "LEAST_SHARE", 100)


def crowd() -> FakeKafka:
    """Brokers with much to read in many partitions, and one partition more."""
    kafka = FakeKafka()
    for n in range(HOGS):
        kafka.create(f"hog{n}")
        fill(kafka, f"hog{n}", 2_000)
    kafka.create("small")
    return kafka


@virtual_time
async def test_readers_that_take_nothing_keep_nobody_else_from_reading() -> None:
    """They hold at most their share of the common room, however much there is to read for them."""
    kafka = crowd()
    async with reading_from(kafka, max_bytes=ROOM) as reader:
        hogs = [reader.read(f"hog{n}", 0, 0) for n in range(HOGS)]
        await asyncio.sleep(10)
        held = sum(one.size for one in hogs)
        fill(kafka, "small", 500)
        small = reader.read("small", 0, 0)
        found = await values(small, 500)
        rest = [await values(one, 2_000) for one in hogs]

    assert ROOM / 4 < held <= ROOM + 8_000
    assert found == numbered(0, 500)
    assert rest == [numbered(0, 2_000)] * HOGS


@pytest.mark.parametrize("room", [ROOM, 4_000])
@virtual_time
async def test_without_room_nothing_is_asked_until_somebody_takes_something(room: int) -> None:
    """Neither by their shares nor in all is there room: no request is sent, and the loop rests."""
    kafka = crowd()
    async with reading_from(kafka, max_bytes=room, pace_s=0) as reader:
        hogs = [reader.read(f"hog{n}", 0, 0) for n in range(HOGS)]
        await asyncio.sleep(10)
        before = len(kafka.fetches)
        await asyncio.sleep(10)
        idle = len(kafka.fetches) - before
        rest = await asyncio.gather(*(values(one, 2_000) for one in hogs))

    assert idle <= 25  # those with less than their share are in the long poll
    assert rest == [numbered(0, 2_000)] * HOGS


@virtual_time
async def test_a_paused_reading_holds_nothing_and_reads_on_where_it_was() -> None:
    """Also if an answer to it is on its way."""
    kafka = crowd()
    async with reading_from(kafka, max_bytes=ROOM) as reader:
        one = reader.read("hog0", 0, 0)
        first = await values(one, 1)
        one.pause()
        await asyncio.sleep(10)
        held = one.size
        one.resume()
        rest = await values(one, 2_000 - len(first))

    assert held == 0
    assert first + rest == numbered(0, 2_000)
