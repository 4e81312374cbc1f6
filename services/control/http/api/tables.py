"""Lists the Delta tables of the lake at `/tables`."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
from fastapi import APIRouter, Response

from services.control.core.lake.freshness import FreshnessRow
from services.control.core.lake.tables import ColumnRow, TableRow
from services.control.http.api.openapi import answers, encoded, refuses
from services.control.ports import TableSource


class TableList(msgspec.Struct, frozen=True, kw_only=True):
    """All tables of the lake, and how far `sessions` is behind each group's topic."""

    tables: list[TableRow]
    freshness: list[FreshnessRow]


ANSWERED = (TableList, ColumnRow)


def tables_routes(tables: TableSource, freshness: Callable[[], list[FreshnessRow]]) -> APIRouter:
    """The route of the list; `freshness` is read from memory."""
    routes = APIRouter(tags=["tables"], responses=refuses(503, "The lake cannot be read"))

    @routes.get("/tables", summary="List the tables of the lake", responses=answers(TableList))
    async def all_tables() -> Response:
        return encoded(TableList(tables=list(await tables.tables()), freshness=freshness()))

    return routes
