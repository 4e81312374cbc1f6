"""The importer keeps order, completeness and bounded memory, whatever the producer responds."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cli.http.receipts import Receipt
from cli.importing.parsing.fragments import Outgoing
from cli.importing.parsing.rows import Fields
from cli.importing.reading.notes import Notes, Progress
from cli.importing.sending.lanes import BatchLimits, Lane
from cli.importing.sending.pipeline import send_log
from cli.importing.tally import Tally
from shared.errors import BatonError, Unavailable
from tests.unit.cli.fake_services import FAULTS, InMemoryProducer, reader_of, without_repeats


def log_of(keys: int, lines: int, rng: random.Random) -> list[bytes]:
    return [msgspec.json.encode({"key": f"k{rng.randrange(keys)}", "time": n, "n": n}) for n in range(lines)]


async def send(
    raws: Sequence[bytes],
    producer: InMemoryProducer,
    *,
    lanes: int = 4,
    batch: int = 7,
    patience_s: float = 1e9,
    name: str = "log",
    tally: Tally | None = None,
) -> Tally:
    tally = Tally() if tally is None else tally
    await send_log(
        reader_of(raws),
        "ndjson",
        Fields(key="key", time="time"),
        name=name,
        table=producer.table,
        post=producer.client(patience_s).post_fragments,
        lanes=lanes,
        limits=BatchLimits(fragments=batch, bytes=4000),
        notes=Notes(Progress(tally=tally)),
    )
    return tally


def numbers_in(stored: Sequence[bytes]) -> list[int]:
    """The lines' numbers in the order of the stream, without repeats."""
    return [fragment["data"]["n"] for fragment in without_repeats(stored)]


@settings(max_examples=30, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    faults=st.lists(st.sampled_from([*FAULTS, ""]), max_size=60),
    lanes=st.integers(1, 8),
    batch=st.integers(1, 30),
    streams=st.sampled_from([1, 3, 24]),
)
def test_every_line_arrives_once_and_in_order_whatever_goes_wrong(
    seed: int, faults: list[str], lanes: int, batch: int, streams: int
) -> None:
    """Without repeats, each stream holds exactly its lines in the log's order."""
    rng = random.Random(seed)
    raws = log_of(12, 120, rng)
    producer = InMemoryProducer(streams, faults, rng)

    tally = asyncio.run(send(raws, producer, lanes=lanes, batch=batch))

    assert (tally.lines, tally.parsed, tally.sent, tally.accepted) == (120, 120, 120, 120)
    expected: dict[int, list[int]] = {stream: [] for stream in range(streams)}
    for number, raw in enumerate(raws):
        expected[producer.table.stream_for(msgspec.json.decode(raw)["key"].encode())].append(number)
    assert {n: numbers_in(producer.logs[n]) for n in range(streams)} == expected
    assert not producer.overlapped


async def test_a_repeated_import_repeats_the_same_ids() -> None:
    """It sends the same bytes as the first time."""
    raws = log_of(5, 50, random.Random(3))
    first, second, other = InMemoryProducer(), InMemoryProducer(), InMemoryProducer()

    await send(raws, first, batch=7, lanes=4)
    await send(raws, second, batch=50, lanes=1)
    await send(raws, other, name="another log")

    assert first.logs == second.logs
    ids = [{msgspec.json.decode(raw)["id"] for log in p.logs.values() for raw in log} for p in (first, other)]
    assert len(ids[0]) == len(ids[1]) == 50
    assert not ids[0] & ids[1]
    assert all(len(one.encode()) <= 64 for one in ids[0] | ids[1])


@pytest.mark.parametrize("batch", [1, 7])
async def test_rejects_are_counted_by_reason_with_their_first_line(batch: int) -> None:
    """Unreadable lines and rejected fragments are counted separately; the rest arrives.

    The producer answers a request that holds only rejected fragments with 422, and the import continues.
    """
    raws = [
        b'{"key":"a","time":1}',
        b"nonsense",
        b'{"key":"","time":1}',
        b'{"key":"%s","time":1}' % (b"x" * 300),
        b'{"key":"a","time":"yesterday"}',
        b"",
        b'{"key":"%s","time":2}' % (b"y" * 300),
    ]

    tally = await send(raws, InMemoryProducer(1), batch=batch, lanes=1)

    assert (tally.lines, tally.parsed, tally.unparsed) == (6, 3, 3)
    assert (tally.sent, tally.accepted, tally.rejected) == (3, 1, 2)
    assert {reason: (found.count, found.line) for reason, found in tally.reasons.items()} == {
        "malformed": (1, 2),
        "key": (3, 3),
        "time": (1, 5),
    }
    assert not tally.all_accepted


async def test_a_batch_that_is_too_large_for_the_producer_is_split() -> None:
    """After 413 the batch is halved; only a fragment that is too large by itself is rejected."""
    raws = [b'{"key":"a","time":1,"n":%d}' % n for n in range(20)]
    raws[7] = b'{"key":"a","time":1,"pad":"%s"}' % (b"x" * 600)
    producer = InMemoryProducer(1, max_request_bytes=400)

    tally = await send(raws, producer, batch=20)

    assert (tally.sent, tally.accepted, tally.rejected) == (20, 19, 1)
    assert numbers_in(producer.logs[0]) == [n for n in range(20) if n != 7]
    assert tally.reasons["size"].line == 8


async def test_an_import_fails_when_patience_ends() -> None:
    """Lines without an acknowledgement are never counted as accepted."""
    producer, raws = InMemoryProducer(1, ["503"] * 100), log_of(3, 50, random.Random(0))

    tally = Tally()
    with pytest.raises(Unavailable, match="not now"):
        await send(raws, producer, patience_s=0.0, tally=tally)

    assert tally.accepted == 0
    assert not tally.all_accepted


async def test_a_response_must_account_for_every_fragment() -> None:
    """A proxy's friendly 200 is not an acknowledgement."""

    async def friendly(body: bytes) -> Receipt:
        return Receipt()

    lane = Lane(friendly, tally := Tally(), BatchLimits())
    await lane.offer(Outgoing(1, 1, b"{}"))
    lane.close()

    with pytest.raises(BatonError, match="accounts for 0 accepted and 0 rejected of 1"):
        await lane.run()
    assert tally.accepted == 0


async def test_a_lane_queues_at_most_two_requests() -> None:
    """Memory is bounded: `offer` waits until one of two full requests has been sent."""
    producer = InMemoryProducer(1)
    lane = Lane(producer.client().post_fragments, Tally(), BatchLimits(fragments=5))
    fragment = Outgoing(1, 1, b'{"key":"a","time":1}')

    for _ in range(10):
        await lane.offer(fragment)
    waiting = asyncio.create_task(lane.offer(fragment))
    for _ in range(10):
        await asyncio.sleep(0)
    blocked = not waiting.done()
    lane.close()
    await lane.run()
    await waiting

    assert blocked
    assert producer.requests[:2] == [5, 5]


@pytest.mark.parametrize("size", [1, 499, 500])
async def test_no_request_exceeds_the_byte_limit(size: int) -> None:
    """A batch ends before the fragment that would exceed it, but has at least one fragment."""
    sizes: list[int] = []

    async def measure(body: bytes) -> Receipt:
        sizes.append(len(body))
        return Receipt(accepted=body.count(b"\n") + 1)

    lane = Lane(measure, tally := Tally(), BatchLimits(bytes=500))
    running = asyncio.create_task(lane.run())
    for line in range(40):
        await lane.offer(Outgoing(line, 1, b"x" * size))
    lane.close()
    await running

    assert tally.accepted == 40
    assert max(sizes) <= 500
