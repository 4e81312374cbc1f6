"""A fetch read beside a plain list of what was written: transactions, damage, any start and size."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from shared.errors import KafkaUnavailable
from shared.kafka.read.batches import RecordBuffer, Scan, scan
from tests.effort import effort
from tests.fakes.kafka_log import FakePartition, sign

PRODUCERS = (7, 8)
Step = tuple[str, int, int]
"""What is appended, by which producer, in how many records."""
steps = st.tuples(
    st.sampled_from(["write", "write", "plain", "commit", "abort", "abort"]),
    st.sampled_from(PRODUCERS),
    st.integers(1, 3),
)


@dataclass
class Written:
    """A log, and which of its offsets a reader of committed records must find."""

    log: FakePartition = field(default_factory=lambda: FakePartition(b"t" * 16))
    committed: set[int] = field(default_factory=set)
    of_records: set[int] = field(default_factory=set)
    open: dict[int, list[int]] = field(default_factory=dict)

    def append(self, kind: str, producer: int, count: int) -> None:
        offsets = range(self.log.end, self.log.end + count)
        if kind in ("commit", "abort"):
            self._end(producer, is_commit=kind == "commit")
            return
        self.log.append(*(b"%d" % n for n in offsets), producer=producer if kind == "write" else -1)
        self.of_records.update(offsets)
        if kind == "write":
            self.open.setdefault(producer, []).extend(offsets)
        else:
            self.committed.update(offsets)

    def _end(self, producer: int, *, is_commit: bool) -> None:
        if offsets := self.open.pop(producer, None):
            if is_commit:
                self.committed.update(offsets)
            else:
                self.log.aborted.append((producer, offsets[0], self.log.end))
            self.log.append(b"a marker", producer=producer, control=True)

    def fetched(self, batches: range) -> tuple[bytes, list[tuple[int, int]]]:
        """The bytes of these batches, and the aborted transactions that reach into them."""
        some = self.log.batches[batches.start : batches.stop]
        aborted = [
            (producer, first)
            for producer, first, last in self.log.aborted
            if last >= some[0].base and first <= some[-1].last
        ]
        return b"".join(batch.data for batch in some), aborted


def written(todo: list[Step]) -> Written:
    found = Written()
    for step in todo:
        found.append(*step)
    for producer in PRODUCERS:  # a broker keeps back what is undecided
        found.append("abort", producer, 1)
    return found


def spoil(log: FakePartition, number: int) -> None:
    """Makes a batch one that no codec can decode; its checksum is right."""
    raw = bytearray(log.batches[number].data)
    raw[22] |= 4
    raw[61:] = b"not zstd"
    struct.pack_into(">i", raw, 8, len(raw) - 12)
    sign(raw)
    log.batches[number].data = bytes(raw)


def taken(buffer: RecordBuffer, most: int) -> tuple[list[int], bool]:
    """The offsets of all that can be taken, and whether damage ended that."""
    found: list[int] = []
    while True:
        before = buffer.position
        try:
            some = buffer.take(most)
        except KafkaUnavailable:
            return found, True
        assert len(some) <= most
        found += [record.offset for record in some]
        assert len(some) < most or buffer.position == found[-1] + 1
        if not some and buffer.position == before:
            return found, False


@given(
    todo=st.lists(steps, min_size=5, max_size=20),
    cuts=st.sets(st.integers(1, 12)),
    start=st.integers(0, 4),
    most=st.integers(1, 5),
    damaged=st.none() | st.integers(2, 12),
    is_committed=st.sampled_from([True, True, False]),
)
@example([("write", 8, 1), ("write", 7, 1)], set(), 0, 5, None, True)  # two transactions in one fetch
@settings(max_examples=effort(300), deadline=None)
def test_a_reader_gets_what_was_committed_up_to_the_damage(
    todo: list[Step], cuts: set[int], start: int, most: int, damaged: int | None, is_committed: bool
) -> None:
    """From any offset, in calls of any size, however the batches are cut into fetches. A batch that cannot be
    decoded stops the reader, unless it is a marker or of an aborted transaction: nobody decodes those.
    """
    one = written(todo)
    batches, shown = one.log.batches, one.committed if is_committed else one.of_records
    first = next((n for n, batch in enumerate(batches) if batch.last >= start), len(batches))
    stop = one.log.end
    if damaged is not None and first <= damaged < len(batches):
        spoil(one.log, damaged)
        if batches[damaged].base in shown:
            stop = batches[damaged].base
    buffer = RecordBuffer(is_committed=is_committed)
    buffer.start(start)
    ends = sorted({cut for cut in cuts if first < cut < len(batches)} | {len(batches)})
    for begin, end in zip([first, *ends], ends, strict=False):
        if begin < end:
            buffer.add(*one.fetched(range(begin, end)))

    found, is_damaged = taken(buffer, most)

    assert found == [offset for offset in sorted(shown) if start <= offset < stop]
    assert is_damaged == (stop < one.log.end)
    assert buffer.size == 0 or is_damaged
    assert buffer.position >= stop or is_damaged or start > stop
    if is_damaged:  # and it stays so
        assert taken(buffer, most) == ([], True)


def test_a_batch_that_cannot_be_decoded_is_not_taken_for_an_aborted_one() -> None:
    """Its producer aborted an earlier transaction in the same fetch; the first call took what precedes."""
    one = written([("write", 7, 2), ("abort", 7, 1), ("write", 7, 2), ("write", 7, 3), ("commit", 7, 1)])
    spoil(one.log, 3)
    buffer = RecordBuffer(is_committed=True)
    buffer.start(0)
    buffer.add(*one.fetched(range(len(one.log.batches))))

    assert [record.offset for record in buffer.take(100)] == [3, 4]
    for _ in range(2):
        with pytest.raises(KafkaUnavailable, match="damaged records: at 5"):
            buffer.take(100)
    assert buffer.position == 5


def test_the_marker_of_an_abort_ends_the_transaction() -> None:
    """What the same producer writes and commits behind it is read."""
    one = written([("write", 7, 1), ("abort", 7, 1), ("write", 7, 1), ("commit", 7, 1)])
    buffer = RecordBuffer(is_committed=True)
    buffer.start(0)
    buffer.add(*one.fetched(range(4)))

    assert [record.offset for record in buffer.take(100)] == [2]
    assert buffer.position == 4


@given(counts=st.lists(st.integers(1, 3), max_size=5), cut=st.integers(0, 400))
def test_a_scan_counts_whole_batches_only(counts: list[int], cut: int) -> None:
    """Wherever a broker has cut a fetch: the offset and the leader's epoch behind the last whole batch."""
    log = FakePartition(b"t" * 16)
    for epoch, count in enumerate(counts):
        log.epoch = epoch
        log.append(*[b"v"] * count)
    data = b"".join(batch.data for batch in log.batches)[:cut]
    expected = Scan(-1, -1, 0)
    for batch in log.batches:
        if expected.size + len(batch.data) > cut:
            break
        expected = Scan(batch.last + 1, batch.epoch, expected.size + len(batch.data))

    assert scan(data) == expected
