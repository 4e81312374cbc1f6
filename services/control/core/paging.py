"""A page of a list: its order, and where the next page begins, even if rows come and go in between.

Pure. A cursor holds the place of the page's last row: its values in the columns of the order. So a row that
comes or goes shifts no other one over the end of a page. A row whose own place changes between two pages may
be missed or seen twice. Used by the lists of `services/control/http/api`.
"""

from __future__ import annotations

import bisect
import operator
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import msgspec

from shared.errors import InvalidInput

Value = str | int | float | bool | None
Row = TypeVar("Row")
Place = list[tuple[bool, Any]]


class PageInvalid(InvalidInput):
    """The list has no such order or page; `where` is the parameter."""

    def __init__(self, where: str, detail: str) -> None:
        self.where = where
        super().__init__(detail)


@dataclass(frozen=True, slots=True, kw_only=True)
class Page(Generic[Row]):
    """Rows, and the cursor of the rest; None at the end."""

    rows: Sequence[Row]
    next: bytes | None


class Order(msgspec.Struct, frozen=True, array_like=True):
    """One column of an order."""

    column: str
    is_descending: bool


class Cursor(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Where a page ended: the order, what was selected, and the last row's values in the order's columns."""

    orders: list[Order]
    selected: str
    values: list[Value]


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing(Generic[Row]):
    """A list whose rows can be sorted by `columns`; those of the order `default` tell any two rows apart."""

    columns: Mapping[str, Callable[[Row], Value]]
    default: str

    def orders(self, sort: str) -> list[Order]:
        """The columns of an order like `-lag,owner`, and after them those of the default one.

        Raises PageInvalid, which names the columns.
        """
        orders: list[Order] = []
        for name in ",".join(filter(None, (sort, self.default))).split(","):
            column = name.removeprefix("-")
            if column not in self.columns:
                known = ", ".join(sorted(self.columns))
                raise PageInvalid("sort", f"there is no column {column!r} to sort by; there are {known}")
            if all(order.column != column for order in orders):
                orders.append(Order(column, name.startswith("-")))
        return orders

    def page(
        self,
        rows: Iterable[Row],
        *,
        sort: str = "",
        after: bytes | None = None,
        limit: int,
        selected: object = None,
    ) -> Page[Row]:
        """The first `limit` of the rows, or of those after a cursor; nulls come last in either direction.

        `selected`: what the rows were selected by; a cursor is of one selection. Raises PageInvalid.
        """
        orders = self.orders(sort)
        placed = sorted(
            ((self._place(row, orders), number, row) for number, row in enumerate(rows)),
            key=operator.itemgetter(0, 1),
        )
        begin, selection = 0, msgspec.json.encode(selected).decode()
        if after is not None:
            last = self._place_after(after, orders, selection)
            try:
                begin = bisect.bisect_right(placed, last, key=operator.itemgetter(0))
            except TypeError:
                raise _not_a_cursor() from None
        found = [row for _, _, row in placed[begin : begin + limit]]
        if begin + limit >= len(placed):
            return Page(rows=found, next=None)
        values = [self.columns[order.column](found[-1]) for order in orders]
        return Page(rows=found, next=msgspec.json.encode(Cursor(orders, selection, values)))

    def _place(self, row: Row, orders: Sequence[Order]) -> Place:
        return [_part(self.columns[order.column](row), order) for order in orders]

    @staticmethod
    def _place_after(after: bytes, orders: Sequence[Order], selection: str) -> Place:
        try:
            cursor = msgspec.json.decode(after, type=Cursor)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            raise _not_a_cursor() from None
        if cursor.orders != orders or cursor.selected != selection or len(cursor.values) != len(orders):
            raise _not_a_cursor()
        return [_part(value, order) for value, order in zip(cursor.values, orders, strict=True)]


def select(rows: Iterable[Row], **wanted: Collection[Value] | None) -> list[Row]:
    """The rows whose field is one of the wanted values; None allows all."""
    asked = {name: values for name, values in wanted.items() if values is not None}
    return [row for row in rows if all(getattr(row, name) in values for name, values in asked.items())]


def columns_of(*names: str) -> dict[str, Callable[[Any], Value]]:
    """Columns that are fields of the rows."""
    return {name: operator.attrgetter(name) for name in names}


class _Descending:
    """Orders a value the other way round."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __lt__(self, other: _Descending) -> bool:
        return bool(other.value < self.value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Descending) and self.value == other.value

    __hash__ = None  # type: ignore[assignment]  # only compared


def _part(value: Value, order: Order) -> tuple[bool, Any]:
    if value is None:
        return True, 0
    return False, _Descending(value) if order.is_descending else value


def _not_a_cursor() -> PageInvalid:
    return PageInvalid("cursor", "it is not a `next` of this list with the same filters and order")
