"""Tables in terminals of every width: what they print is whole, and what has no room is named."""

from __future__ import annotations

import contextlib
import io
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cli.commands.operations import OPERATION_COLUMNS
from cli.commands.runs import RUN_COLUMNS
from cli.commands.show import GROUP_COLUMNS, LAG_COLUMNS, MEMBER_COLUMNS, PLAN_COLUMNS, STREAM_COLUMNS
from cli.rejects.command import REJECT_COLUMNS
from cli.terminal.layout import Column
from cli.terminal.output import Columns, cell_text, pick, print_objects

numbers = st.integers(0, 2**53)
ids = st.from_regex(r"[a-z]{1,12}-[0-9a-f]{1,20}", fullmatch=True)
sentences = st.lists(st.from_regex(r"[a-z]{1,12}|[0-9]{1,9}", fullmatch=True), max_size=9).map(" ".join)
streams = st.fixed_dictionaries(
    {
        **dict.fromkeys(("stream", "epoch", "position", "end", "lag", "safe_offset"), numbers),
        **dict.fromkeys(("open_sessions", "state_bytes"), numbers),
        "owner": ids,
        "state": st.just("running"),
        "status": st.just("STALL"),
    }
)
lags = st.fixed_dictionaries(
    {
        **dict.fromkeys(("partition", "current_offset", "log_end_offset", "lag"), numbers),
        **dict.fromkeys(("group", "topic", "consumer_id", "host", "client_id"), ids),
    }
)
members = st.fixed_dictionaries(
    {
        "id": ids,
        "address": ids.map("http://{}.example:8010".format),
        "pid": numbers,
        "state": st.just("active"),
        "answers": st.booleans(),
        "streams": st.lists(st.integers(0, 99), unique=True),
        "rates": st.fixed_dictionaries(dict.fromkeys(("fragments_per_s", "sessions_per_s"), numbers)),
        "lease_ms": st.floats(0, 1e6),
    }
)
groups = st.fixed_dictionaries(
    {
        "name": ids,
        "settings": st.fixed_dictionaries(
            {"delivery": st.just("at_least_once"), **dict.fromkeys(("gap_ms", "lateness_ms"), numbers)}
        ),
        "members": st.just([]),
        "streams": numbers,
        "lag": numbers,
    }
)
plans = st.fixed_dictionaries({"stream": numbers, "from": ids, "to": ids, "why": sentences})
runs = st.fixed_dictionaries(
    {
        **dict.fromkeys(("id", "job", "group"), ids),
        "state": st.just("cancelled"),
        "progress": st.fixed_dictionaries(dict.fromkeys(("completed", "tasks"), numbers)),
        **dict.fromkeys(("started_at", "ended_at"), st.integers(0, 4_000_000_000_000)),
    }
)
operations = st.fixed_dictionaries(
    {
        **dict.fromkeys(("id", "group", "member"), ids),
        "kind": st.just("drain"),
        "state": st.just("running"),
        **dict.fromkeys(("done", "total", "sessions", "bytes"), numbers),
        "since": st.integers(0, 4_000_000_000_000),
        "why": sentences,
    }
)
rejects = st.fixed_dictionaries(
    {
        **dict.fromkeys(("partition", "offset", "size"), numbers),
        "time": st.integers(0, 4_000_000_000_000),
        "id": st.tuples(numbers, numbers).map("{0[0]}/{0[1]}".format),
        "reason": st.just("event-time"),
        "cut": st.booleans(),
        **dict.fromkeys(("detail", "beginning"), sentences),
    }
)


