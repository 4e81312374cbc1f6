"""`baton sql`: queries the lake's tables with DuckDB in this process, without any service.

Each table is a view over an Arrow dataset, so DuckDB reads only the files and columns that a query needs. The
query can reach nothing else: no files, no network, no extensions, no settings. The only file that imports
duckdb.
"""

from __future__ import annotations

import json
import queue
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import click

from cli.terminal.escaping import echo, escaped
from cli.terminal.local_stack import find_home, find_stack
from cli.terminal.output import csv_line, print_table
from shared.errors import BatonError, InvalidInput, NotFound
from shared.model.names import is_namespace

if TYPE_CHECKING:
    import duckdb

PACKAGES = ("duckdb", "deltalake", "pyarrow")
INTERRUPT_S = 5.0
"""How long an interrupted query may take to end."""


@click.command("sql")
@click.argument("statement", metavar="SELECT")
@click.option(
    "--lake",
    envvar="BATON_LAKE",
    default=None,
    show_default="the local stack's",
    show_envvar=True,
    help="Folder or URL of the tables.",
)
@click.option(
    "--namespace",
    envvar="BATON_NAMESPACE",
    default=None,
    show_default=False,
    show_envvar=True,
    help="Namespace of this Baton, if it has one.",
)
@click.option("-n", "--limit", type=click.IntRange(1), default=1000, help="Maximum number of rows.")
@click.option(
    "-o",
    "--output",
    type=click.Choice(["text", "json", "csv"]),
    default="text",
    help="A table for people, JSON or CSV for programs.",
)
def sql(statement: str, lake: str | None, namespace: str | None, limit: int, output: str) -> None:
    """Query the tables of the lake with SQL (DuckDB's): `sessions`, `reports.periods`, and the others.

    The query runs in this process, on the tables as they are when it begins. "group" is a keyword of SQL, so
    quote it. Conditions on "group", day and key make a query fast.

    Example: baton sql "select key, count(*) from sessions where day >= '2026-11-01' group by key limit 5"
    """
    connection = open_lake(*_place(lake, namespace))
    names, rows, is_cut = run(connection, statement, limit)
    if output == "json":
        listed = [dict(zip(names, row, strict=True)) for row in rows]
        echo(json.dumps({"rows": listed}, indent=2, ensure_ascii=False, default=str))
    elif output == "csv":
        for line in [names, *([_text(value) for value in row] for row in rows)]:
            echo(csv_line(line))
    elif names:
        print_table(names, ([_cell(value) for value in row] for row in rows))
    if is_cut:
        echo(f"there are more than {limit:,} rows; --limit prints more", err=True)


def open_lake(lake: str, namespace: str) -> duckdb.DuckDBPyConnection:
    """A connection with a view for each table, which can reach nothing else.

    Raises NotFound if there is no table, BatonError if a package is missing.
    """
    try:
        import duckdb

        from services.control.tables.lake import Lake
    except ImportError as error:
        raise BatonError(
            f"`baton sql` needs packages that are not installed ({error.name}): pip install "
            + " ".join(PACKAGES)
        ) from None
    found = Lake(lake, namespace)
    tables = found.names()
    if not tables:
        raise NotFound(
            f"there are no tables in {found.root}: `baton run lake` creates them, --lake names another place"
        )
    connection = duckdb.connect(":memory:")
    for number, name in enumerate(tables):
        connection.register(f"_table_{number}", found.open(name).to_pyarrow_dataset())
        *schema, last = (_quoted(part) for part in name.split("/"))
        if schema:
            connection.execute(f"CREATE SCHEMA IF NOT EXISTS {schema[0]}")
        connection.execute(f"CREATE VIEW {'.'.join([*schema, last])} AS SELECT * FROM _table_{number}")
    connection.execute("SET TimeZone = 'UTC'")
    connection.execute("SET python_enable_replacements = false")
    connection.execute("SET enable_external_access = false")
    connection.execute("SET lock_configuration = true")
    return connection


def run(
    connection: duckdb.DuckDBPyConnection, statement: str, limit: int
) -> tuple[list[str], list[tuple[Any, ...]], bool]:
    """Names of the columns, the first `limit` rows, and whether there are more. Raises InvalidInput."""
    import duckdb

    def work() -> tuple[list[str], list[tuple[Any, ...]]]:
        result = connection.execute(statement)
        names = [column[0] for column in result.description or ()]
        # streamed: the remaining rows are not computed
        return names, result.fetchmany(limit + 1) if names else []

    # in a thread: Ctrl-C would be lost while the engine asks for a table's rows
    done: queue.SimpleQueue[Any] = queue.SimpleQueue()
    thread = threading.Thread(target=lambda: done.put(_outcome(work)), daemon=True)
    thread.start()
    try:
        outcome = done.get()
    except KeyboardInterrupt:
        connection.interrupt()
        thread.join(INTERRUPT_S)
        raise
    if isinstance(outcome, duckdb.Error):
        raise InvalidInput(str(outcome)) from None
    if isinstance(outcome, Exception):
        raise outcome
    names, rows = outcome
    return names, rows[:limit], len(rows) > limit


def _outcome(work: Callable[[], Any]) -> Any:
    try:
        return work()
    except Exception as error:
        return error


def _place(lake: str | None, namespace: str | None) -> tuple[str, str]:
    """The lake and the namespace to query."""
    if namespace is None:
        stack = find_stack()
        namespace = stack.namespace if stack is not None and lake is None else ""
    if not is_namespace(namespace):
        raise click.BadParameter("use lower-case letters, digits and `-` only", param_hint="--namespace")
    return lake or str(find_home() / "lake"), namespace


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _text(value: Any) -> Any:
    """A value as CSV has it: lists as JSON."""
    return json.dumps(value, ensure_ascii=False, default=str) if isinstance(value, list | dict) else value


def _cell(value: Any) -> Any:
    if value is None or isinstance(value, bool | int | float):
        return value
    text: Sequence[Any] | str = _text(value)
    return escaped(str(text).encode(errors="replace"))
