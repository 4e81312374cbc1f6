"""`baton sql`: the lake's tables as views, read where a query needs them, and nothing else within reach."""

from __future__ import annotations

import asyncio
import datetime
import json
import signal
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from click.testing import CliRunner, Result

from cli.commands.sql import open_lake, run, sql
from shared.errors import BatonError, InvalidInput, NotFound
from tests.tables import session, write_sessions, write_table
from tests.waiting import until

DAYS = [datetime.date(2026, 11, day) for day in (21, 22)]


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    """Sessions of two days, and a table in a folder."""
    for number, day in enumerate(DAYS):
        rows = [session(2 * number + n, f"key-{n}", day=day, bytes=2**62) for n in range(2)]
        write_sessions(tmp_path / "lake", rows)
    write_table(tmp_path / "lake", "reports/periods", pa.table({"sessions": [4]}))
    write_table(tmp_path / "lake", "shop/sessions", pa.table({"sessions": [5]}))
    return tmp_path / "lake"


def query(lake: Path, statement: str, *more: str) -> Result:
    """The command's result."""
    return CliRunner().invoke(sql, [statement, "--lake", str(lake), *more])


def test_tables_are_views_by_their_names(lake: Path) -> None:
    """Those in a folder by a dot; sums of 64 bits stay exact; a list is a list."""
    joined = query(
        lake,
        "select s.key, sum(s.bytes) as bytes, any_value(p.sessions) as all, min(day) as first "
        "from sessions s, reports.periods p group by s.key order by s.key",
        "-o",
        "json",
    )
    listed = query(lake, "select data from sessions order by id limit 1", "-o", "csv")

    assert json.loads(joined.output)["rows"] == [
        {"key": f"key-{n}", "bytes": 2**63, "all": 4, "first": "2026-11-21"} for n in range(2)
    ]
    assert listed.output.splitlines()[0] == "data"
    assert '""n\\"": 0' in listed.output or '\\""n\\"":0' in listed.output


def test_a_namespace_has_its_own_tables(lake: Path) -> None:
    """And sees no others."""
    assert "5" in query(lake, "select sessions from sessions", "--namespace", "shop").output
    with pytest.raises(InvalidInput, match="does not exist"):
        run(open_lake(str(lake), "shop"), "select * from reports.periods", 5)


def test_a_condition_on_a_partition_or_a_key_opens_only_its_files(lake: Path) -> None:
    """The other day's file is gone, and is not missed."""
    (other,) = (lake / "sessions").glob(f"group=default/day={DAYS[0]}/*.parquet")
    other.unlink()
    connection = open_lake(str(lake), "")

    def count(condition: str) -> int:
        _, rows, _ = run(connection, f"select count(key) from sessions where {condition}", 5)
        return int(rows[0][0])

    assert count(f"day = '{DAYS[1]}'") == 2
    assert count("\"group\" = 'other'") == 0
    # by the statistics of the files
    assert count("id >= '00000000000000000000000000000002'") == 2
    with pytest.raises(Exception, match=r"(?i)not found|no such file"):
        count("true")


def test_only_the_wanted_columns_are_read(lake: Path) -> None:
    """As DuckDB's plan shows."""
    _, rows, _ = run(open_lake(str(lake), ""), "explain select key from sessions where stream = 3", 9)

    plan = " ".join(map(str, rows))
    assert "key" in plan
    assert '"stream"=3' in plan.replace(" ", "")
    assert "topic_offset" not in plan
    assert "data" not in plan


@pytest.mark.parametrize(
    "statement",
    [
        "select * from read_csv('{secret}')",
        "select * from '{secret}'",
        "select * from read_text('/etc/hostname')",
        "copy (select 1) to '{secret}2'",
        "attach '{secret}.db' as other",
        "install httpfs",
        "load httpfs",
        "set enable_external_access = true",
        "reset lock_configuration",
        "select * from statement",
    ],
)
def test_a_query_reaches_nothing_but_the_tables(lake: Path, tmp_path: Path, statement: str) -> None:
    """No file, no network, no extension, no setting, and no variable of ours."""
    secret = tmp_path / "secret.csv"
    secret.write_text("a,b\n1,2\n")
    before = sorted(tmp_path.iterdir())

    with pytest.raises(InvalidInput):
        run(open_lake(str(lake), ""), statement.format(secret=secret), 5)
    assert sorted(tmp_path.iterdir()) == before


def test_a_limit_is_said(lake: Path) -> None:
    """The other rows are not made: the query would have no end."""
    result = query(lake, "select * from range(1000000000000) r(n)", "--limit", "3", "-o", "csv")

    assert result.stdout.splitlines() == ["n", "0", "1", "2"]
    assert "there are more than 3 rows" in result.stderr


def test_faults_are_one_sentence_that_helps(lake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bad SQL, no lake, a missing package, a namespace that is none."""
    with pytest.raises(InvalidInput, match="reports"):
        run(open_lake(str(lake), ""), "select * from reports.period", 5)
    with pytest.raises(NotFound, match="baton run lake"):
        open_lake(str(lake / "nowhere"), "")
    assert query(lake, "select 1", "--namespace", "A B").exit_code == 2
    monkeypatch.setitem(sys.modules, "duckdb", None)
    with pytest.raises(BatonError, match="pip install duckdb"):
        open_lake(str(lake), "")


def test_the_lake_of_the_folders_stack_is_found(lake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As by `git`, with its home; the environment names another one."""
    monkeypatch.setenv("BATON_HOME", str(lake.parent))
    found = CliRunner().invoke(sql, ["select count(*) as n from sessions", "-o", "csv"])

    assert found.output == "n\n4\n"


async def test_ctrl_c_ends_a_query(lake: Path) -> None:
    """With the exit code of every interrupted command."""
    endless = "select sum(a.range * b.range) from range(10000000) a, range(10000000) b, sessions"
    command = [sys.executable, "-m", "cli.main", "sql", endless, "--lake", str(lake)]
    process = await asyncio.create_subprocess_exec(
        *command,
        stderr=subprocess.PIPE,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    # once it works on the query, its threads use the processor
    await until(lambda: process.returncode is not None or _cpu_ticks(process.pid) > 300)
    process.send_signal(signal.SIGINT)
    _, said = await process.communicate()

    assert process.returncode == 130, said
    assert b"interrupted" in said


def _cpu_ticks(pid: int) -> int:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])
