"""Shows the tables of the lake in the API, as their logs describe them."""

from __future__ import annotations

from typing import Annotated

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
