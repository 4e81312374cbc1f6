"""Order, completeness and bounded memory of the importer, whatever the producer answers."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cli.http.receipts import Receipt
from cli.importing.formats import Fields, parser_for
from cli.importing.fragments import Outgoing
from cli.importing.lanes import BatchLimits, Lane
from cli.importing.lines import Line
from cli.importing.pipeline import send_log
from cli.importing.tally import Tally
from shared.errors import BatonError, InvalidInput, Unavailable
from tests.unit.cli.fake_services import FAULTS, InMemoryProducer

FIELDS = Fields(key="key", time="time")


class ListedLines:
    """Lines from a list, in blocks of random sizes."""

    def __init__(self, raws: Sequence[bytes], rng: random.Random) -> None:
        self.bytes_read = sum(map(len, raws))
        self.position = self.bytes_read
        self._lines = [Line(number, raw) for number, raw in enumerate(raws, 1)]
        self._rng = rng

    def read_block(self) -> list[Line] | None:
        """The next few lines."""
        if not self._lines:
            return None
        size = self._rng.randint(0, 40)
        block, self._lines = self._lines[:size], self._lines[size:]
        return block


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
) -> Tally:
    tally = Tally()
    await send_log(
        ListedLines(raws, random.Random(1)),
        parser_for("ndjson", FIELDS),
        name=name,
        table=producer.table,
        sink=producer.client(patience_s),
        lanes=lanes,
        limits=BatchLimits(fragments=batch, bytes=4000),
        tally=tally,
    )
    return tally


def numbers_without_repeats(stored: Sequence[bytes]) -> list[int]:
    """What a consumer that drops repeated ids sees: the lines' numbers in the order of the stream."""
    seen: set[str] = set()
    numbers = []
    for raw in stored:
        fragment = msgspec.json.decode(raw)
        if fragment["id"] not in seen:
            seen.add(fragment["id"])
            numbers.append(fragment["data"]["n"])
    return numbers


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
    """After dropping repeats, each stream holds exactly its lines, in the log's order."""
    rng = random.Random(seed)
    raws = log_of(12, 120, rng)
    producer = InMemoryProducer(streams, faults, rng)

    tally = asyncio.run(send(raws, producer, lanes=lanes, batch=batch))

    assert (tally.lines, tally.parsed, tally.sent, tally.accepted) == (120, 120, 120, 120)
    for stream in range(streams):
        expected = [
            n
            for n, raw in enumerate(raws)
            if producer.table.stream_for(msgspec.json.decode(raw)["key"].encode()) == stream
        ]
        assert numbers_without_repeats(producer.logs[stream]) == expected
    assert not producer.overlapped


async def test_the_same_import_again_repeats_the_same_ids() -> None:
    """An import that is started again sends bytes that are equal to those of the first time."""
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


async def test_what_is_refused_is_counted_with_its_first_line() -> None:
    """Lines that cannot be read and fragments that are refused are told apart; the rest arrives."""
    raws = [
        b'{"key":"a","time":1}',
        b"nonsense",
        b'{"key":"","time":1}',
        b'{"key":"%s","time":1}' % (b"x" * 300),
        b'{"key":"a","time":"yesterday"}',
        b"",
        b'{"key":"%s","time":2}' % (b"y" * 300),
    ]

    tally = await send(raws, InMemoryProducer(1))

    assert (tally.lines, tally.parsed, tally.unparsed) == (6, 3, 3)
    assert (tally.sent, tally.accepted, tally.rejected) == (3, 1, 2)
    assert {reason: (found.count, found.line) for reason, found in tally.reasons.items()} == {
        "malformed": (1, 2),
        "key": (3, 3),
        "time": (1, 5),
    }
    assert not tally.all_accepted


