"""`baton table` against control's own app on a small lake."""

from __future__ import annotations

import asyncio
import csv
import io
import json
from pathlib import Path

import httpx
import pytest
from click.testing import Result

from tests.tables import NOON, session, write_sessions
from tests.unit.cli.fake_services import baton
from tests.unit.control.http.test_app import InMemoryRunner, app_of
from tests.unit.control.sources import small_baton

COUNT = 1_100
"""More than a page of the client."""


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Sessions with a key that a terminal must not obey."""
    lake = tmp_path_factory.mktemp("lake")
    write_sessions(lake, [session(n, f"key-{n}" if n else "\x1b[2J") for n in range(COUNT)])
    return lake


def table(lake: Path, *arguments: str) -> Result:
    """The command's result."""
    app = asyncio.run(app_of(small_baton(), InMemoryRunner(), lake=str(lake)))

    async def answer(request: httpx.Request) -> httpx.Response:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app)) as http:
            url = request.url.copy_with(host="localhost")
            found = await http.get(url)
            kind = {"content-type": found.headers["content-type"]}
            return httpx.Response(found.status_code, content=found.content, headers=kind)

    return baton(answer, "table", *arguments)


def test_without_a_name_it_lists_the_tables(lake: Path) -> None:
    """With what each holds."""
    assert "1,100" in table(lake).output
    assert json.loads(table(lake, "-o", "json").output)["tables"][0]["rows"] == COUNT


def test_it_prints_rows_with_filters(lake: Path) -> None:
    """Columns and order as asked for; lists only by name; nothing that a terminal would obey."""
    text = table(lake, "sessions", f"first_time.gte={NOON + 1_098_000}", "--sort", "-topic_offset").output
    wide = table(lake, "sessions", "topic_offset=7", "--columns", "key,data").output

    assert text.index("key-1099") < text.index("key-1098")
    assert "key-1097" not in text
    assert '{"key"' not in text
    assert "key-7" in wide
    assert '"n' in wide
    assert "\x1b[2J" not in table(lake, "sessions", "topic_offset=0").output
    assert "no row" in table(lake, "sessions", "key=nobody").output


def test_a_limit_may_be_more_than_a_page(lake: Path) -> None:
    """All rows come, each once."""
    rows = json.loads(table(lake, "sessions", "--limit", "2000", "-o", "json").output)["rows"]
    lines = list(csv.DictReader(io.StringIO(table(lake, "sessions", "-n", "1050", "--csv").output)))

    assert sorted(row["topic_offset"] for row in rows) == list(range(COUNT))
    assert len({line["id"] for line in lines}) == 1050
    assert json.loads(lines[0]["data"])


def test_a_faulty_request_says_what_exists(lake: Path) -> None:
    """Control's sentence; a filter that is none is caught here."""
    unknown = table(lake, "sessions", "kee=x")

    assert unknown.exit_code == 1
    assert "topic_offset" in str(unknown.exception)
    assert table(lake, "nothing").exit_code == 1
    assert table(lake, "sessions", "key").exit_code == 2
