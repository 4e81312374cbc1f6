"""`baton table`: lists the Delta tables of the lake, or prints rows of one, by control and without Spark."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

import click
import msgspec

from cli.commands.control import ask, get, print_list
from cli.http.client import PAGE, BatonClient
from cli.terminal.escaping import echo, escaped
from cli.terminal.layout import Column
from cli.terminal.lists import formats_option
from cli.terminal.options import url_option
from cli.terminal.output import Columns, print_table, time_text
from shared.errors import InvalidInput

TABLE_COLUMNS: Columns = {
    "TABLE": "name",
    "ROWS": "rows",
    "BYTES": Column("bytes", rank=2),
    "FILES": Column("files", rank=3),
    "VERSION": Column("version", rank=4),
    "COMMITTED": Column(lambda table: time_text(table["committed_at"]), rank=1),
}


@click.command("table")
@click.argument("name", metavar="[TABLE]", required=False)
@click.argument("filters", metavar="[COLUMN[.OPERATOR]=VALUE]…", nargs=-1)
@click.option("--columns", default="", show_default=False, help="Columns to print, separated by commas.")
@click.option("--sort", default="", show_default=False, help="Columns to sort by; `-name` for descending.")
@click.option("-n", "--limit", type=click.IntRange(1, 1_000_000), default=20, help="Maximum number of rows.")
@click.option("--csv", "is_csv", is_flag=True, help="Like -o csv.")
@url_option
@formats_option
def table(
    name: str | None,
    filters: tuple[str, ...],
    columns: str,
    sort: str,
    limit: int,
    is_csv: bool,
    url: str,
    output: str,
) -> None:
    """List the tables of the lake, or print rows of a TABLE, such as `sessions` or `reports/periods`.

    Rows can be filtered: `key=ann`, `fragments.gte=10`, `first_time.lt=2026-11-23T12:00:00Z`, `key.prefix=a`,
    `data.null=false`. OPERATOR is eq, ne, lt, lte, gt, gte, prefix or null. `-o json` prints every column;
    the table for people leaves out lists unless --columns names them.
    """
    output = "csv" if is_csv else output
    if name is None:
        print_list(get(url, "/tables"), "tables", output, TABLE_COLUMNS)
        return
    pairs = [_parse(one) for one in filters]
    if columns:
        pairs.append(("columns", columns))
    if sort:
        pairs.append(("sort", sort))
    answer = ask(url, lambda control: _rows(control, name, pairs, limit))
    if output == "text":
        _print(answer["rows"], with_lists=bool(columns))
    else:
        print_list(answer, "rows", output, TABLE_COLUMNS)


def _parse(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise click.UsageError(f"{text!r} is not COLUMN=VALUE or COLUMN.OPERATOR=VALUE")
    # a column may have the same name as a parameter of the request
    return (f"{name}.eq" if name in ("columns", "sort", "limit", "after", "format") else name), value


async def _rows(
    control: BatonClient, name: str, pairs: Sequence[tuple[str, str]], limit: int
) -> dict[str, Any]:
    """The answer with up to `limit` rows, from as many pages as it takes."""
    path = f"/tables/{quote(name)}"
    rows: list[dict[str, Any]] = []
    after: list[tuple[str, str]] = []
    while True:
        page = await control.get(path, [*pairs, *after, ("limit", str(min(PAGE, limit - len(rows))))])
        if not isinstance(page, dict) or not isinstance(page.get("rows"), list):
            raise InvalidInput(f"{path} does not return rows: is control older than this command?")
        rows += page["rows"]
        if page["next"] is None or len(rows) >= limit:
            return {**page, "rows": rows}
        after = [("after", page["next"])]


def _print(rows: Sequence[dict[str, Any]], *, with_lists: bool) -> None:
    if not rows:
        echo("no row matches")
        return
    names = [name for name, value in rows[0].items() if with_lists or not _is_nested(name, rows)]
    print_table(names, ([_cell(row[name]) for name in names] for row in rows))


def _is_nested(name: str, rows: Sequence[dict[str, Any]]) -> bool:
    return any(isinstance(row[name], list | dict) for row in rows)


def _cell(value: Any) -> Any:
    if isinstance(value, list | dict):
        value = msgspec.json.encode(value).decode()
    return escaped(value.encode(errors="replace")) if isinstance(value, str) else value
