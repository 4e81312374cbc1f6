"""Replaying rejects: each once and in order, whatever the producer responds and wherever it stops."""

from __future__ import annotations

import json
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cli.importing.sending.lanes import BatchLimits
from cli.kafka.rejects import Place
from cli.rejects.replay import Replayed, count, replay, replay_id, with_id
from shared.errors import KafkaUnavailable, Unavailable
from shared.model.rejects import MAX_KEPT_BYTES, Reject, inserted_bytes
from tests.fakes.rejects import InMemoryRejectedLog, reject_of
from tests.unit.cli.fake_services import FAULTS, InMemoryProducer, without_repeats

LIMITS = BatchLimits(fragments=4, bytes=400)


def reject(value: bytes, reason: str = "time") -> Reject:
    return reject_of(value, reason=reason, detail="why", index=0)


def numbered(*numbers: int, reason: str = "time") -> list[Reject]:
    return [reject(b'{"key":"k", "n":%d}' % number, reason) for number in numbers]


async def send(
    log: InMemoryRejectedLog, producer: InMemoryProducer, patience_s: float = 1e9, reason: str = "time"
) -> Replayed:
    replayed = Replayed()
    log.open()
    await replay(log, producer.client(patience_s), reason, limits=LIMITS, replayed=replayed)
    return replayed


def stored(producer: InMemoryProducer) -> list[dict[str, object]]:
    """The producer's fragments without repeats; all have the same key."""
    return without_repeats(producer.logs[producer.table.stream_for(b"k")])


async def test_rejects_of_the_reason_are_sent_in_order() -> None:
    """Partition and offset form the id; the committed offset also passes rejects of other reasons."""
    log = InMemoryRejectedLog([numbered(0, 1), numbered(2) + numbered(8, 9, reason="key") + numbered(3)])
    producer = InMemoryProducer()

    replayed = await send(log, producer)

    assert [(one["n"], one["id"]) for one in stored(producer)] == [
        (0, "rejected/0/0"), (1, "rejected/0/1"), (2, "rejected/1/0"), (3, "rejected/1/3")
    ]  # fmt: skip
    assert log.places == {0: 2, 1: 4}
    assert (replayed.found, replayed.tally.accepted, replayed.all_accepted) == (4, 4, True)


async def test_a_second_replay_continues_after_the_first() -> None:
    """Nothing is sent twice."""
    log = InMemoryRejectedLog([numbered(0, 1)])
    producer = InMemoryProducer()
    await send(log, producer)
    log.append(0, numbered(2)[0])

    replayed = await send(log, producer)

    assert replayed.found == 1
    assert [one["n"] for one in stored(producer)] == [0, 1, 2]
    assert producer.requests == [2, 1]


@pytest.mark.parametrize(
    ("value", "sent"),
    [
        (b'{"key":"k"}', b'{"id":"i","key":"k"}'),
        (b' \r\n{ "key":"k"}', b' \r\n{"id":"i", "key":"k"}'),
        (b"\xef\xbb\xbf{}", b'\xef\xbb\xbf{"id":"i"}'),
        (b"{\n\t}", b'{"id":"i"\n\t}'),
        (b"{nonsense", b'{"id":"i",nonsense'),
        (b'["{"]', None),
        (b"nonsense {}", None),
        (b"7", None),
        (b"", None),
    ],
)
def test_the_id_is_inserted_after_the_opening_brace(value: bytes, sent: bytes | None) -> None:
    """All other bytes stay the same; anything but an object gets no id."""
    assert with_id(value, "i") == sent


@given(
    fields=st.dictionaries(
        st.just("id") | st.text(max_size=5), st.text(max_size=9) | st.integers() | st.none()
    )
)
def test_the_id_is_added_to_any_object(fields: dict[str, object]) -> None:
    """However it is indented; the fragment's own id wins, since it comes later."""
    for indent in (None, 1):
        value = json.dumps(fields, indent=indent).encode()

        assert json.loads(with_id(value, "i") or b"") == {"id": "i"} | fields


@given(
    value=st.sampled_from([b'{"key":"k"}', b' \r\n{"key":"k"}', b"\xef\xbb\xbf{}", b"{\n\t}"]),
    partition=st.integers(0, 9_999),
    offset=st.integers(0, 2**63 - 1),
)
def test_producers_know_how_long_an_inserted_id_is(value: bytes, partition: int, offset: int) -> None:
    """So that the id does not count towards the limit of a fragment, or of what is kept of a reject."""
    replayed = with_id(value, replay_id(partition, offset)) or b""

    assert inserted_bytes(replayed) == len(replayed) - len(value)
    assert inserted_bytes(value) == 0


async def test_a_reject_of_the_largest_size_can_be_replayed_twice() -> None:
    """It was kept whole; with an id it is longer, and if it is rejected again it must be kept whole again."""
    largest = b'{"key":"k","time":-1,"data":"%b"}' % (b"x" * (MAX_KEPT_BYTES - 31))
    replayed = with_id(largest, replay_id(0, 2**63 - 1)) or b""

    first, again = (reject(value) for value in (largest, replayed))

    assert len(largest) == MAX_KEPT_BYTES
    assert (first.is_cut, again.is_cut) == (False, False)
    assert reject(replayed + b" ").is_cut


