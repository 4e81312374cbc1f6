"""Lists the tables of the lake over HTTP, and shows that control answers others while one is read."""

from __future__ import annotations

import asyncio
import datetime
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pyarrow as pa
import pytest
from deltalake import DeltaTable

from services.control.core.lake.paths import NamespaceTaken
from services.control.tables.lake import Lake, UnknownTable, columns_of
from services.control.tables.reader import READS_AT_ONCE, TableReader, TableReadTooLong, TablesBusy
from shared.errors import Unavailable
from tests.tables import session, write_sessions, write_table
from tests.unit.control.http.test_app import InMemoryRunner, app_of
from tests.unit.control.sources import small_baton
from tests.waiting import until

ONE = f"/sessions/{1:032x}"
PERIODS = pa.table({"group": ["default"], "start": [datetime.datetime(2026, 11, 23, tzinfo=datetime.UTC)]})


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    """A lake with two tables, a checkpoint folder, and another namespace's table."""
    write_sessions(tmp_path, [session(n, f"key-{n % 3}") for n in range(9)])
    write_sessions(tmp_path, [session(9)])
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


async def test_a_lake_that_is_not_there_yet_has_no_tables() -> None:
    """No run has made it; a table of it is unknown."""
    app = await app_of(small_baton(), InMemoryRunner())
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://control") as client:
        assert (await client.get("/tables")).json() == {"tables": [], "freshness": []}


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
def test_only_tables_can_be_opened(lake: Path, name: str) -> None:
    """Nothing outside the lake, and no folder of it that is not a table."""
    with pytest.raises(UnknownTable):
        Lake(str(lake), "").open(name)


def test_types_are_named_as_in_spark(lake: Path) -> None:
    """The same names as in docs/lake.md."""
    found = {one.name: one.type for one in columns_of(Lake(str(lake), "").open("sessions"))}

    assert (found["id"], found["bytes"], found["topic_partition"]) == ("string", "bigint", "int")
    assert (found["day"], found["data"]) == ("date", "array<string>")


class SlowLake(Lake):
    """Opens tables only once it is let."""

    def __init__(self, lake: str) -> None:
        super().__init__(lake, "")
        self.let = threading.Event()
        self.waiting = 0

    def open(self, name: str) -> DeltaTable:
        self.waiting += 1
        assert self.let.wait(60)
        return super().open(name)


async def test_control_answers_others_while_tables_are_read(
    lake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A read too many is refused with Retry-After; all others go on, and the reads end well."""
    slow = SlowLake(str(lake))
    monkeypatch.setattr("tests.unit.control.http.test_app.Lake", lambda *_: slow)
    app = await app_of(small_baton(), InMemoryRunner())
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://control") as client:
        reads = [asyncio.create_task(client.get(ONE)) for _ in range(READS_AT_ONCE)]
        await until(lambda: slow.waiting == READS_AT_ONCE)
        refused = await client.get(ONE)
        others = [(await client.get(path)).status_code for path in ("/livez", "/streams", "/metrics")]
        slow.let.set()
        answers = [(await read).status_code for read in reads]
        again = await client.get(ONE)

    assert refused.json()["type"] == "urn:baton:tables-busy"
    assert refused.headers["retry-after"] == "1"
    assert others == [200, 200, 200]
    assert answers == [200] * READS_AT_ONCE
    assert again.status_code == 200


async def test_a_read_that_takes_too_long_is_a_503(lake: Path) -> None:
    """Its thread still counts until it ends, so that reads do not pile up."""
    slow = SlowLake(str(lake))
    reader = TableReader(slow, patience_s=0.01)
    kinds = []
    for _ in range(READS_AT_ONCE + 1):
        with pytest.raises(Unavailable) as caught:
            await reader.read(lambda lake: lake.open("sessions"))
        kinds.append(caught.type)
    slow.let.set()
    reader.close()

    assert kinds == [TableReadTooLong] * READS_AT_ONCE + [TablesBusy]
