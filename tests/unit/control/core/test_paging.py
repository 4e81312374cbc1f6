"""Pages of lists: in any order, together they are the whole list, whatever comes and goes meanwhile."""

from __future__ import annotations

import random
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.control.core.paging import Listing, PageInvalid, columns_of, select


@dataclass(frozen=True)
class Row:
    """A row with an id, a text, a number that may be unknown, and a mark."""

    id: int
    owner: str
    lag: int | None
    is_good: bool


LISTING: Listing[Row] = Listing(columns=columns_of("id", "owner", "lag", "is_good"), default="id")
ROWS = st.lists(
    st.builds(
        Row,
        id=st.integers(),
        owner=st.text(max_size=2),
        lag=st.none() | st.integers(-3, 3),
        is_good=st.booleans(),
    ),
    unique_by=lambda row: row.id,
    max_size=12,
)
SORTS = st.lists(st.tuples(st.sampled_from(["", "-"]), st.sampled_from(["owner", "lag", "is_good", "id"])))


def whole(rows: list[Row], sort: str) -> list[Row]:
    """The list as a plain sort gives it: from the least column up, each stable, nulls last."""
    rows = sorted(rows, key=lambda row: row.id)
    for name in reversed(sort.split(",") if sort else []):
        column, is_descending = name.removeprefix("-"), name.startswith("-")
        known = [row for row in rows if getattr(row, column) is not None]
        # twice reversed, so that equals keep their order
        known = known[::-1] if is_descending else known
        known.sort(key=lambda row, column=column: getattr(row, column))  # type: ignore[misc]
        known = known[::-1] if is_descending else known
        rows = known + [row for row in rows if getattr(row, column) is None]
    return rows


@given(ROWS, SORTS, st.integers(1, 5), st.randoms())
def test_the_pages_are_the_whole_list_in_order(
    rows: list[Row], asked: list[tuple[str, str]], limit: int, rng: random.Random
) -> None:
    """For any order and length of pages, however the rows arrive; the last page has no `next`."""
    sort = ",".join("".join(one) for one in {column: (sign, column) for sign, column in asked}.values())
    shuffled, found, after = rng.sample(rows, len(rows)), list[Row](), None
    while True:
        page = LISTING.page(shuffled, sort=sort, after=after, limit=limit)
        found += page.rows
        if (after := page.next) is None:
            break
        assert len(page.rows) == limit

    assert found == whole(rows, sort)


@given(ROWS, st.sampled_from(["", "-lag", "owner"]), st.data())
def test_rows_that_come_and_go_shift_no_other_over_the_end_of_a_page(
    rows: list[Row], sort: str, data: st.DataObject
) -> None:
    """Every row that stays is on one page, exactly once."""
    first = LISTING.page(rows, sort=sort, limit=3)
    gone = data.draw(st.sets(st.sampled_from(rows))) if rows else set()
    new = data.draw(ROWS.map(lambda more: [row for row in more if row.id not in {one.id for one in rows}]))
    left = [row for row in rows if row not in gone] + new
    rest = LISTING.page(left, sort=sort, after=first.next, limit=100).rows if first.next else ()

    seen = [*first.rows, *rest]
    assert len(seen) == len(set(seen))
    assert set(rows) - gone <= set(seen) | (set() if first.next else set(rows))


def test_an_unknown_column_is_refused_with_the_known_ones() -> None:
    """The client learns what it may ask for."""
    with pytest.raises(PageInvalid, match="there is no column 'size' to sort by; there are id, is_good, lag"):
        LISTING.page([], sort="-size", limit=1)


@pytest.mark.parametrize("after", [b"", b"{", b"[[],1,[]]", b'[[["id",false]],"null",["x"]]', b"\xff"])
def test_what_is_no_cursor_is_refused(after: bytes) -> None:
    """Whoever sends it may have changed it."""
    with pytest.raises(PageInvalid, match="not a `next` of this list"):
        LISTING.page([Row(1, "a", 1, True)], after=after, limit=1)


def test_a_cursor_is_of_one_order_and_selection() -> None:
    """In another list it would skip rows."""
    rows = [Row(n, "a", n, True) for n in range(3)]
    after = LISTING.page(rows, limit=1, selected="x").next

    assert LISTING.page(rows, after=after, limit=1, selected="x").rows == [rows[1]]
    for other in ({"sort": "lag", "selected": "x"}, {"selected": "y"}):
        with pytest.raises(PageInvalid):
            LISTING.page(rows, after=after, limit=1, **other)


def test_rows_are_selected_by_their_fields() -> None:
    """By any of the wanted values in each named field; None allows all."""
    rows = [Row(1, "a", None, True), Row(2, "b", 1, True), Row(3, "b", 1, False)]

    assert select(rows, owner=["b"], is_good=[True], lag=None) == [rows[1]]
    assert select(rows, lag=[None, 2]) == [rows[0]]
