"""The SQL with which a page of a table is read.

Pure. A page is read in two steps: the first finds the page's rows by their narrow columns, the second reads
the wanted columns between the first and the last of them. So wide columns are decoded only where they are
wanted. A page begins at a row's place in the order, so later pages cost what the first one does.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from services.control.tables.query import SIGNS, Column, Filter, Order, Query, Value

TABLE = "asked"
"""The name under which the table is registered."""


def places_statement(query: Query, after: Sequence[Value] | None, skip: int, limit: int) -> str:
    """The first step: places of the rows from place `after` on, without the first `skip`."""
    columns = [order.column.name for order in query.order]
    if query.weight and query.weight not in columns:
        columns.append(query.weight)
    return _select(query, columns, after, None, skip, limit)


def rows_statement(query: Query, first: Sequence[Value], last: Sequence[Value], skip: int, limit: int) -> str:
    """The second step: the rows between two places, both included, without the first `skip`."""
    return _select(query, [column.name for column in query.columns], first, last, skip, limit)


def _select(
    query: Query,
    columns: Sequence[str],
    first: Sequence[Value] | None,
    last: Sequence[Value] | None,
    skip: int,
    limit: int,
) -> str:
    where = [condition(one) for one in query.filters]
    if first:
        where += [_prunable(query.order[0], first[0], ">="), _at_or_after(query.order, first)]
    if last:
        where += [_prunable(query.order[0], last[0], "<="), _at_or_before(query.order, last)]
    names = ", ".join(quoted(name) for name in columns)
    terms = [
        f"{_ordered_by(one.column)} {'DESC' if one.is_descending else 'ASC'} NULLS LAST"
        for one in query.order
    ]
    terms += [f"{quoted(column.name)} NULLS LAST" for column in query.ties]
    conditions = f" WHERE {' AND '.join(where)}" if where else ""
    order = f" ORDER BY {', '.join(terms)}" if terms else ""
    return f"SELECT {names} FROM {TABLE}{conditions}{order} LIMIT {limit} OFFSET {skip}"


def condition(one: Filter) -> str:
    """A filter as SQL."""
    name, value = quoted(one.column.name), one.values[0]
    if one.operator == "null":
        return f"{name} IS {'' if value else 'NOT '}NULL"
    if one.operator == "prefix":
        return f"starts_with({name}, {literal(one.column, value)})"
    if one.operator == "eq" and len(one.values) > 1:
        return f"{name} IN ({', '.join(literal(one.column, each) for each in one.values)})"
    return f"{name} {SIGNS[one.operator]} {literal(one.column, value)}"


def quoted(name: str) -> str:
    """A column's name in SQL."""
    return '"' + name.replace('"', '""') + '"'


def literal(column: Column, value: Value) -> str:
    """A value as SQL of the column's type, so that the engine compares it with the files' statistics.

    >>> literal(Column(name="key", type="string"), "o'neil"), literal(Column(name="n", type="bigint"), 7)
    ("'o''neil'", '7')
    """
    kind = column.kind
    if kind == "text":
        return "'" + str(value).replace("'", "''") + "'"
    if kind == "boolean":
        return "TRUE" if value else "FALSE"
    if kind == "date":
        return f"DATE '{value}'"
    if kind == "time":
        zone = 'Some("UTC")' if column.type == "timestamp" else "None"
        return f"arrow_cast({value}, 'Timestamp(Microsecond, {zone})')"
    if kind == "real":
        assert isinstance(value, int | float | str)
        number = float(value)
        text = repr(number) if math.isfinite(number) else f"'{number}'"
        return f"CAST({text} AS {'FLOAT' if column.type == 'float' else 'DOUBLE'})"
    return str(value)


def _ordered_by(column: Column) -> str:
    """What orders rows. NaN counts as absent: the files' statistics leave it out."""
    name = quoted(column.name)
    return f"CASE WHEN isnan({name}) THEN NULL ELSE {name} END" if column.kind == "real" else name


def _is_absent(column: Column) -> str:
    name = quoted(column.name)
    return f"({name} IS NULL OR isnan({name}))" if column.kind == "real" else f"{name} IS NULL"


def _compared(column: Column, sign: str, value: Value) -> str:
    text = f"{quoted(column.name)} {sign} {literal(column, value)}"
    return f"({text} AND NOT {_is_absent(column)})" if column.kind == "real" else text


def _prunable(order: Order, value: Value, sign: str) -> str:
    """What the place means for the first column alone: files and row groups are skipped by it."""
    if value is None:
        return "TRUE"
    if sign == ">=":
        sign = "<=" if order.is_descending else ">="
        return f"({_compared(order.column, sign, value)} OR {_is_absent(order.column)})"
    return _compared(order.column, ">=" if order.is_descending else "<=", value)


def _at_or_after(orders: Sequence[Order], values: Sequence[Value]) -> str:
    same, found = list[str](), list[str]()
    for order, value in zip(orders, values, strict=True):
        if value is not None:  # an absent value is last, so nothing follows it
            follows = _compared(order.column, "<" if order.is_descending else ">", value)
            found.append(_all([*same, f"({follows} OR {_is_absent(order.column)})"]))
        same.append(_same(order.column, value))
    return _any([*found, _all(same)])


def _at_or_before(orders: Sequence[Order], values: Sequence[Value]) -> str:
    same, found = list[str](), list[str]()
    for order, value in zip(orders, values, strict=True):
        if value is None:
            found.append(_all([*same, f"NOT {_is_absent(order.column)}"]))
            continue
        precedes = _compared(order.column, ">" if order.is_descending else "<", value)
        found.append(_all([*same, precedes]))
        same.append(_same(order.column, value))
    return _any([*found, _all(same)])


# flat sums of products: the engine parses conditions only so deep, and tables have dozens of columns
def _all(conditions: Sequence[str]) -> str:
    return " AND ".join(conditions) if conditions else "TRUE"


def _any(conditions: Sequence[str]) -> str:
    return f"({' OR '.join(f'({one})' for one in conditions)})"


def _same(column: Column, value: Value) -> str:
    return _is_absent(column) if value is None else _compared(column, "=", value)