def printed(width: int, columns: Columns, rows: list[dict[str, Any]]) -> tuple[str, str]:
    """What a terminal of this width gets on standard output, without control sequences, and on stderr."""
    out, err = io.StringIO(), io.StringIO()
    with (
        pytest.MonkeyPatch.context() as patch,
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        for name, value in {
            "COLUMNS": str(width),
            "TERM": "xterm",
            "TTY_COMPATIBLE": "1",
            "NO_COLOR": "1",
        }.items():
            patch.setenv(name, value)
        out.isatty = lambda: True  # type: ignore[method-assign]
        print_objects(columns, rows)
    return out.getvalue().replace("\x1b[1m", "").replace("\x1b[0m", ""), err.getvalue()


def cells(columns: Columns, row: dict[str, Any]) -> list[str]:
    """The texts of a row's cells when there is room for all of them."""
    found = [column.cell if isinstance(column, Column) else column for column in columns.values()]
    return [cell_text(pick(row, cell) if isinstance(cell, str) else cell(row)) for cell in found]


@pytest.mark.parametrize(
    ("columns", "rows"),
    [
        (STREAM_COLUMNS, streams),
        (LAG_COLUMNS, lags),
        (MEMBER_COLUMNS, members),
        (GROUP_COLUMNS, groups),
        (PLAN_COLUMNS, plans),
        (RUN_COLUMNS, runs),
        (OPERATION_COLUMNS, operations),
        (REJECT_COLUMNS, rejects),
    ],
)
@settings(max_examples=40)
@given(width=st.integers(40, 200), data=st.data())
def test_every_printed_word_is_whole_at_any_width(
    columns: Columns, rows: st.SearchStrategy[dict[str, Any]], width: int, data: st.DataObject
) -> None:
    """No number, id or time is cut, and each column is either printed or named on standard error."""
    table = data.draw(st.lists(rows, min_size=1, max_size=4))

    out, err = printed(width, columns, table)

    words = {word for row in table for cell in cells(columns, row) for word in cell.split()}
    headings = {word for heading in columns for word in heading.split()}
    lines = [line for line in out.splitlines() if "─" not in line]
    assert {word for line in lines for word in line.split()} <= words | headings
    shown = [heading for heading in columns if set(heading.split()) <= set(out.split())]
    left_out = err.partition("too narrow for: ")[2].partition(";")[0].split(", ") if err else []
    assert {*shown, *left_out} >= set(columns)
    assert max(map(len, lines)) <= width or len(left_out) == len(columns) - 1
    # the first column names the row, so it stays at any width
    assert all(cells(columns, row)[0] in out for row in table)


@given(
    width=st.integers(80, 200),
    rows=st.lists(st.tuples(sentences, numbers, st.from_regex(r"/[a-z/]{0,90}", fullmatch=True)), min_size=1),
)
def test_tables_of_unknown_columns_lose_no_character(width: int, rows: list[tuple[str, int, str]]) -> None:
    """The result of a run may hold anything: its numbers stay whole, and only text wraps. From 80 characters
    on the longest number and two long words have room beside each other.
    """
    table = [{"text": text, "number": number, "path": path} for text, number, path in rows]
    columns = {name: Column(name, is_prose=name != "number") for name in ("number", "text", "path")}

    out, err = printed(width, columns, table)

    assert err == ""
    assert {cell_text(number) for _, number, _ in rows} <= set(out.split())
    assert max(map(len, out.splitlines())) <= width
    expected = "".join(sorted("".join(cell_text(value) for row in rows for value in row)))
    body = "".join(line for line in out.splitlines()[3:])
    assert sorted("".join(body.split())) == sorted(expected.replace(" ", ""))


def test_the_columns_that_operators_need_stay_longest() -> None:
    """At 60 columns `streams` still has its lag and status, and `runs` the id that `cancel` needs."""
    stream = {
        **dict.fromkeys(("stream", "epoch", "position", "end", "safe_offset", "state_bytes"), 123_456_789),
        "lag": 828,
        "open_sessions": 5,
        "owner": "consumer-0",
        "state": "running",
        "status": "WARN",
    }
    run = {"id": "20260101-000000-lake-0a1b2c", "job": "lake", "group": "default", "state": "running"}
    run_progress = {"progress": {"completed": 1, "tasks": 8}, "started_at": 0}

    table, note = printed(60, STREAM_COLUMNS, [stream])
    runs_table, _ = printed(60, RUN_COLUMNS, [run | run_progress])

    assert {"123,456,789", "consumer-0", "828", "WARN"} <= set(table.split())
    assert "too narrow for: EPOCH, " in note
    assert {"20260101-000000-lake-0a1b2c", "running"} <= set(runs_table.split())


def test_a_pipe_gets_every_column_whatever_its_width() -> None:
    """Programs read the table, and a pipe has no width."""
    out = io.StringIO()
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(out):
        patch.setenv("COLUMNS", "40")
        print_objects({f"C{n}": f"c{n}" for n in range(40)}, [{f"c{n}": 10**15 + n for n in range(40)}])

    assert [cell_text(10**15 + n) for n in range(40)] == out.getvalue().splitlines()[3].split()
