"""Pages of a table add up to what plain Python filters and sorts; cursors are not trusted."""

from __future__ import annotations

import asyncio
import base64
import datetime
import math
import tempfile
from collections.abc import Mapping, Sequence
from functools import cmp_to_key
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from services.control.core.lake.tables import Asked
from services.control.tables.cursor import parse_cursor
from services.control.tables.formats import CSV
from services.control.tables.lake import Lake, columns_of
from services.control.tables.query import QueryInvalid
from services.control.tables.reader import MAX_PAGE_BYTES, TableChanged, TableReader
from tests.effort import effort
from tests.tables import session, write_sessions, write_table

SCHEMA = pa.schema(
    [
        ("text", pa.string()),
        ("whole", pa.int64()),
        ("small", pa.int32()),
        ("real", pa.float64()),
        ("day", pa.date32()),
        ("at", pa.timestamp("us", "UTC")),
        ("flag", pa.bool_()),
        ("list", pa.list_(pa.string())),
        ("id", pa.string()),
    ]
)
COMPARED = [name for name in SCHEMA.names if name != "list"]
START = datetime.datetime(2026, 11, 23, 12, tzinfo=datetime.UTC)
TEXTS = ["", "a", "a'b", 'a"b', "ä\\", "%_", "\U0001f600", "a b&c"]

values = {
    "text": st.sampled_from(TEXTS),
    "whole": st.sampled_from([-(2**63), -1, 0, 1, 2**53 + 1, 2**63 - 1]),
    "small": st.integers(-2, 2),
    "real": st.sampled_from([-1e300, -0.5, 0.25, 3.0]),
    "day": st.sampled_from([datetime.date(1969, 12, 31), datetime.date(2026, 11, 23)]),
    "at": st.sampled_from(
        [START, START + datetime.timedelta(microseconds=1), datetime.datetime.fromtimestamp(0, datetime.UTC)]
    ),
    "flag": st.booleans(),
    "list": st.lists(st.sampled_from(TEXTS), max_size=2),
}
cells = st.fixed_dictionaries({name: st.none() | strategy for name, strategy in values.items()})
conditions = st.sampled_from([name for name in COMPARED if name != "id"]).flatmap(
    lambda name: st.tuples(
        st.just(name),
        st.sampled_from(["eq", "ne", "lt", "lte", "gt", "gte", "null"]),
        values[name],
        st.booleans(),
    )
)
orders = st.lists(
    st.tuples(st.sampled_from(COMPARED), st.booleans()), max_size=3, unique_by=lambda one: one[0]
)


