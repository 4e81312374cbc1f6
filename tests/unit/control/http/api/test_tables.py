"""`/tables` over HTTP: the list, formats, refusals, and that control answers others while a table is read."""

from __future__ import annotations

import asyncio
import csv
import datetime
import io
import json
import threading
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import httpx
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from services.control.core.lake.paths import NamespaceTaken
from services.control.core.lake.tables import Asked
from services.control.tables.lake import Lake
from services.control.tables.reader import READS_AT_ONCE, TableReader, TableReadTooLong, TablesBusy
from shared.errors import Unavailable
from tests.tables import NOON, session, write_sessions, write_table
from tests.unit.control.http.test_app import InMemoryRunner, app_of
from tests.unit.control.sources import small_baton
from tests.waiting import until

PERIODS = pa.table({"group": ["default"], "start": [datetime.datetime(2026, 11, 23, tzinfo=datetime.UTC)]})


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    """A lake with two tables, a checkpoint folder, and another namespace's table."""
    write_sessions(tmp_path, [session(n, f"key-{n % 3}") for n in range(9)])
    write_sessions(tmp_path, [session(9, "ö'", first_offset=2**53 + 1, bytes=2**63 - 1)])
    write_table(tmp_path, "reports/periods", PERIODS)
    write_table(tmp_path, "shop/sessions", PERIODS)
    write_table(tmp_path, "_checkpoints", PERIODS)
    return tmp_path


@pytest.fixture
async def http(lake: Path) -> AsyncIterator[httpx.AsyncClient]:
    """A client of control on this lake."""
    app = await app_of(small_baton(), InMemoryRunner(), lake=str(lake))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://control") as client:
        yield client


async def test_the_list_says_what_each_table_holds(http: httpx.AsyncClient, lake: Path) -> None:
    """From the log: rows, files, bytes, version, time and columns; only tables of this namespace."""
    before = (await http.get("/tables")).json()["tables"]
    write_sessions(lake, [session(10)])
    after = (await http.get("/tables")).json()["tables"]

    assert [table["name"] for table in after] == ["reports/periods", "sessions"]
    sessions = after[1]
    table = DeltaTable(lake / "sessions")
    files = list((lake / "sessions").rglob("*.parquet"))
    assert [one["rows"] for one in (before[1], sessions)] == [10, 11]
    assert (sessions["version"], sessions["files"]) == (table.version(), len(files))
    assert sessions["bytes"] == sum(file.stat().st_size for file in files)
    assert sessions["committed_at"] == table.history(1)[0]["timestamp"]
    assert sessions["partitioned_by"] == ["group", "day"]
    assert {"name": "data", "type": "array<string>"} in sessions["columns"]


async def test_a_filter_by_group_takes_aliases(lake: Path) -> None:
    """A name that is both means the group that it is an alias of, as it does to jobs."""
    sources = small_baton()
    sources.cluster.cluster = replace(
        sources.cluster.cluster, aliases={"live": "default", "default": "other"}
    )
    app = await app_of(sources, InMemoryRunner(), lake=str(lake))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://control") as client:
        rows = {
            name: len((await client.get("/tables/reports/periods", params={name: value})).json()["rows"])
            for name, value in (("group", "live"), ("group.eq", "default"), ("group.ne", "other"))
        }

    assert rows == {"group": 1, "group.eq": 0, "group.ne": 1}


async def test_a_lake_that_is_not_there_yet_has_no_tables() -> None:
    """No run has made it; a table of it is unknown."""
    app = await app_of(small_baton(), InMemoryRunner())
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://control") as client:
        assert (await client.get("/tables")).json() == {"tables": [], "freshness": []}
        assert (await client.get("/tables/sessions")).status_code == 404


async def test_tables_of_a_namespace_are_its_own(lake: Path) -> None:
    """`reports` in it is a folder of tables there, too."""
    reader = TableReader(Lake(str(lake), "shop"))

    assert [row.name for row in await reader.tables()] == ["sessions"]
    reader.close()


async def test_a_namespace_of_the_name_of_a_table_has_no_tables(lake: Path) -> None:
    """What is in that folder is another Baton's."""
    reader = TableReader(Lake(str(lake), "sessions"))

    with pytest.raises(NamespaceTaken, match="'sessions' can have no lake"):
        await reader.tables()
    reader.close()


@pytest.mark.parametrize("name", ["../sessions", "sessions/../sessions", "_checkpoints", "reports", "a/b/c"])
async def test_only_tables_can_be_read(http: httpx.AsyncClient, name: str) -> None:
    """Nothing outside the lake, and no folder of it that is not a table."""
    response = await http.get("/tables/" + name.replace("..", "%2e%2e"))

    assert response.status_code == 404
    assert response.json()["type"] == "urn:baton:unknown-table"


async def test_json_keeps_integers_exact_and_times_as_stored(http: httpx.AsyncClient) -> None:
    """64 bits of them; a timestamp is RFC 3339; a table's name may have a slash."""
    page = (await http.get("/tables/sessions", params={"key": "ö'"})).json()
    periods = (await http.get("/tables/reports/periods")).json()

    assert page["rows"] == [session(9, "ö'", first_offset=2**53 + 1, bytes=2**63 - 1) | {"day": "2023-11-15"}]
    assert (page["table"], page["version"], page["next"]) == ("sessions", 1, None)
    assert periods["rows"] == [{"group": "default", "start": "2026-11-23T00:00:00Z"}]


