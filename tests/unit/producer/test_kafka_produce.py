"""kafka/produce.py encodes and decodes exactly what aiokafka does."""

from __future__ import annotations

import io

import pytest
from aiokafka import AIOKafkaProducer, TopicPartition
from aiokafka.protocol.produce import ProduceRequest, ProduceRequest_v7, ProduceResponse_v7
from hypothesis import given
from hypothesis import strategies as st

from services.producer.kafka.produce import (
    QuickRequest,
    QuickResponse,
    produce_quickly,
    rewind_sequence,
    send_batch,
)
from shared.kafka.clients import discard_producer

names = st.text(st.characters(codec="utf-8"), max_size=20)
int16, int32, int64 = (st.integers(-(2**bits), 2**bits - 1) for bits in (15, 31, 63))
results = st.tuples(int32, int16, int64, int64, int64)


@given(
    transactional_id=st.none() | names,
    acks=st.sampled_from([-1, 0, 1]),
    timeout=int32,
    topics=st.lists(
        st.tuples(names, st.lists(st.tuples(int32, st.binary(max_size=50)), max_size=3)), max_size=4
    ),
)
def test_a_request_is_encoded_as_aiokafka_encodes_it(
    transactional_id: str | None, acks: int, timeout: int, topics: list[tuple[str, list[tuple[int, bytes]]]]
) -> None:
    """The same bytes for any number of topics, partitions and records, also with a transaction."""
    fields = (transactional_id, acks, timeout, topics)

    assert QuickRequest(*fields).encode() == ProduceRequest_v7(*fields).encode()


@given(topics=st.lists(st.tuples(names, st.lists(results, max_size=3)), max_size=4), throttle_ms=int32)
def test_a_response_is_decoded_as_aiokafka_decodes_it(
    topics: list[tuple[str, list[tuple[int, ...]]]], throttle_ms: int
) -> None:
    """The same result for every partition, wherever in a stream the response begins."""
    raw = ProduceResponse_v7(topics, throttle_ms).encode()
    stream = io.BytesIO(b"head" + raw)
    stream.seek(4)

    for quick in (QuickResponse.decode(raw), QuickResponse.decode(stream)):
        expected = ProduceResponse_v7.decode(raw)
        assert (quick.topics, quick.throttle_time_ms) == (expected.topics, expected.throttle_time_ms)
        assert quick.API_VERSION == expected.API_VERSION


def test_producers_use_the_quick_request() -> None:
    """A broker that speaks version 7 gets it; installing it twice is harmless; other versions stay."""
    assert produce_quickly()
    assert produce_quickly()

    prepared = ProduceRequest(None, -1, 1000, []).prepare({0: (3, 13)})
    older = ProduceRequest(None, -1, 1000, []).prepare({0: (0, 6)})

    assert type(prepared) is QuickRequest
    assert older.API_VERSION == 6


@pytest.mark.parametrize("attempts", [1, 2])
async def test_only_a_batch_sent_once_returns_its_sequence_numbers(attempts: int) -> None:
    """An earlier attempt may have been written with them; the next batch would then pass for its retry."""
    producer = AIOKafkaProducer(bootstrap_servers="127.0.0.1:1", enable_idempotence=True)
    accumulator, numbers, where = producer._message_accumulator, producer._txn_manager, TopicPartition("t", 0)
    numbers.set_pid_and_epoch(7, 0)
    producer.client.cluster._partitions["t"] = {0: None}
    builder = producer.create_batch()
    for value in (b"1", b"2"):
        builder.append(timestamp=1, key=None, value=value)

    future, inner = await send_batch(producer, builder, where)
    for attempt in range(attempts):
        if attempt:
            accumulator.reenqueue(inner)
        accumulator._pop_batch(where)
    used = numbers.sequence_number(where)
    is_rewound = rewind_sequence(producer, inner)
    future.cancel()
    await discard_producer(producer)

    assert used == 2
    assert is_rewound == (attempts == 1)
    assert numbers.sequence_number(where) == (0 if attempts == 1 else 2)
