"""Where a page ends, as the text that the next request sends back: bound to one version of one table.

Pure. Whoever sends it may have changed it, so `parse_cursor` trusts nothing.
"""

from __future__ import annotations

import base64
import binascii
import hashlib

import msgspec

from services.control.tables.query import Order, Query, QueryInvalid, Value

_INVALID = "is not the `next` of a page of this table with the same filters and the same order"


class Cursor(msgspec.Struct, frozen=True, kw_only=True, array_like=True, forbid_unknown_fields=True):
    """The place of the last row; `skip`: how many rows at this place have been returned.

    `table`: the table's own id, which a table that is made anew does not share.
    """

    table: str
    version: int
    query: str
    skip: int
    place: list[str | int | float | bool | None]

    def text(self) -> str:
        """For a URL."""
        return base64.urlsafe_b64encode(msgspec.json.encode(self)).decode().rstrip("=")


def parse_cursor(text: str) -> Cursor:
    """The cursor. Raises QueryInvalid."""
    try:
        raw = base64.b64decode(text + "=" * (-len(text) % 4), altchars="-_", validate=True)
        cursor = msgspec.json.decode(raw, type=Cursor)
    except (binascii.Error, ValueError, msgspec.DecodeError):
        raise QueryInvalid([("after", _INVALID)]) from None
    if cursor.version < 0 or cursor.skip < 0:
        raise QueryInvalid([("after", _INVALID)])
    return cursor


def check_place(cursor: Cursor, query: Query) -> None:
    """Returns if the cursor is of this query. Raises QueryInvalid."""
    is_whole = len(cursor.place) == len(query.order) and all(
        _is_of(value, order) for value, order in zip(cursor.place, query.order, strict=True)
    )
    if cursor.query != fingerprint(query) or not is_whole:
        raise QueryInvalid([("after", _INVALID)])


def fingerprint(query: Query) -> str:
    """The same for queries with the same rows in the same order, whatever columns they want."""
    filters = sorted((one.column.name, one.operator, sorted(map(str, one.values))) for one in query.filters)
    order = [(one.column.name, one.is_descending) for one in query.order]
    return hashlib.blake2b(msgspec.json.encode([filters, order]), digest_size=6).hexdigest()


def _is_of(value: Value, order: Order) -> bool:
    kinds: dict[str, tuple[type, ...]] = {
        "text": (str,),
        "integer": (int,),
        "time": (int,),
        "real": (int, float),
        "boolean": (bool,),
        "date": (str,),
    }
    kind = order.column.kind
    if value is None:
        return True
    if isinstance(value, bool) is not (kind == "boolean"):
        return False
    if kind == "real" and isinstance(value, str):
        return value in ("inf", "-inf")
    if kind == "date" and isinstance(value, str):
        return _is_date(value)
    return isinstance(value, kinds.get(kind, ()))


def _is_date(text: str) -> bool:
    digits = text.split("-")
    return [len(part) for part in digits] == [4, 2, 2] and all(
        part.isascii() and part.isdigit() for part in digits
    )
