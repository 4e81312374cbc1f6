"""Routing: golden values, and the format of the stream table."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.errors import InvalidInput
from shared.model.routing import SLOTS, initial_table, parse_table, slot_for

GOLDEN = {
    # key: (slot, stream of 1, 13, 24, 97, 4096)
    "visitor-1": (1780, 0, 5, 10, 42, 1780),
    "199.72.81.55": (763, 0, 2, 4, 18, 763),
    "müller": (3673, 0, 11, 21, 87, 3673),
    "訪問者": (3460, 0, 10, 20, 81, 3460),
}
COUNTS = (1, 13, 24, 97, 4096)


@pytest.mark.parametrize("key", GOLDEN)
def test_the_stream_of_a_key_never_changes(key: str) -> None:
    """Producers of every version and the importer agree."""
    slot, *streams = GOLDEN[key]

    assert slot_for(key.encode()) == slot
    assert [initial_table(count).stream_for(key.encode()) for count in COUNTS] == streams


@given(count=st.integers(1, SLOTS), key=st.binary(min_size=1, max_size=256))
def test_the_first_table_gives_every_slot_to_one_stream_in_equal_ranges(count: int, key: bytes) -> None:
    """Stream i of n owns `[i·4096//n, (i+1)·4096//n)`, and a key belongs to the stream of its slot."""
    table = initial_table(count)

    stream = table.stream_for(key)

    assert table.count == count
    assert stream * SLOTS // count <= slot_for(key) < (stream + 1) * SLOTS // count


@given(count=st.integers(1, SLOTS))
def test_a_table_is_read_as_it_was_written(count: int) -> None:
    """The znode's JSON holds the complete table."""
    table = initial_table(count)

    assert parse_table(table.encode()) == table


def test_the_znode_has_the_documented_format() -> None:
    """Half-open ranges of slots and a state for each stream."""
    raw = initial_table(2).encode()

    assert msgspec.json.decode(raw) == {
        "version": 1,
        "streams": {
            "0": {"slots": [[0, 2048]], "state": "active"},
            "1": {"slots": [[2048, 4096]], "state": "active"},
        },
    }


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        (b"", "cannot be read"),
        (b"[]", "cannot be read"),
        (b'{"version":1,"streams":{"x":{"slots":[[0,4096]]}}}', "not a number"),
        (b'{"version":1,"streams":{"0":{"slots":[[0,4097]]}}}', "impossible slot range"),
        (b'{"version":1,"streams":{"0":{"slots":[[7,7]]}}}', "impossible slot range"),
        (b'{"version":1,"streams":{"0":{"slots":[[0,4096]]},"1":{"slots":[[5,6]]}}}', "slot 5 belongs to"),
        (b'{"version":1,"streams":{"0":{"slots":[[0,4000]]}}}', "slot 4000 belongs to no stream"),
        (b'{"version":1,"streams":{"1":{"slots":[[0,4096]]}}}', "without a gap"),
    ],
)
def test_every_slot_must_have_exactly_one_stream(raw: bytes, words: str) -> None:
    """A damaged table must not route anything."""
    with pytest.raises(InvalidInput, match=words):
        parse_table(raw)


@pytest.mark.parametrize("count", [0, -1, SLOTS + 1])
def test_there_are_between_one_and_4096_streams(count: int) -> None:
    """A stream owns at least one slot."""
    with pytest.raises(InvalidInput, match=f"the number of streams must be 1 … 4096, not {count}"):
        initial_table(count)
