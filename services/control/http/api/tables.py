"""`/tables`: the Delta tables of the lake, and their rows as JSON, CSV or Parquet."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Literal
from urllib.parse import urlencode

import msgspec
from fastapi import APIRouter, Query, Request, Response

from services.control.core.lake.freshness import FreshnessRow
from services.control.core.lake.tables import Asked, ColumnRow, TablePage, TableRow
from services.control.http.api.openapi import Content, Responses, answers, encoded, refuses
from services.control.http.api.pages import INVALID
from services.control.ports import TableSource
from services.control.tables.formats import CSV, JSON, PARQUET
from services.control.tables.query import OPERATORS, QueryInvalid
from shared.service.http import kind_for, problem

MAX_ROWS = 10_000
FORMATS = {"json": JSON, "csv": CSV, "parquet": PARQUET}
RESERVED = frozenset({"columns", "sort", "limit", "after", "format"})
"""Parameters of a page. A column with one of these names is filtered by `name.eq=`."""

OF_GROUP = frozenset({"group", "group.eq"})
"""Filters that take aliases."""


class TableList(msgspec.Struct, frozen=True, kw_only=True):
    """All tables of the lake, and how far `sessions` is behind each group's topic."""

    tables: list[TableRow]
    freshness: list[FreshnessRow]


ANSWERED = (TableList, TablePage, ColumnRow)

_FILTERS: Content = {
    "name": "filters",
    "in": "query",
    "style": "form",
    "explode": True,
    "description": "`column=value` or `column.operator=value`, with the operators "
    + ", ".join(OPERATORS)
    + "; repeated `column=` means any of the values",
    "schema": {"type": "object", "additionalProperties": {"type": "string"}},
}


def tables_routes(
    tables: TableSource, freshness: Callable[[], list[FreshnessRow]], named: Callable[[str], str]
) -> APIRouter:
    """The routes over the tables of the lake; `freshness` is read from memory. `named`: the group that an
    alias names.
    """
    busy = refuses(503, "The lake cannot be read, or too many tables are being read")
    routes = APIRouter(tags=["tables"], responses=busy)

    @routes.get("/tables", summary="List the tables of the lake", responses=answers(TableList))
    async def all_tables() -> Response:
        return encoded(TableList(tables=list(await tables.tables()), freshness=freshness()))

    @routes.get(
        "/tables/{name:path}",
        summary="Read a page of a table",
        responses=_page_responses(),
        openapi_extra={"parameters": [_FILTERS]},
    )
    async def rows(
        request: Request,
        name: str,
        columns: Annotated[str, Query(description="names of columns, separated by commas; empty: all")] = "",
        sort: Annotated[
            str, Query(description="names of columns, separated by commas, `-name` for descending")
        ] = "",
        limit: Annotated[int, Query(ge=1, le=MAX_ROWS, description="maximum number of rows")] = 100,
        after: Annotated[str, Query(max_length=20_000, description="the `next` of the page before")] = "",
        format_: Annotated[
            Literal["json", "csv", "parquet"] | None,
            Query(alias="format", description="without it, the header `Accept` decides"),
        ] = None,
    ) -> Response:
        kind = FORMATS[format_] if format_ else _accepted(request.headers.get("accept", ""))
        given = request.query_params.multi_items()
        asked = Asked(
            name=name,
            filters=[
                (parameter, named(value) if parameter in OF_GROUP else value)
                for parameter, value in given
                if parameter not in RESERVED
            ],
            columns=columns,
            sort=sort,
            limit=limit,
            after=after,
            kind=kind,
        )
        try:
            page = await tables.page(asked)
        except QueryInvalid as error:
            faults = [{"in": f"query.{where}", "detail": fault} for where, fault in error.faults]
            return problem(422, kind_for(error), error.detail, errors=faults)
        link = {"Link": _link_to(page.next, given)} if page.next else {}
        return Response(page.body, media_type=kind, headers={"Vary": "Accept"} | link)

    return routes


def _page_responses() -> Responses:
    responses = (
        answers(TablePage, description="A page; the header `Link` leads to the next one")
        | INVALID
        | refuses(404, "There is no such table")
        | refuses(409, "The version of the table that the first page was read from is gone")
    )
    for kind in (CSV, PARQUET):
        responses[200]["content"][kind] = {"schema": {"type": "string"}}
    return responses


def _link_to(after: str, given: Sequence[tuple[str, str]]) -> str:
    """The header `Link` to the page that follows `after`, with the other parameters as they are."""
    others = [(parameter, value) for parameter, value in given if parameter != "after"]
    return f'<?{urlencode([*others, ("after", after)])}>; rel="next"'


def _accepted(accept: str) -> str:
    """The first of our formats that the header names; JSON for `*/*` and for anything else."""
    for part in accept.lower().split(","):
        named = part.partition(";")[0].strip()
        for kind in FORMATS.values():
            if named == kind.partition(";")[0]:
                return kind
    return JSON
