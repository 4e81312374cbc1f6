"""Pages of finished sessions add up to what plain Python selects, and open only the files they need."""

from __future__ import annotations

import datetime
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.control.core.found import SessionRow, parse_place
from services.control.tables.lake import Lake, LakeUnavailable
from services.control.tables.reader import TableReader
from services.control.tables.sessions import MAX_PAGE_BYTES, LakeSessions
from shared.errors import InvalidInput
from tests.effort import effort
from tests.tables import session, write_sessions

DAYS = [datetime.date(2023, 11, 15), datetime.date(2023, 11, 16)]
VALUES = {
    "group": st.sampled_from(["default", "o'neil"]),
    "key": st.sampled_from(["", "a'b", 'ä"\\', "%_", "\U0001f600"]),
    "first_time": st.sampled_from([-1, 0, 5, 2**53 + 1, 2**63 - 1]),
    "day": st.sampled_from(DAYS),
}


def reader_of(lake: Path | str) -> TableReader:
    """A reader of the lake without a namespace."""
    return TableReader(Lake(str(lake), ""))


def file_of(lake: Path, row: Mapping[str, Any]) -> Path:
    """Writes the row; returns the file that holds nothing else."""
    before = set(lake.rglob("*.parquet"))
    write_sessions(lake, [row])
    (file,) = set(lake.rglob("*.parquet")) - before
    return file


async def pages(
    sessions: LakeSessions, sought: Mapping[str, str], limit: int = 100, *, with_data: bool = False
) -> list[list[SessionRow]]:
    """All pages; each begins where the text of the place before leads."""
    found, place = list[list[SessionRow]](), None
    while True:
        rows, place = await sessions.newest(sought, limit=limit, after=place, with_data=with_data)
        found.append(rows)
        if place is None:
            return found
        place = parse_place(str(place))


@settings(max_examples=effort(40), deadline=None)
@given(
    rows=st.lists(st.fixed_dictionaries(VALUES), min_size=1, max_size=12),
    limit=st.integers(1, 5),
    with_data=st.booleans(),
)
async def test_pages_add_up_to_what_plain_python_selects(
    rows: list[dict[str, Any]], limit: int, with_data: bool
) -> None:
    """Of a key and of a day: the newest first, each once, also those that began at the same time."""
    rows = [session(number, **row) for number, row in enumerate(rows)]
    first = rows[0]
    with tempfile.TemporaryDirectory() as folder:
        write_sessions(Path(folder), rows[::2])
        write_sessions(Path(folder), rows[1::2])
        tables = reader_of(folder)
        found = {
            name: await pages(
                LakeSessions(tables),
                {"group": first["group"], name: str(first[name])},
                limit,
                with_data=with_data,
            )
            for name in ("key", "day")
        }
        tables.close()

    for name, of_name in found.items():
        same = [row for row in rows if (row["group"], row[name]) == (first["group"], first[name])]
        same.sort(key=lambda row: (-row["first_time"], row["id"]))
        assert [(one.id, one.data) for page in of_name for one in page] == [
            (row["id"], row["data"] if with_data else None) for row in same
        ]
        assert [len(page) for page in of_name[:-1]] == [limit] * (len(of_name) - 1)


async def test_sessions_that_are_added_meanwhile_repeat_none(tmp_path: Path) -> None:
    """Older ones come in their place, newer ones with the next look-up."""
    write_sessions(tmp_path, [session(n) for n in (2, 4, 6)])
    tables = reader_of(tmp_path)
    sessions, sought = LakeSessions(tables), {"group": "default", "key": "ann"}
    first, place = await sessions.newest(sought, limit=2)
    write_sessions(tmp_path, [session(n) for n in (1, 3, 5, 7)])
    rest, end = await sessions.newest(sought, limit=9, after=place)
    tables.close()

    assert [one.first_offset for one in (*first, *rest)] == [60, 40, 30, 20, 10]
    assert end is None


async def test_a_look_up_opens_only_the_files_that_it_needs(tmp_path: Path) -> None:
    """By the files' statistics: those of other keys and of other days are gone, and are not missed."""
    rows = [session(1, "ann"), session(2, "bob"), session(3, "ann", day=DAYS[1])]
    files = [file_of(tmp_path, row) for row in rows]
    tables = reader_of(tmp_path)
    sessions = LakeSessions(tables)

    files[1].unlink()
    of_ann = await pages(sessions, {"group": "default", "key": "ann"}, with_data=True)
    files[2].unlink()
    with pytest.raises(LakeUnavailable):
        await pages(sessions, {"group": "default", "day": "2023-11-15"})
    write_sessions(tmp_path, [session(4, day=DAYS[1] + datetime.timedelta(1))])
    of_day = await pages(sessions, {"group": "default", "day": "2023-11-17"}, with_data=True)
    (listed,) = await tables.tables()
    tables.close()

    assert [one.id for one in of_ann[0]] == [rows[2]["id"], rows[0]["id"]]
    assert [one.first_offset for one in of_day[0]] == [40]
    assert listed.rows == 4  # from the log alone


async def test_a_page_with_fragments_has_a_bound_in_bytes(tmp_path: Path) -> None:
    """Sessions of more bytes than that come one by one, and the others together; none is left out."""
    large, small = MAX_PAGE_BYTES, MAX_PAGE_BYTES // 3
    write_sessions(tmp_path, [session(n, bytes=small if n < 6 else large) for n in range(8)])
    tables = reader_of(tmp_path)
    sought = {"group": "default", "key": "ann"}
    found = await pages(LakeSessions(tables), sought, with_data=True)
    narrow = await pages(LakeSessions(tables), sought)
    tables.close()

    assert [len(page) for page in found] == [1, 1, 3, 3]
    assert [len(page) for page in narrow] == [8]


@given(text=st.text(min_size=1, max_size=60))
def test_any_text_is_a_place_or_refused(text: str) -> None:
    """A place reaches SQL, so nothing but a time and an id is one."""
    with pytest.raises(InvalidInput):
        parse_place(text)
