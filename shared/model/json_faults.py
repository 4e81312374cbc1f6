"""Explains in a sentence for a person why a text is not JSON or not a fragment.

Pure. Translates msgspec's messages to the protocol's terms. It looks only at the few bytes around the place
that msgspec names: an explanation costs the same for any text, so nobody can make it slow. Used by
shared/model/fragments.py and the producer.
"""

from __future__ import annotations

import re

UNEXPLAINED = "not explained: too many fragments of this request are rejected"
"""The detail of a reject without an explanation."""

_AT = re.compile(r" \(byte (\d+)\)$")
_TYPE = re.compile(r"Expected `(.+)`, got `(\w+)`(?: - at `\$\.(\w+)`)?")
_NO_NUMBER = re.compile(rb"-?(?:NaN|nan|Infinity|inf)")
_ESCAPE_BYTES = 6
_HIGH = re.compile(rb"\\u[dD][89abAB][0-9a-fA-F]{2}")
_LOW = re.compile(rb"\\u[dD][c-fC-F][0-9a-fA-F]{2}")
_EXPECTED = {
    "key": "a string",
    "end": "true or false",
    "time": "an integer (ms since the epoch) or an RFC 3339 time in a string",
    "id": "a string",
}
_GOT = {
    "str": "a string",
    "int": "an integer",
    "float": "a number with a fraction or an exponent",
    "bool": "a boolean",
    "null": "null",
    "array": "an array",
    "object": "an object",
}


def syntax_fault(text: bytes, message: str) -> str:
    """The fault of UTF-8 text that msgspec does not accept as JSON.

    >>> syntax_fault(b'[NaN]', "JSON is malformed: invalid character (byte 1)")
    'not JSON at byte 1: NaN is not a JSON number'
    """
    found = _AT.search(message)
    surrogate = _lone_surrogate(text, message, int(found[1]) if found else None)
    if surrogate is not None:
        shown = text[surrogate : surrogate + _ESCAPE_BYTES].decode(errors="replace")
        return f"half a surrogate pair at byte {surrogate}: {shown} alone is not a character"
    if found is None:
        return "not JSON: the text ends too early"
    at = int(found[1])
    number = _NO_NUMBER.match(text, max(at - 1, 0)) or _NO_NUMBER.match(text, at)
    if number is not None:
        return f"not JSON at byte {number.start()}: {number[0].decode()} is not a JSON number"
    if text[at : at + 1] and text[at] < 0x20:
        return f"not JSON at byte {at}: the control character {text[at]:#04x}, which must be escaped"
    what = message[: found.start()].removeprefix("JSON is malformed: ")
    return f"not JSON at byte {at}: {what}"


def type_fault(message: str, *, explain: bool = True) -> tuple[str, str]:
    """Reason (`invalid`, or `time`) and sentence for JSON that msgspec does not accept as a fragment.

    Without `explain` the sentence is UNEXPLAINED for `invalid`.

    >>> type_fault("Expected `str`, got `int` - at `$.key`")
    ('invalid', '`key` must be a string, not an integer')
    >>> type_fault("Object missing required field `key`")
    ('invalid', 'the fragment has no `key`')
    """
    if message == "Integer value out of range - at `$.time`":
        return "time", "`time` must lie in the years 1970 … 9999, in ms"
    if not explain:
        return "invalid", UNEXPLAINED
    wrong = _TYPE.match(message)
    if wrong is not None:
        _, got, field = wrong.groups()
        is_ = _GOT.get(got, got)
        if field is None:
            return "invalid", f"a fragment must be a JSON object, not {is_}"
        return "invalid", f"`{field}` must be {_EXPECTED.get(field, wrong[1])}, not {is_}"
    message = message.replace("Number out of range - at `$.time`", f"`time` must be {_EXPECTED['time']}")
    return "invalid", message.replace("Object missing required field", "the fragment has no")


def _lone_surrogate(text: bytes, message: str, at: int | None) -> int | None:
    """The position of the escape that is half a surrogate pair, if that is the fault.

    JSON's grammar allows `\\ud800` alone, but no character has that number, and UTF-8 cannot hold it. In a
    pair, a low half (DC00 … DFFF) follows a high one (D800 … DBFF) at once. `at` is the place that msgspec
    names.
    """
    if at is None:
        # msgspec misses the low half, because fewer bytes follow than it would have
        tail = max(len(text) - 2 * _ESCAPE_BYTES + 1, 0)
        high = _HIGH.search(text, tail)
        return high.start() if high and not _is_escaped(text, high.start()) else None
    last = at - _ESCAPE_BYTES
    if "unexpected end of" in message:  # what follows the high half is not an escape
        return last if _HIGH.match(text, last) else None
    if "surrogate" not in message:
        return None
    # a low half here has no high one before it, or the two were a pair; another escape follows a high half
    return last if _LOW.match(text, last) else last - _ESCAPE_BYTES


def _is_escaped(text: bytes, at: int) -> bool:
    before = text[:at]
    return (len(before) - len(before.rstrip(b"\\"))) % 2 == 1
