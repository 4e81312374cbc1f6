"""Items in records of any topic: ids that nobody could have posted are none."""

from __future__ import annotations

import pytest

from services.queue.core.commands import Receipt
from services.queue.core.items import (
    MAX_ITEM_BYTES,
    MAX_KEPT_ID_BYTES,
    MAX_POSTED,
    SLICE_BYTES,
    SLICE_ITEMS,
    Death,
    dead_letter,
    headers_of,
    life_of,
    read_record,
    reading_posted,
)
from shared.model.form import Form


@pytest.mark.parametrize("header", [b"\xff\x01", b"\xfe\x01", b"x" * (MAX_KEPT_ID_BYTES + 1), b""])
def test_a_header_that_cannot_be_an_id_is_none(header: bytes) -> None:
    """Two that are not UTF-8 would read the same, and one item would pass for a repeat of the other."""
    found = read_record(b"1", [("id", header), ("colour", b"red")], 7)

    assert (found.id, found.headers) == ("", {"colour": "red"})


def test_the_letter_of_the_longest_queue_has_an_id() -> None:
    """Else nothing would show that it was copied twice."""
    life = life_of(10**18, b"drawn")
    letter = dead_letter("q" * 61, Receipt(99, 10**18, 3), read_record(b"1", [], 7), Death(5, life), "bad")

    again = read_record(letter.value, headers_of(letter), 8)

    assert again.id == f"{'q' * 61}/99/{10**18}/{life}"
    assert again.headers == {"attempts": "5", "why": "bad"}


@pytest.mark.parametrize(
    ("item", "count", "slices"),
    [
        (b"{}", MAX_POSTED, MAX_POSTED // SLICE_ITEMS),
        (b'{"data":"%b"}' % (b"x" * SLICE_BYTES), 6, 6),
        (b'{"data":"%b"}' % (b"x" * (MAX_ITEM_BYTES - 11)), 1, 1),
    ],
    ids=["many", "large", "one"],
)
def test_items_are_read_in_slices(item: bytes, count: int, slices: int) -> None:
    """Others run between them: what one post takes is bounded, whatever it holds."""
    reading = reading_posted(b"[" + b",".join([item] * count) + b"]", Form.JSON)

    assert sum(1 for _ in reading) == slices - 1