async def test_filters_take_operators_and_repeated_values(http: httpx.AsyncClient) -> None:
    """Repeated values mean any of them, different filters all of them."""

    async def numbers(query: str) -> list[int]:
        rows = (await http.get(f"/tables/sessions?columns=topic_offset&sort=topic_offset&{query}")).json()
        return [row["topic_offset"] for row in rows["rows"]]

    assert await numbers("key=key-0&key=key-2&topic_offset.lt=6") == [0, 2, 3, 5]
    assert await numbers("key.prefix=key-1") == [1, 4, 7]
    assert await numbers("first_time.gte=2023-11-15T12:00:08Z") == [8, 9]
    assert await numbers(f"first_time.gte={NOON + 8000}&data.null=false") == [8, 9]
    assert await numbers("key=%27%20OR%201%3D1%20--") == []


async def test_a_page_leads_to_the_next_one(http: httpx.AsyncClient) -> None:
    """By `next` and by the header `Link`, which keeps the query."""
    first = await http.get("/tables/sessions", params={"limit": 6, "columns": "id", "key.prefix": "k"})
    second = await http.get(f"/tables/sessions{first.links['next']['url']}")

    assert len(first.json()["rows"]) == 6
    assert [list(row) for row in second.json()["rows"]] == [["id"]] * 3
    assert second.json()["next"] is None
    assert "link" not in second.headers


async def test_csv_and_parquet_hold_the_same_rows(http: httpx.AsyncClient) -> None:
    """By parameter or by `Accept`; CSV has lists as JSON, Parquet has every type."""
    query: dict[str, str | int] = {"limit": 4, "sort": "-topic_offset"}
    rows = (await http.get("/tables/sessions", params=query)).json()["rows"]
    as_csv = await http.get("/tables/sessions", params=query, headers={"Accept": "text/csv"})
    as_parquet = await http.get("/tables/sessions", params=query | {"format": "parquet"})

    table = pq.read_table(io.BytesIO(as_parquet.content))
    lines = list(csv.DictReader(io.StringIO(as_csv.text)))
    assert as_csv.headers["content-type"] == "text/csv; charset=utf-8"
    assert [line["bytes"] for line in lines] == [str(row["bytes"]) for row in rows]
    assert [line["key"] for line in lines] == [row["key"] for row in rows]
    assert [json.loads(line["data"]) for line in lines] == [row["data"] for row in rows]
    assert [row | {"day": str(row["day"])} for row in table.to_pylist()] == rows
    assert "next" in as_csv.links
    assert "next" in as_parquet.links


async def test_a_faulty_query_is_refused_with_what_exists(http: httpx.AsyncClient) -> None:
    """One problem document with every fault."""
    response = await http.get("/tables/sessions?kee=x&bytes=many&sort=data&columns=id,nope")

    assert response.status_code == 422
    faults = {fault["in"]: fault["detail"] for fault in response.json()["errors"]}
    assert faults.keys() == {"query.kee", "query.bytes", "query.sort", "query.columns"}
    assert "topic_offset" in faults["query.kee"]
    assert (await http.get("/tables/sessions?limit=0")).status_code == 422
    assert (await http.get("/tables/sessions?after=x")).status_code == 422


async def test_a_cursor_outlived_by_its_files_is_a_409(http: httpx.AsyncClient, lake: Path) -> None:
    """As VACUUM leaves it."""
    first = (await http.get("/tables/sessions?limit=1")).json()
    for file in (lake / "sessions").rglob("*.parquet"):
        file.unlink()

    response = await http.get("/tables/sessions", params={"limit": 1, "after": first["next"]})

    assert response.status_code == 409
    assert response.json()["type"] == "urn:baton:table-changed"


class SlowLake(Lake):
    """Opens tables only once it is let."""

    def __init__(self, lake: str) -> None:
        super().__init__(lake, "")
        self.let = threading.Event()
        self.waiting = 0

    def open(self, name: str, version: int | None = None) -> DeltaTable:
        self.waiting += 1
        assert self.let.wait(60)
        return super().open(name, version)


async def test_control_answers_others_while_tables_are_read(
    lake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A read too many is refused with Retry-After; all others go on, and the reads end well."""
    slow = SlowLake(str(lake))
    monkeypatch.setattr("tests.unit.control.http.test_app.Lake", lambda *_: slow)
    app = await app_of(small_baton(), InMemoryRunner())
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://control") as client:
        reads = [asyncio.create_task(client.get("/tables/sessions")) for _ in range(READS_AT_ONCE)]
        await until(lambda: slow.waiting == READS_AT_ONCE)
        refused = await client.get("/tables/sessions")
        others = [(await client.get(path)).status_code for path in ("/livez", "/streams", "/metrics")]
        slow.let.set()
        answers = [(await read).status_code for read in reads]
        again = await client.get("/tables/sessions")

    assert refused.json()["type"] == "urn:baton:tables-busy"
    assert refused.headers["retry-after"] == "1"
    assert others == [200, 200, 200]
    assert answers == [200] * READS_AT_ONCE
    assert again.status_code == 200


async def test_a_read_that_takes_too_long_is_a_503(lake: Path) -> None:
    """Its thread still counts until it ends, so that reads do not pile up."""
    slow = SlowLake(str(lake))
    reader = TableReader(slow, patience_s=0.01)
    asked = Asked(name="sessions", kind="application/json")
    kinds = []
    for _ in range(READS_AT_ONCE + 1):
        with pytest.raises(Unavailable) as caught:
            await reader.page(asked)
        kinds.append(caught.type)
    slow.let.set()
    reader.close()

    assert kinds == [TableReadTooLong] * READS_AT_ONCE + [TablesBusy]
