"""Counts and checksums of what the lake has written: they find every row that is lost, added or altered."""

from __future__ import annotations

from datetime import date, timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.control.spark.lake.checksums import SUMMED, checksum_of
from services.control.spark.lake.plan import Note, read_note, with_counts
from services.control.spark.lake.sums import DAILY, MODULUS, Span, Sums, add

_FIRST = date(2025, 1, 1)
_rows = st.lists(st.tuples(st.integers(0, 400), st.integers(0, MODULUS - 1)), max_size=40)
ROW: dict[str, Any] = {name: name if name in ("id", "group", "key", "reason") else 7 for name in SUMMED}


def by_day(rows: list[tuple[int, int]]) -> dict[str, Span]:
    """Rows, each a number of its day and a checksum, as a table sums them."""
    days: dict[str, Span] = {}
    for day, checksum in rows:
        days = add(days, {(_FIRST + timedelta(days=day)).isoformat(): (1, checksum)})
    return days


@given(_rows, st.lists(st.integers(1, 9), min_size=1), st.integers(0, 400))
def test_a_table_that_holds_what_was_written_never_differs(
    rows: list[tuple[int, int]], batches: list[int], since: int
) -> None:
    """In any order and any batches, from the first row on or from a day; old days are summed by month."""
    sums = Sums(since=(_FIRST + timedelta(days=since)).isoformat() if since % 2 else "")
    left = list(rows)
    while left:
        size = batches[len(left) % len(batches)]
        sums = sums.plus(by_day(left[:size]))
        left = left[size:]

    assert sums.differences(by_day(rows[::-1])) == {}
    newest = max((name for name in sums.spans if len(name) == 10), default=None)
    assert all(
        date.fromisoformat(newest or "") - date.fromisoformat(name) <= DAILY
        for name in sums.spans
        if len(name) == 10
    )


@given(_rows.filter(bool), st.data())
def test_a_row_that_is_lost_added_or_altered_is_found(
    rows: list[tuple[int, int]], data: st.DataObject
) -> None:
    """In its day, or in its month if that is long ago; also if it was the only one."""
    sums = Sums().plus(by_day(rows))
    at = data.draw(st.integers(0, len(rows) - 1))
    day, checksum = rows[at]
    name = (_FIRST + timedelta(days=day)).isoformat()

    for other in ([], [rows[at], rows[at]], [(day, (checksum + 1) % MODULUS)]):
        (found,) = sums.differences(by_day([*rows[:at], *other, *rows[at + 1 :]]))
        assert name.startswith(found)


def test_a_note_of_years_is_small() -> None:
    """Each commit has one, so it must not grow with the days that a group has."""
    sums = Sums()
    for day in range(5 * 365):
        sums = sums.plus(by_day([(day, MODULUS - 1 - day)]))

    assert len(msgspec.json.encode(sums)) < 6_000
    assert sums.differences(by_day([(day, MODULUS - 1 - day) for day in range(5 * 365)])) == {}


@pytest.mark.parametrize("name", SUMMED)
def test_the_checksum_covers_every_column(name: str) -> None:
    """Also where the columns are as long as before."""
    before = checksum_of(tuple(ROW.values()), [b"{}"])

    assert checksum_of(tuple((ROW | {name: "8"}).values()), [b"{}"]) != before


@pytest.mark.parametrize(
    "data", [[], [b"{}"], [b"{}", b"{} "], [b"{}{}"], [b"{}\x1f2:{}"], [b"{}", b"{}", b"{}"]]
)
def test_the_checksum_covers_every_fragment(data: list[bytes]) -> None:
    """Its bytes, its place and where it ends."""
    assert checksum_of(tuple(ROW.values()), data) != checksum_of(tuple(ROW.values()), [b"{}", b"{}"])


def test_notes_of_earlier_versions_have_no_sums() -> None:
    """They get none by new rows: nobody has summed up the others."""
    text = Note(group="g").encode().replace(',"sums":null', "")
    note = read_note(text, "g")

    assert note is not None
    assert with_counts(note, 1, 1, 1, {"2025-01-01": (1, 5)}).sums is None
    begun = with_counts(Note(group="g", sums=Sums()), 1, 1, 1, {"2025-01-01": (1, 5)})
    assert begun.sums == Sums(spans={"2025-01-01": (1, 5)})
