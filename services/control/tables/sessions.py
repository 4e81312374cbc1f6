"""Finds finished sessions in the table `sessions` of the lake: those of a key or of a day, or one by its id.

The newest come first. A page begins after the place of the last row before it, so later pages cost what the
first one does, and sessions that are added meanwhile repeat none.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from typing import Final

import msgspec

from services.control.core.found import Place, SessionRow
from services.control.tables.lake import Lake, quoted, rows_of
from services.control.tables.reader import TableReader

TABLE: Final = "sessions"
MAX_PAGE_BYTES: Final = 16 * 1024 * 1024
"""Of a page's sessions with their fragments; a page has at least one."""
_NARROW: Final = ", ".join(f'"{name}"' for name in SessionRow.__struct_fields__ if name != "data")


class LakeSessions:
    """A `SessionSource`."""

    def __init__(self, tables: TableReader) -> None:
        self._tables = tables

    async def newest(
        self, sought: Mapping[str, str], *, limit: int, after: Place | None = None, with_data: bool = False
    ) -> tuple[list[SessionRow], Place | None]:
        """A page of the sessions with these values, newest first, and where it ends if more follow.

        Raises UnknownTable, Unavailable.
        """
        return await self._tables.read(lambda lake: _page(lake, sought, limit, after, with_data=with_data))


def _page(
    lake: Lake, sought: Mapping[str, str], limit: int, after: Place | None, *, with_data: bool
) -> tuple[list[SessionRow], Place | None]:
    table = lake.open(TABLE)
    where = [_among(column, [value]) for column, value in sought.items()]
    if after is not None:
        # the first condition alone skips files
        where.append(f"first_time <= {after.first_time}")
        where.append(f"(first_time < {after.first_time} OR id > {quoted(after.id)})")
    order = f"ORDER BY first_time DESC, id LIMIT {limit + 1}"
    found = msgspec.convert(
        rows_of(table, TABLE, f"SELECT {_NARROW} FROM {TABLE} WHERE {' AND '.join(where)} {order}"),
        list[SessionRow],
    )
    rows = found[:limit]
    if with_data and rows:
        rows = rows[: max(1, bisect_right(list(accumulate(row.bytes for row in rows)), MAX_PAGE_BYTES))]
        # in a step of its own: fragments are decoded only of the sessions that are shown
        wanted = [_among(column, {getattr(row, column) for row in rows}) for column in ("group", "key", "id")]
        statement = f"SELECT id, data FROM {TABLE} WHERE {' AND '.join(wanted)}"
        data = {row["id"]: row["data"] for row in rows_of(table, TABLE, statement)}
        rows = [msgspec.structs.replace(row, data=data[row.id]) for row in rows]
    return rows, _place(rows) if len(rows) < len(found) else None


def _place(rows: Sequence[SessionRow]) -> Place:
    return Place(first_time=rows[-1].first_time, id=rows[-1].id)


def _among(column: str, values: Iterable[str]) -> str:
    return f'"{column}" IN ({", ".join(map(quoted, values))})'
