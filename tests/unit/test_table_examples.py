"""The examples of docs/lake.md that need no Spark run as they are written."""

from __future__ import annotations

import datetime
import re
import shlex
from pathlib import Path

import pyarrow as pa
import pytest
from click.testing import CliRunner

from cli.commands.sql import sql
from tests.tables import session, write_sessions, write_table

PAGE = (Path(__file__).parents[2] / "docs" / "lake.md").read_text()
WITHOUT_SPARK = PAGE.split("\n## Without Spark\n")[1]


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    """Sessions of two keys with paths, and items."""
    noon = 807_278_400_000  # 1995-08-01
    day = datetime.date(1995, 8, 1)
    paths = ['{"data":{"path":"/a"}}', '{"data":{"path":"/b"}}', '{"data":{"path":"/a"}}']
    rows = [
        session(n, "ann" if n else "bob", first_time=noon, last_time=noon + 9000, day=day, data=paths)
        for n in range(3)
    ]
    write_sessions(tmp_path / "lake", rows)
    write_table(tmp_path / "lake", "reports/items", pa.table({"item": ["/a", "/c"], "place": [1, 9]}))
    return tmp_path / "lake"


@pytest.mark.parametrize(
    ("package", "shown"), [("pandas", r"ann +2 .*1995-08-01 .* 9\.0"), ("duckdb", r"/a +│ +6 ")]
)
def test_an_example_in_python_runs(
    package: str, shown: str, lake: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """And prints what it promises."""
    (example,) = [
        code for code in re.findall(r"```python\n(.*?)```", PAGE, re.S) if f"import {package}" in code
    ]

    exec(example.replace('".baton/lake/sessions"', repr(str(lake / "sessions"))), {})

    assert re.search(shown, capsys.readouterr().out)


def test_each_query_of_baton_sql_runs(lake: Path) -> None:
    """On the tables that the page names."""
    commands = [shlex.split(line) for line in re.findall(r"(?m)^baton sql (.+)$", WITHOUT_SPARK)]
    results = []
    for words in commands:
        arguments = words[: words.index("--lake")] if "--lake" in words else words
        results.append(CliRunner().invoke(sql, [*arguments, "--lake", str(lake)], catch_exceptions=False))

    assert [result.exit_code for result in results] == [0] * len(commands)
    assert len(commands) >= 3
    assert re.search(r"ann +2", results[0].output)
    assert ("/a" in results[1].output, "/c" in results[1].output) == (True, False)
