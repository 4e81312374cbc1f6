"""What a reader asks of a table: columns, filters, order and page, from the parameters of a request.

Pure. A filter is `column=value` or `column.operator=value`; several values of one `column=` mean any of them,
different filters must all hold. `statements.py` makes SQL of it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Literal

from shared.errors import InvalidInput

Kind = Literal["text", "integer", "real", "boolean", "date", "time", "other"]
"""How values are compared; `other` (lists, binary) can only be absent or present."""
Value = str | int | float | bool | None
"""A value in a cursor or a filter: dates as `2026-11-23`, times in µs since 1970."""

SIGNS = {"eq": "=", "ne": "<>", "lt": "<", "lte": "<=", "gt": ">", "gte": ">="}
OPERATORS = (*SIGNS, "prefix", "null")
_KINDS: Mapping[str, Kind] = {
    **dict.fromkeys(("tinyint", "smallint", "int", "bigint"), "integer"),
    **dict.fromkeys(("float", "double"), "real"),
    **dict.fromkeys(("timestamp", "timestamp_ntz"), "time"),
    "string": "text",
    "boolean": "boolean",
    "date": "date",
}
_INTEGER = re.compile(r"-?[0-9]{1,19}")
_TIME = re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(\.\d{1,6})?([Zz]|[+-]\d\d:\d\d)")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class QueryInvalid(InvalidInput):
    """The query has faults: `faults` pairs each parameter's name with what is wrong."""

    def __init__(self, faults: Sequence[tuple[str, str]]) -> None:
        self.faults = list(faults)
        super().__init__("; ".join(f"{name}: {fault}" for name, fault in faults))


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column of a table, with its type as Spark's SQL names it."""

    name: str
    type: str

    @property
    def kind(self) -> Kind:
        """How its values are compared."""
        return _KINDS.get(self.type, "other")


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """A condition on one column; with `eq` any of the values will do, else there is one value."""

    column: Column
    operator: str
    values: tuple[Value, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """A column of the order in which rows are returned; NULL comes last either way."""

    column: Column
    is_descending: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """What to read; two rows that are equal in `order` and in `ties` are equal in every column.

    A cursor holds the values of `order`. `ties` has the columns that no cursor can hold.
    """

    columns: tuple[Column, ...]
    filters: tuple[Filter, ...]
    order: tuple[Order, ...]
    ties: tuple[Column, ...] = ()

    @property
    def weight(self) -> str:
        """The column that estimates a row's size, "" for narrow rows."""
        return "bytes" if any(column.name == "data" for column in self.columns) else ""


def parse_query(
    table: Sequence[Column], filters: Iterable[tuple[str, str]], *, columns: str = "", sort: str = ""
) -> Query:
    """The query of a table with these columns. Raises QueryInvalid, which lists every fault.

    `columns`: names, separated by commas (empty: all); `sort`: the same, `-name` for descending.
    """
    known = {column.name: column for column in table}
    faults: list[tuple[str, str]] = []

    def found(where: str, name: str) -> Column | None:
        if name not in known:
            faults.append((where, f"there is no column {name!r}; there are {', '.join(known)}"))
        return known.get(name)

    chosen = [one for name in _names(columns) if (one := found("columns", name))]
    asked: dict[tuple[str, str], list[Value]] = {}
    for parameter, text in filters:
        name, operator = _split(parameter, known)
        column = found(parameter, name)
        if column is None:
            continue
        try:
            value = parse_value(column, operator, text)
        except ValueError as error:
            faults.append((parameter, str(error)))
            continue
        if asked.get((name, operator)) and operator != "eq":
            faults.append((parameter, "is given twice"))
        asked.setdefault((name, operator), []).append(value)
    order = []
    for term in _names(sort):
        column = found("sort", term.removeprefix("-"))
        if column is not None and column.kind == "other":
            faults.append(("sort", f"{column.name} ({column.type}) has no order"))
        elif column is not None:
            order.append(Order(column=column, is_descending=term.startswith("-")))
    if faults:
        raise QueryInvalid(faults)
    whole_order = total_order(table, order)
    ordered = {order.column.name for order in whole_order}
    return Query(
        columns=tuple(dict.fromkeys(chosen)) or tuple(table),
        filters=tuple(
            Filter(column=known[name], operator=operator, values=tuple(values))
            for (name, operator), values in asked.items()
        ),
        order=whole_order,
        ties=() if "id" in known else tuple(column for column in table if column.name not in ordered),
    )


def total_order(table: Sequence[Column], first: Sequence[Order]) -> tuple[Order, ...]:
    """`first`, and the id if there is one, else every column that has an order.

    Rows with an id come by key: files are clustered by it, so a page needs few of them.
    """
    named = {column.name: column for column in table}
    if "id" in named:
        rest = [named[name] for name in ("id",) if name in named]
        if not first and "key" in named:
            rest.insert(0, named["key"])
    else:
        rest = [column for column in table if column.kind not in ("other", "real")]
    taken = list({order.column.name: order for order in reversed(first)}.values())[::-1]
    names = {order.column.name for order in taken}
    return (*taken, *(Order(column=column) for column in rest if column.name not in names))


def parse_value(column: Column, operator: str, text: str) -> Value:
    """The value of a filter. Raises ValueError with a sentence."""
    if operator not in OPERATORS:
        raise ValueError(f"there is no operator {operator!r}; there are {', '.join(OPERATORS)}")
    if operator == "null":
        return _parse_boolean(text)
    kind = column.kind
    if kind == "other":
        raise ValueError(f"a column of type {column.type} can only be compared by {column.name}.null")
    if operator == "prefix" and kind != "text":
        raise ValueError(f"only text has a prefix, and the column is of type {column.type}")
    if kind == "text":
        if "\0" in text:
            raise ValueError("text must not hold the character 0")
        return text
    if kind == "integer":
        return _parse_integer(text)
    if kind == "real":
        return _parse_real(text)
    if kind == "boolean":
        return _parse_boolean(text)
    if kind == "date":
        try:
            return date.fromisoformat(text).isoformat()
        except ValueError:
            raise ValueError(f"{text!r} is not a date like 2026-11-23") from None
    return parse_micros(text)


def parse_micros(text: str) -> int:
    """A time in µs since 1970. Raises ValueError.

    >>> parse_micros("1970-01-01T01:00:00.5+01:00")
    500000
    """
    try:
        if not _TIME.fullmatch(text):
            raise ValueError
        since = datetime.fromisoformat(text.upper()) - _EPOCH
    except (ValueError, OverflowError):
        raise ValueError(f"{text!r} is not a time like 2026-11-23T12:00:00Z") from None
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds


def _parse_integer(text: str) -> int:
    if _TIME.fullmatch(text):
        # columns of times hold ms
        return parse_micros(text) // 1000
    if not _INTEGER.fullmatch(text) or not -(2**63) <= int(text) < 2**63:
        raise ValueError(f"{text!r} is not an integer of 64 bits, nor a time like 2026-11-23T12:00:00Z")
    return int(text)


def _parse_real(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise ValueError(f"{text!r} is not a number")
    return value


def _parse_boolean(text: str) -> bool:
    if text not in ("true", "false"):
        raise ValueError(f"{text!r} is neither true nor false")
    return text == "true"


def _split(parameter: str, known: Mapping[str, Column]) -> tuple[str, str]:
    """A filter's column and operator; a column may have a dot in its name."""
    name, dot, operator = parameter.rpartition(".")
    if parameter in known or not dot:
        return parameter, "eq"
    return name, operator


def _names(text: str) -> list[str]:
    return [name for part in text.split(",") if (name := part.strip())]