async def test_a_request_of_which_nothing_is_acceptable_is_no_failure() -> None:
    """422 carries the same list of reasons as 200, and the import goes on."""
    refused = b'{"key":"%s","time":1}' % (b"x" * 300)

    tally = await send([refused, b'{"key":"a","time":1}'], InMemoryProducer(1), batch=1)

    assert (tally.accepted, tally.rejected) == (1, 1)


async def test_a_batch_that_is_too_large_for_the_producer_is_sent_in_parts() -> None:
    """After 413 the batch is halved; a fragment that alone is too large is refused, the others are not."""
    raws = [b'{"key":"a","time":1,"n":%d}' % n for n in range(20)]
    raws[7] = b'{"key":"a","time":1,"pad":"%s"}' % (b"x" * 600)
    producer = InMemoryProducer(1, max_request_bytes=400)

    tally = await send(raws, producer, batch=20)

    assert (tally.sent, tally.accepted, tally.rejected) == (20, 19, 1)
    assert numbers_without_repeats(producer.logs[0]) == [n for n in range(20) if n != 7]
    assert tally.reasons["size"].line == 8


async def test_an_import_without_an_answer_gives_up_when_patience_ends() -> None:
    """Lines that nobody acknowledged are never counted as accepted."""
    faults = ["503"] * 100

    tally = Tally()
    with pytest.raises(Unavailable, match="not now"):
        await send_log(
            ListedLines(log_of(3, 50, random.Random(0)), random.Random(0)),
            parser_for("ndjson", FIELDS),
            name="log",
            table=InMemoryProducer(1).table,
            sink=InMemoryProducer(1, faults).client(patience_s=0.0),
            lanes=1,
            limits=BatchLimits(fragments=10),
            tally=tally,
        )

    assert tally.accepted == 0
    assert not tally.all_accepted


async def test_an_answer_that_does_not_account_for_every_fragment_ends_the_import() -> None:
    """A proxy's friendly 200 is not taken for an acknowledgement."""

    class Friendly:
        async def post_fragments(self, body: bytes) -> Receipt:
            return Receipt()

    lane = Lane(Friendly(), tally := Tally(), BatchLimits(), lambda: None)
    await lane.offer(Outgoing(1, 1, b"{}"))
    lane.close()

    with pytest.raises(BatonError, match="accounts for 0 accepted and 0 rejected of 1"):
        await lane.run()
    assert tally.accepted == 0


async def test_a_lane_takes_no_more_than_two_requests_ahead() -> None:
    """Memory is bounded: `offer` waits while two whole requests wait, until one was taken."""
    producer = InMemoryProducer(1)
    lane = Lane(producer.client(), Tally(), BatchLimits(fragments=5), lambda: None)
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
async def test_no_request_exceeds_its_bytes(size: int) -> None:
    """A batch ends before the fragment that would make it too large; at least one fragment goes."""
    sizes: list[int] = []

    class Measuring:
        async def post_fragments(self, body: bytes) -> Receipt:
            sizes.append(len(body))
            return Receipt(accepted=body.count(b"\n") + 1)

    lane = Lane(Measuring(), tally := Tally(), BatchLimits(bytes=500), lambda: None)
    running = asyncio.create_task(lane.run())
    for line in range(40):
        await lane.offer(Outgoing(line, 1, b"x" * size))
    lane.close()
    await running

    assert tally.accepted == 40
    assert max(sizes) <= 500


async def test_a_header_without_the_key_ends_the_import_before_anything_is_sent() -> None:
    """A misspelt column is told at once, with the columns that there are."""
    producer = InMemoryProducer(1)

    with pytest.raises(InvalidInput, match="no column 'hots'; it has host, time"):
        await send_log(
            ListedLines([b"host\ttime", b"a\t1"], random.Random(0)),
            parser_for("tsv", Fields(key="hots", time="time")),
            name="log",
            table=producer.table,
            sink=producer.client(),
            lanes=2,
            limits=BatchLimits(),
            tally=Tally(),
        )

    assert producer.requests == []
