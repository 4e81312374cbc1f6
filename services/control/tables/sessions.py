"""Finds finished sessions in the table `sessions` of the lake: those of a key, or one by its id."""

from __future__ import annotations

from typing import Final

import msgspec

from services.control.core.found import SessionRow
from services.control.core.lake.tables import Asked, Page
from services.control.tables.formats import JSON
from services.control.tables.reader import TableReader

TABLE: Final = "sessions"
NARROW: Final = ",".join(name for name in SessionRow.__struct_fields__ if name != "data")
"""All columns but the fragments. Tables that older jobs made have them, too."""


class _Rows(msgspec.Struct):
    rows: list[SessionRow]


class LakeSessions:
    """A `SessionSource`."""

    def __init__(self, tables: TableReader) -> None:
        self._tables = tables

    async def of_key(
        self, group: str, key: str, *, limit: int, after: str, with_data: bool
    ) -> tuple[list[SessionRow], str | None]:
        """A page of the key's sessions, newest first, and where the next one begins.

        Raises UnknownTable, QueryInvalid, TableChanged, Unavailable.
        """
        asked = Asked(
            name=TABLE,
            filters=[("group.eq", group), ("key.eq", key)],
            columns="" if with_data else NARROW,
            sort="-first_time",
            limit=limit,
            after=after,
            kind=JSON,
        )
        page = await self._tables.page(asked)
        return _rows_of(page), page.next

    async def by_id(self, session_id: str) -> SessionRow | None:
        """The session, with its fragments. Raises UnknownTable, Unavailable."""
        asked = Asked(name=TABLE, filters=[("id.eq", session_id)], limit=1, kind=JSON)
        return next(iter(_rows_of(await self._tables.page(asked))), None)


def _rows_of(page: Page) -> list[SessionRow]:
    return msgspec.json.decode(page.body, type=_Rows).rows
