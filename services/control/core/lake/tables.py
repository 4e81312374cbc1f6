"""What is asked of the tables of the lake, and how the API shows them."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta


class ColumnRow(msgspec.Struct, frozen=True, kw_only=True):
    """A column of a table."""

    name: str
    type: Annotated[str, Meta(description="as Spark's SQL names it: bigint, string, array<string>, …")]


class TableRow(msgspec.Struct, frozen=True, kw_only=True):
    """One table of the lake, from its log."""

    name: Annotated[str, Meta(description="`sessions`, `reports/periods`, …")]
    version: Annotated[int, Meta(description="number of its last commit")]
    committed_at: Annotated[int | None, Meta(description="when that was (ms UTC)")]
    rows: Annotated[int | None, Meta(description="null if a writer has not counted them")]
    files: int
    bytes: Annotated[int, Meta(description="of the files together")]
    partitioned_by: list[str]
    columns: list[ColumnRow]


class TablePage(msgspec.Struct, frozen=True, kw_only=True):
    """A page of a table's rows; each has the wanted columns, by name."""

    rows: list[dict[str, Any]]
    table: str
    version: Annotated[int, Meta(description="of the table; all pages that follow are of this version")]
    next: Annotated[str | None, Meta(description="the value of `after` for the next page; null: the last")]


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """What a request wants of a table; `kind`: the content type of the answer."""

    name: str
    filters: list[tuple[str, str]] = []
    columns: str = ""
    sort: str = ""
    limit: int = 100
    after: str = ""
    kind: str


class Page(msgspec.Struct, frozen=True, kw_only=True):
    """An encoded page, and where the next one begins, if there is one."""

    body: bytes
    next: str | None
