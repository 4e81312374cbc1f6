"""The rules of kafka/batches.py: which request gets which outcome, and what waits for what."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from services.producer.core.ingest import Portion
from services.producer.kafka.batches import SLOW_ROUND_S, Backlog, Batch, Builder, Delivery


class SmallBuilder:
    """A builder that is full after `room` records."""

    def __init__(self, room: int) -> None:
        self.room = room
        self.records: list[tuple[bytes | None, bytes | None]] = []

    def append(self, *, timestamp: int | None, key: bytes | None, value: bytes | None) -> Any:
        if len(self.records) >= self.room:
            return None
        self.records.append((key, value))
        return timestamp

    def record_count(self) -> int:
        return len(self.records)


def backlog(room: int = 100, lanes: int = 1) -> Backlog:
    def new_builder() -> Builder:
        return SmallBuilder(room)

    return Backlog(new_builder, lambda stream: stream % lanes)


def portion(*indexes: int) -> Portion:
    values = [b"%d" % index for index in indexes]
    return Portion(list(indexes), values, values)


def values(batch: Batch) -> list[bytes | None]:
    assert isinstance(batch.builder, SmallBuilder)
    return [value for _, value in batch.builder.records]


async def test_a_request_waits_for_all_of_its_streams() -> None:
    """A delivery is done with its last share, acknowledged or not."""
    waiting, delivery = backlog(), Delivery()
    waiting.add_portion(0, portion(0, 2), delivery, 0)
    waiting.add_portion(1, portion(1), delivery, 0)
    one, other = waiting.take_ready(0.0)

    one.stored(0)
    early = delivery.done.done()
    other.lost()

    assert not early
    assert delivery.done.done()
    assert delivery.unstored == ([1] if other.stream == 1 else [0, 2])


async def test_a_lane_gets_its_next_round_when_the_last_one_is_complete() -> None:
    """While a broker is busy, batches for it grow instead of queueing; other brokers go on."""
    waiting = backlog(lanes=2)
    waiting.add_portion(0, portion(0), Delivery(), 0)
    (busy,) = waiting.take_ready(0.0)
    waiting.add_portion(2, portion(0), Delivery(), 0)
    waiting.add_portion(1, portion(0), Delivery(), 0)

    other_lane = waiting.take_ready(0.0)
    waiting.add_portion(2, portion(1), Delivery(), 0)
    waiting.complete(busy)
    grown = waiting.take_ready(0.0)

    assert [batch.stream for batch in other_lane] == [1]
    assert [values(batch) for batch in grown] == [[b"0", b"1"]]


async def test_a_stuck_round_holds_up_the_lane_for_a_bounded_time() -> None:
    """After SLOW_ROUND_S the other streams of the broker go on; the stuck stream keeps its order."""
    waiting = backlog()
    waiting.add_portion(0, portion(0), Delivery(), 0)
    (stuck,) = waiting.take_ready(0.0)
    waiting.add_portion(0, portion(1), Delivery(), 0)
    waiting.add_portion(1, portion(2), Delivery(), 0)

    waiting.release_slow_rounds(SLOW_ROUND_S)
    at_the_limit = waiting.take_ready(SLOW_ROUND_S)
    waiting.release_slow_rounds(SLOW_ROUND_S * 1.01)
    past_it = waiting.take_ready(SLOW_ROUND_S * 1.01)
    waiting.complete(stuck)
    beside_the_newer_round = waiting.take_ready(1.0)
    waiting.complete(past_it[0])

    assert at_the_limit == beside_the_newer_round == []
    assert [batch.stream for batch in past_it] == [1]
    assert [values(batch) for batch in waiting.take_ready(1.0)] == [[b"1"]]


async def test_fail_all_fails_every_request_and_later_answers_change_nothing() -> None:
    """Records in flight and records that wait are both lost; a late acknowledgement changes nothing."""
    waiting, sent, queued = backlog(), Delivery(), Delivery()
    waiting.add_portion(0, portion(0), sent, 0)
    (batch,) = waiting.take_ready(0.0)
    waiting.add_portion(0, portion(0), queued, 0)

    waiting.fail_all()

    assert (sent.unstored, queued.unstored) == ([0], [0])
    assert sent.done.done()
    assert queued.done.done()
    assert not waiting.complete(batch)
    assert waiting.take_ready(1.0) == []


async def test_the_oldest_batch_in_flight_is_known() -> None:
    """The watchdog asks when the oldest unacknowledged batch was sent."""
    waiting = backlog(lanes=2)
    waiting.add_portion(0, portion(0), Delivery(), 0)
    waiting.take_ready(1.0)
    waiting.add_portion(1, portion(0), Delivery(), 0)
    waiting.take_ready(2.0)

    assert waiting.oldest_sent_at() == 1.0
    assert waiting.sent_before(2.0) == [0]
    assert backlog().oldest_sent_at() is None


@settings(max_examples=100)
@given(
    steps=st.lists(
        st.one_of(
            st.lists(st.integers(0, 4), min_size=1, max_size=6),
            st.just("take"),
            st.sampled_from(["store", "lose"]),
        ),
        max_size=40,
    ),
    room=st.integers(1, 4),
    lanes=st.integers(1, 3),
)
async def test_every_record_has_one_outcome_and_streams_keep_their_order(
    steps: list[Any], room: int, lanes: int
) -> None:
    """In any order of events each record is stored or lost once, in the order in which it was added.

    Requests share batches and batches get full; each request gets the offsets of its own records.
    """
    waiting = backlog(room, lanes)
    flying: list[Batch] = []
    requests: list[tuple[Delivery, int, list[int]]] = []
    given_in: dict[int, list[bytes]] = {}
    seen: dict[int, list[bytes | None]] = {}

    def land(batch: Batch, *, stored: bool) -> None:
        assert waiting.complete(batch)
        if stored:
            batch.stored(len(seen.get(batch.stream, [])))
        else:
            batch.lost()
        seen.setdefault(batch.stream, []).extend(values(batch))

    for number, step in enumerate([*steps, *["take", "store"] * 200]):
        if isinstance(step, list):
            delivery = Delivery()
            for stream in sorted(set(step)):
                indexes = [at for at, to in enumerate(step) if to == stream]
                names = [b"%d.%d" % (number, index) for index in indexes]
                given_in.setdefault(stream, []).extend(names)
                waiting.add_portion(stream, Portion(indexes, names, names), delivery, 0)
            requests.append((delivery, number, step))
        elif step == "take":
            flying += waiting.take_ready(float(number))
        elif flying:
            land(flying.pop(0), stored=step == "store")

    assert seen == given_in
    for delivery, number, streams in requests:
        assert delivery.done.done()
        stored = [
            (index, first + at) for indexes, first in delivery.offsets for at, index in enumerate(indexes)
        ]
        assert sorted([index for index, _ in stored] + delivery.unstored) == list(range(len(streams)))
        for index, offset in stored:
            assert seen[streams[index]][offset] == b"%d.%d" % (number, index)
