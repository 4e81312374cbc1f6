"""The audit's own computation of a key's stream, against the one by which producers route."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.control.spark.audit.routing import SLOTS, NotAStreamTable, read_owners, slot_of
from shared.model.routing import initial_table, slot_for


@given(st.binary(max_size=256))
def test_both_find_the_same_slot(key: bytes) -> None:
    """Bit by bit here, by zlib there."""
    assert slot_of(key) == slot_for(key)


@given(st.integers(1, SLOTS))
def test_both_read_the_same_table(count: int) -> None:
    """Every slot has the same stream."""
    table = initial_table(count)

    assert tuple(read_owners(table.encode().decode())) == table.owner_of


def test_a_slot_with_two_streams_or_none_has_none() -> None:
    """No key is rightly routed by it."""
    owners = read_owners(json.dumps({"streams": {"0": {"slots": [[0, 3]]}, "1": {"slots": [[2, 4]]}}}))

    assert list(owners[:5]) == [0, 0, -1, 1, -1]


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"streams":{"x":{"slots":[[0,1]]}}}', '{"streams":{"0":{"slots":[[0,9999]]}}}']
)
def test_what_is_no_table_is_refused(text: str) -> None:
    """The audit then says that it does not judge the routing."""
    with pytest.raises(NotAStreamTable):
        read_owners(text)
