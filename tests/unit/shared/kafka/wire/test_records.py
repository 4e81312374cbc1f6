"""shared/kafka/wire/records.py encodes exactly what aiokafka's builder does."""

from __future__ import annotations

from aiokafka.record.default_records import DefaultRecordBatchBuilder
from aiokafka.record.memory_records import MemoryRecords
from hypothesis import given
from hypothesis import strategies as st

from shared.kafka.wire.records import (
    BATCH_OVERHEAD,
    CODECS,
    RECORD_OVERHEAD,
    Producer,
    Timed,
    encode_batch,
    sign_again,
    size_of,
)

int16, int32, int64 = (st.integers(0, 2**bits - 1) for bits in (15, 31, 63))
producers = st.tuples(int64, int16)
contents = st.one_of(st.binary(max_size=80), st.sampled_from([63, 64, 8_191, 8_192, 20_000]).map(bytes))
headers = st.lists(st.tuples(st.text(max_size=5), st.binary(max_size=70)), max_size=3)
times_ms = st.one_of(st.integers(1_000, 1_100), st.integers(0, 2**45))
records_of = st.lists(
    st.tuples(times_ms, st.none() | contents, st.none() | contents, st.just([]) | headers),
    min_size=1,
    max_size=8,
)


def built(records: list[Timed], producer: Producer, sequence: int, *, is_transactional: bool) -> bytes:
    """The batch as aiokafka makes it."""
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=0,
        is_transactional=is_transactional,
        producer_id=producer[0],
        producer_epoch=producer[1],
        base_sequence=sequence,
        batch_size=1 << 30,
    )
    for offset, (time_ms, key, value, named) in enumerate(records):
        builder.append(offset, time_ms, key, value, named)
    return bytes(builder.build())


@given(records_of, producers, int32, st.booleans())
def test_a_batch_is_encoded_as_aiokafka_encodes_it(
    records: list[Timed], producer: Producer, sequence: int, is_transactional: bool
) -> None:
    """The same bytes for any keys, values, headers and times; it is no larger than was reckoned."""
    batch = b"".join(encode_batch(records, producer, sequence, is_transactional=is_transactional))
    reckoned = sum(
        RECORD_OVERHEAD + len(key or b"") + len(value or b"") + size_of(named)
        for _, key, value, named in records
    )

    assert batch == built(records, producer, sequence, is_transactional=is_transactional)
    assert len(batch) <= BATCH_OVERHEAD + reckoned


@given(records_of, producers, producers, int32)
def test_a_batch_can_be_signed_again(
    records: list[Timed], producer: Producer, other: Producer, sequence: int
) -> None:
    """It is then what the other producer would have encoded."""
    batch = sign_again(encode_batch(records, producer, 0), other, sequence)

    assert batch == encode_batch(records, other, sequence)


@given(records_of, st.sampled_from(sorted(CODECS)))
def test_compressed_records_can_be_read(records: list[Timed], codec: str) -> None:
    """With each codec, whether it makes them smaller or not; the checksum holds."""
    batch = MemoryRecords(b"".join(encode_batch(records, (1, 2), 3, codec))).next_batch()

    assert batch is not None
    assert batch.validate_crc()
    assert [(one.timestamp, one.key, one.value, list(one.headers)) for one in batch] == records
