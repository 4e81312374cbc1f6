"""Splits the body of a request into its items, without judging them: an array's elements, or lines.

Pure. Used by the producer and the queue. Bodies come from strangers, and a kilobyte decodes to a megabyte of
anything, so no step costs more than a few ms: msgspec slices an array and stops at the first item too many,
and what takes a step for each token or blank line is bounded.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any

import msgspec

from shared.errors import InvalidInput
from shared.model.form import JSON_SPACE, Form
from shared.model.fragments import deep_stack
from shared.model.json_faults import syntax_fault
from shared.model.nesting import MAX_NESTING

MAX_ITEMS = 2_500
"""The most that `max_request_fragments` may allow."""
MAX_TOKENS = 15_000
"""Of an array that is not JSON, 1 µs each. 1 MB of ordinary fragments has about 11,000 to 13,000."""
MAX_MARKS = 150_000
"""Quotes and backslashes of such an array, 0.03 µs each: a token may consist of a million strings."""
_FEW_LINES = 4 * MAX_ITEMS
"""Bodies with more lines than this have blank ones; those are skipped without a step for each."""

_LINE = re.compile(rb"[^ \t\r\n][^\n]*+")
# Escapes are masked by \0, so strings have no quotes inside. A token is a comma, a bracket, or two brackets
# with none between them, with what stands before it. `++` never gives back what it took, and the last
# alternative always matches, so the time is linear in the length whatever the text is.
_FLAT = rb'(?:[^"\[\]{}\0]++|"[^"]*+"?)*+'
_TOKEN = re.compile(rb'(?:[^"\[\]{},\0]++|"[^"]*+"?)*+(,|\[' + _FLAT + rb"\]|\{" + _FLAT + rb"\}|[\[{\]}]|)")
_OPENING = (b"[", b"{")
_OPENED_BY = {b"]": ord("["), b"}": ord("{")}


class RequestUnreadable(InvalidInput):
    """The body does not match its type."""


class RequestTooLarge(InvalidInput):
    """The request is larger than a limit allows."""


def _bounded_slicer(most: int) -> Callable[[bytes], Any]:
    fields = [(f"item_{n}", msgspec.Raw, msgspec.UNSET) for n in range(most)]
    # the next item is an error at once; a list would first be built in full, of up to half a million items
    struct = msgspec.defstruct(f"Slices{most}", fields, array_like=True, forbid_unknown_fields=True)
    return msgspec.json.Decoder(struct).decode


_slice_list = msgspec.json.Decoder(list[msgspec.Raw]).decode
_slice_few = _bounded_slicer(256)
_slice_many = _bounded_slicer(MAX_ITEMS)
_SMALL_BYTES = 64 * 1024
"""Up to here a list is small enough, whatever it holds: 32,000 items take 1 ms."""
_MEDIUM_BYTES = 256 * 1024
"""Up to here few items are likely; `_slice_many` costs 20 µs more than a list."""


def items_in(
    body: bytes, form: Form, max_items: int, what: str = "fragments"
) -> Sequence[bytes | msgspec.Raw]:
    """The items of a body that is not a single object; JSON or NDJSON. `what` they are called in faults.

    Raises RequestUnreadable if the body is not an array, or broken so that its items cannot be told apart;
    RequestTooLarge above `max_items`, at most MAX_ITEMS.
    """
    items = _lines(body) if form is Form.NDJSON else _elements(body, max_items, what)
    if len(items) > max_items:
        raise _too_many(max_items, what)
    return items


def _too_many(max_items: int, what: str) -> RequestTooLarge:
    return RequestTooLarge(f"a request may have at most {max_items} {what}")


def _lines(body: bytes) -> Sequence[bytes]:
    pieces = body.split(b"\n", _FEW_LINES)
    if len(pieces) > _FEW_LINES:
        found = _LINE.finditer(body)
        # blank lines do not count as fragments
        pieces = [line[0] for line, _ in zip(found, range(MAX_ITEMS + 1), strict=False)]
    return [line for piece in pieces if (line := piece.strip(JSON_SPACE))]


def _elements(body: bytes, max_items: int, what: str) -> Sequence[bytes | msgspec.Raw]:
    if not body:
        raise RequestUnreadable("the body is empty")
    try:
        try:
            return _slices(body)
        except RecursionError:  # one fragment is nested too deeply: the others must not suffer
            with deep_stack():
                return _slices(body)
    except msgspec.ValidationError:
        if body.startswith(b"["):
            raise _too_many(max_items, what) from None
        raise RequestUnreadable("the body is neither a JSON object nor an array") from None
    except (msgspec.DecodeError, RecursionError) as error:
        salvaged = _salvage(body, max_items)
        if salvaged is None:
            raise RequestUnreadable(f"the body is unreadable: {_fault(body, error)}") from None
        return salvaged


def _slices(body: bytes) -> Sequence[msgspec.Raw]:
    """The items of an array. Raises what msgspec raises: ValidationError if they are too many."""
    if len(body) <= _SMALL_BYTES:
        return _slice_list(body)
    if len(body) <= _MEDIUM_BYTES:
        with contextlib.suppress(msgspec.ValidationError):
            return _found(_slice_few(body))
    return _found(_slice_many(body))


def _found(slices: Any) -> Sequence[msgspec.Raw]:
    items: tuple[Any, ...] = msgspec.structs.astuple(slices)
    return items if items[-1] is not msgspec.UNSET else items[: items.index(msgspec.UNSET)]


def _fault(body: bytes, error: Exception) -> str:
    deep = isinstance(error, RecursionError)
    return f"nested deeper than {MAX_NESTING}" if deep else syntax_fault(body, str(error))


def _salvage(body: bytes, max_items: int) -> list[bytes] | None:
    """The items of an array that is not JSON, split at brackets and commas alone.

    So each item can be judged by itself: one broken fragment must not cost its sender the whole request.
    At most `max_items` + 1. None if brackets do not match, an item is empty, text follows the array, a quote
    is escaped where no string is, or the array has more than MAX_TOKENS tokens or MAX_MARKS marks.
    """
    if not body.startswith(b"[") or body.count(b'"') + body.count(b"\\") > MAX_MARKS:
        return None
    # of the same length, so that positions stay; outside of strings a mask ends the attempt
    masked = body.replace(rb"\\", b"\0\0").replace(rb"\"", b"\0\0") if b"\\" in body else body
    items: list[bytes] = []
    open_brackets = bytearray(b"[")
    start = 1
    for token in islice(_TOKEN.finditer(masked, start), MAX_TOKENS):
        mark = token[1]
        if mark == b",":
            if len(open_brackets) > 1:
                continue
        elif mark in _OPENING:
            open_brackets += mark
            continue
        elif mark in _OPENED_BY:
            if open_brackets.pop() != _OPENED_BY[mark]:
                return None
            if open_brackets:
                continue
        elif mark:  # a pair of brackets
            continue
        else:
            return None
        # here an item ends, or the array
        items.append(body[start : token.start(1)].strip(JSON_SPACE))
        start = token.end()
        if len(items) > max_items:
            return items
        if not open_brackets:
            return items if all(items) and start == len(body) else None
    return None
