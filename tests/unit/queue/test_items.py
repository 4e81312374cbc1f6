"""Items in records of any topic: ids that nobody could have posted are none."""

from __future__ import annotations

import pytest

from services.queue.core.commands import Receipt
from services.queue.core.items import MAX_KEPT_ID_BYTES, Death, dead_letter, headers_of, life_of, read_record


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