async def test_rejects_that_cannot_be_sent_are_counted_and_skipped() -> None:
    """Truncated ones have lost their end, and anything but an object cannot carry an id."""
    cut = reject(b'{"key":"k","data":"' + b"x" * MAX_KEPT_BYTES)
    log = InMemoryRejectedLog([[cut, reject(b"nonsense"), *numbered(1), reject(b"[1]")]])
    producer = InMemoryProducer()

    replayed = await send(log, producer)

    assert (replayed.found, replayed.cut, replayed.no_object, replayed.to_send) == (4, 1, 2, 1)
    assert [one["n"] for one in stored(producer)] == [1]
    assert log.places == {0: 4}
    assert not replayed.all_accepted


async def test_a_fragment_that_is_rejected_again_is_reported_and_not_retried() -> None:
    """With its new reason, or as still unreadable, when the producer answers 400.

    The new reject is beyond the end up to which this replay reads.
    """
    log = InMemoryRejectedLog([[*numbered(0), reject(b'{"key":""}'), *numbered(1), reject(b'{"key":"k"\n')]])
    producer = InMemoryProducer()

    replayed = await send(log, producer)

    assert (replayed.tally.accepted, replayed.tally.rejected) == (2, 2)
    assert [(reason, found.count, found.line) for reason, found in replayed.tally.reasons.items()] == [
        ("key", 1, 1),
        ("unreadable", 1, 3),
    ]
    assert log.places == {0: 4}


async def test_a_multi_line_fragment_is_sent_alone() -> None:
    """As one JSON object, since a line break would split it in NDJSON; in its turn."""
    odd = reject(b'{"key":"k",\n "n":1}')
    log = InMemoryRejectedLog([[*numbered(0), odd, *numbered(2, 3)]], page_size=9)
    producer = InMemoryProducer()

    replayed = await send(log, producer)

    assert replayed.tally.accepted == 4
    assert [one["n"] for one in stored(producer)] == [0, 1, 2, 3]
    assert producer.requests == [1, 1, 2]
    assert producer.types == ["application/x-ndjson", "application/json", "application/x-ndjson"]


async def test_an_unavailable_producer_does_not_advance_the_committed_offset() -> None:
    """What was acknowledged before is not sent again."""
    log = InMemoryRejectedLog([numbered(*range(8))], page_size=8)
    producer = InMemoryProducer(faults=["", *["503"] * 100])

    with pytest.raises(Unavailable):
        await send(log, producer, patience_s=0.0)

    assert log.places == {0: 4}


async def test_a_dry_run_counts_and_changes_nothing() -> None:
    """It counts what a replay would find from the committed offset on."""
    log = InMemoryRejectedLog([[*numbered(0, 1), reject(b"7"), *numbered(5, reason="key")]])
    log.stored = {0: Place(offset=1)}
    log.open()
    replayed = Replayed()

    await count(log, "time", replayed)

    assert (replayed.found, replayed.to_send, replayed.no_object) == (2, 1, 1)
    assert log.places == {0: 1}


@pytest.mark.parametrize(
    "place",
    [Place(offset=99), Place(offset=3, appended_ms=1_002), Place(offset=2, appended_ms=999)],
    ids=["beyond the end", "beyond the end, with a time", "regrown"],
)
async def test_a_lost_log_is_replayed_from_its_start_once(place: Place) -> None:
    """A topic that was deleted and created anew: the old place says nothing about it, and is replaced."""
    log = InMemoryRejectedLog([numbered(0, 1)])
    log.stored = {0: place}

    first = await send(log, InMemoryProducer())
    second = await send(log, InMemoryProducer())

    assert (first.tally.accepted, first.has_started_over) == (2, True)
    assert (second.found, second.has_started_over) == (0, False)
    assert log.stored == {0: Place(offset=2, appended_ms=1_001)}


@pytest.mark.parametrize(
    ("place", "first"),
    [(Place(offset=2, appended_ms=1_001), 0), (Place(offset=2), 0), (Place(offset=2, appended_ms=999), 2)],
    ids=["the same log", "of an earlier version", "retention has deleted the record"],
)
async def test_a_replay_continues_on_the_log_that_it_knows(place: Place, first: int) -> None:
    """It compares the time of the last record that was replayed, if both are still there."""
    log = InMemoryRejectedLog([numbered(0, 1, 2)])
    log.stored, log.first = {0: place}, first

    replayed = await send(log, InMemoryProducer())

    assert (replayed.found, replayed.has_started_over) == (1, False)


@settings(max_examples=50)
@given(seed=st.integers(0, 2**32), total=st.integers(0, 40))
async def test_each_is_stored_once_whatever_happens(seed: int, total: int) -> None:
    """Faults of the producer, failed commits, pages of any size: every fragment, none twice."""
    rng = random.Random(seed)
    pads = [rng.choice(["", " ", "\n", "x" * 90]) for _ in range(total)]
    values = [b'{"key":"k","n":%d,"pad":%b}' % (n, json.dumps(pad).encode()) for n, pad in enumerate(pads)]
    lines = [value.replace(b",", b",\n") if rng.random() < 0.2 else value for value in values]
    log = InMemoryRejectedLog([[reject(line) for line in lines]], page_size=rng.randint(1, 9))
    log.fails_to_keep = [KafkaUnavailable("lost") for _ in range(rng.randrange(3))]
    faults = [rng.choice(["", *FAULTS]) for _ in range(12)]
    producer = InMemoryProducer(faults=faults, rng=rng)

    while log.places.get(0, 0) < total:
        try:
            await send(log, producer)
        except KafkaUnavailable:
            continue

    assert [one["n"] for one in stored(producer)] == list(range(total))
