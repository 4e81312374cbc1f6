"""A delivered session, read from its record without any of the code that wrote it.

Pure. Returns the fields with their types checked, and the fragments as the exact bytes between the commas of
`data`, never decoded and encoded again. The lake keeps them; the audit compares them with the log.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from typing import Any

TEXTS = ("id", "group", "key", "reason")
NUMBERS = (
    *("stream", "epoch", "first_offset", "last_offset", "first_time", "last_time"),
    *("opened_at", "closed_at", "fragments", "bytes"),
)
"""Integer fields of the record; times in ms."""
DEEP_STACK = 5000
"""Recursion limit while decoding: the deepest text that is readable must not need more."""
LOG = "log"
"""The number of the stream's log; records of the first log, 0, do not have the field."""

_SPACE = " \t\n\r"
_DATA = ',"data":['


class NotASession(ValueError):
    """The record is not a session."""


def read_session(raw: bytes) -> tuple[Mapping[str, Any], list[str]]:
    """The fields (TEXTS, NUMBERS and LOG) and the fragments' texts. Raises NotASession."""
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(max(limit, DEEP_STACK))
    try:
        text = raw.decode()
        fields, fragments = _read_usual(text) or _read_object(text)
    except (ValueError, IndexError, RecursionError, StopIteration) as error:
        # the scanner raises StopIteration where it finds no value
        raise NotASession(f"not a session: {error!r}") from None
    finally:
        sys.setrecursionlimit(limit)
    for name in TEXTS:
        if type(fields.get(name)) is not str:
            raise NotASession(f"`{name}` is not a string")
    fields.setdefault(LOG, 0)
    for name in (*NUMBERS, LOG):
        if type(fields.get(name)) is not int:
            raise NotASession(f"`{name}` is not an integer")
    if fragments is None:
        raise NotASession("`data` is missing")
    return fields, fragments


# numbers inside fragments may exceed the length that Python converts
_skip = json.JSONDecoder(parse_int=lambda _: 0, parse_float=lambda _: 0.0).scan_once  # type: ignore[attr-defined]
_value = json.JSONDecoder().scan_once  # type: ignore[attr-defined]


def _read_usual(text: str) -> tuple[dict[str, Any], list[str] | None] | None:
    """What `_read_object` returns, in a quarter of the time; None if `data` is not last, or has spaces."""
    # this cannot be inside a string, where quotes are escaped
    begin = text.find(_DATA)
    if begin < 0 or not text.endswith("]}"):
        return None
    try:
        fields, end = _value(text[:begin] + "}", 0)
        fragments, after = _slices(text, begin + len(_DATA), _value)
    except (ValueError, IndexError, StopIteration):
        return None  # `_read_object` finds out what is wrong
    is_all = after == len(text) - 1 and end == begin + 1 and type(fields) is dict and "data" not in fields
    return (fields, fragments) if is_all else None


def _read_object(text: str) -> tuple[dict[str, Any], list[str] | None]:
    """Every field of the object but `data`, whose elements are sliced from the text."""
    fields: dict[str, Any] = {}
    fragments = None
    at = _expect(text, _blank(text, 0), "{")
    while True:
        name, at = _value(text, _blank(text, at))
        at = _blank(text, _expect(text, _blank(text, at), ":"))
        if name == "data":
            fragments, at = _slices(text, _expect(text, at, "["), _skip)
        else:
            fields[name], at = _value(text, at)
        at = _blank(text, at)
        if text[at] == "}":
            break
        at = _expect(text, at, ",")
    if _blank(text, at + 1) != len(text):
        raise ValueError(f"something follows the object at {at + 1}")
    return fields, fragments


def _slices(text: str, at: int, skip: Callable[[str, int], tuple[Any, int]]) -> tuple[list[str], int]:
    """The texts between the commas of an array that begins before `at`, and the position after it."""
    slices: list[str] = []
    if text[_blank(text, at)] == "]":
        return slices, _blank(text, at) + 1
    while True:
        _, end = skip(text, _blank(text, at) if text[at] in _SPACE else at)
        if text[end] in _SPACE:
            end = _blank(text, end)
        slices.append(text[at:end])
        at = end + 1
        if text[end] != ",":
            return slices, _expect(text, end, "]")


def _blank(text: str, at: int) -> int:
    while at < len(text) and text[at] in _SPACE:
        at += 1
    return at


def _expect(text: str, at: int, char: str) -> int:
    if text[at] != char:
        raise ValueError(f"{char!r} expected at {at}")
    return at + 1
