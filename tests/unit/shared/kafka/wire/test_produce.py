"""shared/kafka/wire/produce.py encodes and decodes exactly what aiokafka does."""

from __future__ import annotations

import io

import pytest
from aiokafka.errors import IncompatibleBrokerVersion
from aiokafka.protocol.produce import ProduceRequest_v7, ProduceResponse_v7
from hypothesis import given
from hypothesis import strategies as st

from shared.kafka.wire.produce import ProduceRequest, ProduceResponse

names = st.text(st.characters(codec="utf-8"), max_size=20)
int16, int32, int64 = (st.integers(-(2**bits), 2**bits - 1) for bits in (15, 31, 63))
topics_of = st.dictionaries(names, st.dictionaries(int32, st.binary(max_size=50), max_size=3), max_size=4)


@given(timeout=int32, topics=topics_of, correlation_id=int32, client=names, transaction=st.none() | names)
def test_a_request_is_encoded_as_aiokafka_encodes_it(
    timeout: int,
    topics: dict[str, dict[int, bytes]],
    correlation_id: int,
    client: str,
    transaction: str | None,
) -> None:
    """The same bytes for any number of topics, partitions and records, and the same header."""
    kept = {topic: batches for topic, batches in topics.items() if batches}
    quick = ProduceRequest(
        timeout,
        [
            ((topic, number), (raw[:5], raw[5:]))
            for topic, rows in kept.items()
            for number, raw in rows.items()
        ],
        transaction,
    )
    listed = [(topic, list(rows.items())) for topic, rows in kept.items()]
    slow = ProduceRequest_v7(transaction, -1, timeout, listed)

    assert quick.encode() == slow.encode()
    assert (
        quick.build_request_header(correlation_id, client).encode()
        == slow.build_request_header(correlation_id, client).encode()
    )


@given(
    topics=st.dictionaries(
        names, st.dictionaries(int32, st.tuples(int16, int64, int64, int64), max_size=3), max_size=4
    ),
    throttle_ms=int32,
    correlation_id=int32,
)
def test_a_response_is_decoded_as_aiokafka_encodes_it(
    topics: dict[str, dict[int, tuple[int, int, int, int]]], throttle_ms: int, correlation_id: int
) -> None:
    """Error code and offset of every partition, after the header."""
    rows = [(topic, [(number, *row) for number, row in found.items()]) for topic, found in topics.items()]
    stream = io.BytesIO(
        correlation_id.to_bytes(4, "big", signed=True) + ProduceResponse_v7(rows, throttle_ms).encode()
    )

    header = ProduceRequest(0, []).parse_response_header(stream)
    results = ProduceResponse.decode(stream).results

    assert header.correlation_id == correlation_id
    assert results == {
        (topic, number): (code, offset)
        for topic, found in topics.items()
        for number, (code, offset, _, _) in found.items()
    }


def test_a_broker_that_does_not_speak_the_version_is_refused() -> None:
    """Before anything is sent."""
    with pytest.raises(IncompatibleBrokerVersion):
        ProduceRequest(0, []).prepare({0: (0, 6)})