def asked_text(value: Any) -> str:
    """A value as a request spells it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return value.isoformat() if isinstance(value, datetime.date) else str(value)


def holds(row: Mapping[str, Any], name: str, operator: str, value: Any, is_null: bool) -> bool:
    """A filter in plain Python; a comparison with nothing does not hold."""
    cell = row[name]
    if operator == "null":
        return (cell is None) is is_null
    if cell is None:
        return False
    signs = {"eq": cell == value, "ne": cell != value, "lt": cell < value, "lte": cell <= value}
    return bool((signs | {"gt": cell > value, "gte": cell >= value})[operator])


def ordered(rows: Sequence[Mapping[str, Any]], terms: Sequence[tuple[str, bool]]) -> list[Mapping[str, Any]]:
    """The rows by these columns, and then by id; nothing comes last."""

    def compare(one: Mapping[str, Any], other: Mapping[str, Any]) -> int:
        for name, is_descending in terms:
            a, b = one[name], other[name]
            if a == b:
                continue
            if a is None or b is None:
                return 1 if a is None else -1
            return -1 if (a > b if is_descending else a < b) else 1
        return 0

    return sorted(rows, key=cmp_to_key(compare))


async def pages(reader: TableReader, asked: Asked) -> list[dict[str, Any]]:
    """All rows of all pages."""
    rows: list[dict[str, Any]] = []
    while True:
        page = await reader.page(asked)
        found = msgspec.json.decode(page.body)
        assert found["next"] == page.next
        assert len(found["rows"]) <= asked.limit
        rows += found["rows"]
        if page.next is None:
            return rows
        assert found["rows"] != []
        asked = msgspec.structs.replace(asked, after=page.next)


def as_json(rows: Sequence[Mapping[str, Any]]) -> Any:
    """The rows as the JSON format shows them."""
    return msgspec.json.decode(msgspec.json.encode(rows))


TIED = [dict.fromkeys(values) | {"list": ["a"] * (n % 3), "real": 0.25 * (n % 2)} for n in range(12)]


@settings(max_examples=effort(40), deadline=None)
@example(rows=TIED, wanted=[], terms=[], limit=1, has_ids=False)
@given(
    rows=st.lists(cells, max_size=12),
    wanted=st.lists(conditions, max_size=3, unique_by=lambda one: one[:2]),
    terms=orders,
    limit=st.integers(1, 5),
    has_ids=st.booleans(),
)
async def test_pages_add_up_to_what_plain_python_selects(
    rows: list[dict[str, Any]],
    wanted: list[tuple[str, str, Any, bool]],
    terms: list[tuple[str, bool]],
    limit: int,
    has_ids: bool,
) -> None:
    """In the order asked for, each row once; also rows that are equal, and those without a value."""
    rows = [row | {"id": f"{number:02}" if has_ids else "same"} for number, row in enumerate(rows)]
    schema = SCHEMA if has_ids else SCHEMA.remove(SCHEMA.get_field_index("id"))
    terms = [term for term in terms if has_ids or term[0] != "id"]
    with tempfile.TemporaryDirectory() as folder:
        for part in (rows[::2], rows[1::2]):
            write_table(Path(folder), "t", pa.Table.from_pylist(part, schema))
        reader = TableReader(Lake(folder, ""))
        asked = Asked(
            name="t",
            filters=[
                (f"{name}.{operator}", asked_text(is_null if operator == "null" else value))
                for name, operator, value, is_null in wanted
            ],
            sort=",".join(f"-{name}" if is_descending else name for name, is_descending in terms),
            limit=limit,
            kind="application/json",
        )
        found = await pages(reader, asked)
        reader.close()

    selected = [row for row in rows if all(holds(row, *one) for one in wanted)]
    if has_ids:
        expected = ordered(selected, [*terms, ("id", False)])
        assert found == as_json([{name: row[name] for name in schema.names} for row in expected])
    else:
        keep = [{name: row[name] for name in schema.names} for row in selected]
        assert sorted(map(str, found)) == sorted(map(str, as_json(keep)))
        by_terms = [[row[name] for name, _ in terms] for row in found]
        assert by_terms == [[row[name] for name, _ in terms] for row in as_json(ordered(keep, terms))]


@pytest.fixture
def reader(tmp_path: Path) -> TableReader:
    """A reader of a lake with sessions in two commits."""
    write_sessions(tmp_path, [session(n, f"key {n % 3}") for n in range(6)])
    write_sessions(tmp_path, [session(n, f"key {n % 3}") for n in range(6, 9)])
    return TableReader(Lake(str(tmp_path), ""))


def asking(**more: Any) -> Asked:
    """A request for sessions."""
    return Asked(**{"name": "sessions", "kind": "application/json"} | more)


async def test_pages_stay_with_the_version_of_the_first(reader: TableReader, tmp_path: Path) -> None:
    """Sessions that are committed meanwhile are not among them."""
    first = await reader.page(asking(limit=4))
    write_sessions(tmp_path, [session(n, f"key {n % 3}") for n in range(9, 30)])
    rest = await pages(reader, asking(limit=4, after=first.next))

    ids = [row["id"] for row in [*msgspec.json.decode(first.body)["rows"], *rest]]
    assert sorted(ids) == [f"{n:032x}" for n in range(9)]


async def test_a_filter_on_the_key_opens_only_its_files(tmp_path: Path) -> None:
    """By their statistics: the other file is gone, and is not missed. So is a filter on a partition."""
    other = datetime.date(2023, 11, 16)
    write_sessions(tmp_path, [session(1, "ann")])
    mine = set((tmp_path / "sessions").rglob("*.parquet"))
    write_sessions(tmp_path, [session(2, "bob")])
    write_sessions(tmp_path, [session(3, "ann", day=other)])
    for file in set((tmp_path / "sessions").rglob("*.parquet")) - mine:
        file.unlink()
    reader = TableReader(Lake(str(tmp_path), ""))

    found = await pages(reader, asking(filters=[("key", "ann"), ("day", "2023-11-15")]))
    listed = await reader.tables()

    assert [row["id"] for row in found] == [f"{1:032x}"]
    assert listed[0].rows == 3  # from the log alone
    with pytest.raises(TableChanged):
        await pages(reader, asking(filters=[("key", "ann")]))


async def test_a_cursor_to_removed_files_or_another_table_is_a_conflict(
    reader: TableReader, tmp_path: Path
) -> None:
    """After VACUUM, and when the table was made anew; the sentence says to begin again."""
    first = await reader.page(asking(limit=2))
    for file in (tmp_path / "sessions").rglob("*.parquet"):
        file.unlink()
    with pytest.raises(TableChanged, match="begin with the first page"):
        await reader.page(asking(limit=2, after=first.next))

    (tmp_path / "sessions").rename(tmp_path / "old")
    write_sessions(tmp_path, [session(1)])
    with pytest.raises(TableChanged, match="begin with the first page"):
        await reader.page(asking(limit=2, after=first.next))


async def test_a_page_has_a_bound_in_bytes(tmp_path: Path) -> None:
    """Sessions of more bytes than that come one by one, and the others together; none is left out."""
    large, small = MAX_PAGE_BYTES, MAX_PAGE_BYTES // 3
    write_sessions(tmp_path, [session(n, bytes=large if n < 2 else small) for n in range(8)])
    reader = TableReader(Lake(str(tmp_path), ""))

    sizes, after = [], ""
    while after is not None:
        page = await reader.page(asking(after=after, columns="id,data"))
        sizes.append(len(msgspec.json.decode(page.body)["rows"]))
        after = page.next  # type: ignore[assignment]

    assert sizes == [1, 1, 3, 3]
    # without their fragments they are small
    assert (await reader.page(asking(columns="id"))).next is None


async def test_numbers_that_are_not_finite_have_a_place(tmp_path: Path) -> None:
    """In pages of one row, up and down; NaN is nothing, and comes last. JSON shows them as null."""
    numbers = [math.nan, math.inf, 0.5, -math.inf, None]
    rows = [{"id": str(n), "real": real} for n, real in enumerate(numbers)]
    write_table(tmp_path, "t", pa.Table.from_pylist(rows, SCHEMA.remove(0).remove(0)))
    reader = TableReader(Lake(str(tmp_path), ""))

    async def by(sort: str) -> str:
        asked = Asked(name="t", columns="id,real", sort=sort, limit=1, kind="application/json")
        return "".join(row["id"] for row in await pages(reader, asked))

    assert await by("real") == "32104"
    assert await by("-real") == "12304"


async def test_values_without_a_json_type_are_readable(tmp_path: Path) -> None:
    """Binary as base64, a structure as an object; in CSV a structure is JSON."""
    row = {"id": "1", "raw": b"\xff\x00", "places": [{"n": 1}], "none": None}
    fields = [
        ("raw", pa.binary()),
        ("places", pa.list_(pa.struct([("n", pa.int64())]))),
        ("none", pa.string()),
    ]
    write_table(tmp_path, "t", pa.Table.from_pylist([row], pa.schema([("id", pa.string()), *fields])))
    reader = TableReader(Lake(str(tmp_path), ""))

    (shown,) = await pages(reader, Asked(name="t", kind="application/json"))
    lines = (await reader.page(Asked(name="t", kind=CSV))).body.decode().splitlines()

    assert shown == {"id": "1", "raw": "/wA=", "places": [{"n": 1}], "none": None}
    assert lines == ['"id","raw","places","none"', '"1","/wA=","[{""n"":1}]",']


async def test_a_change_of_the_query_is_no_next_page(reader: TableReader) -> None:
    """The cursor belongs to filters and order; other columns are welcome."""
    first = await reader.page(asking(limit=2))

    await reader.page(asking(limit=2, after=first.next, columns="id"))
    for other in (asking(after=first.next, sort="id"), asking(after=first.next, filters=[("key", "x")])):
        with pytest.raises(QueryInvalid, match="after"):
            await reader.page(other)


@given(
    text=st.text(max_size=30) | st.binary(max_size=30).map(lambda raw: base64.urlsafe_b64encode(raw).decode())
)
def test_any_text_is_a_cursor_or_refused(text: str) -> None:
    """Nothing else is raised."""
    with pytest.raises(QueryInvalid):
        parse_cursor(text)


def test_a_place_in_a_cursor_cannot_carry_sql(reader: TableReader, tmp_path: Path) -> None:
    """A value of another type than its column's is refused; text is quoted."""
    first = asyncio.run(reader.page(asking(limit=2, sort="-fragments,day")))
    cursor = parse_cursor(first.next or "")
    for place in (
        ["1 OR TRUE", *cursor.place[1:]],
        [cursor.place[0], "2026-01-01' OR '1'='1", cursor.place[2]],
    ):
        forged = msgspec.structs.replace(cursor, place=place).text()
        with pytest.raises(QueryInvalid):
            asyncio.run(reader.page(asking(limit=2, sort="-fragments,day", after=forged)))


def test_types_are_named_as_in_spark(reader: TableReader, tmp_path: Path) -> None:
    """The same names as in docs/lake.md."""
    found = {one.name: one.type for one in columns_of(Lake(str(tmp_path), "").open("sessions"))}

    assert (found["id"], found["bytes"], found["topic_partition"]) == ("string", "bigint", "int")
    assert (found["day"], found["data"]) == ("date", "array<string>")


@pytest.mark.parametrize("columns", [12, 40])
async def test_a_table_of_many_columns_without_an_id_is_read_page_by_page(
    tmp_path: Path, columns: int
) -> None:
    """All of them order its rows, as in `reports/periods`; the engine parses conditions only so deep."""
    rows = [{f"c{n:02}": row if n == columns - 1 else n for n in range(columns)} for row in range(3)]
    write_table(tmp_path, "wide", pa.Table.from_pylist(rows))
    reader = TableReader(Lake(str(tmp_path), ""))

    found, after = list[bytes](), ""
    for _ in rows:
        page = await reader.page(Asked(name="wide", limit=1, after=after, kind=CSV))
        found.append(page.body.splitlines()[-1].rpartition(b",")[2])
        after = page.next or ""

    assert found == [b"0", b"1", b"2"]
    assert after == ""
