"""Explains in a sentence for a person why a text is not JSON or not a fragment.

Pure. Translates msgspec's messages to the protocol's terms. It runs only for rejected text, so it may scan
all of it again. Used by shared/model/fragments.py and the producer.
"""

from __future__ import annotations

import re

_AT = re.compile(r" \(byte (\d+)\)$")
_TYPE = re.compile(r"Expected `(.+)`, got `(\w+)`(?: - at `\$\.(\w+)`)?")
_NO_NUMBER = re.compile(rb"-?(?:NaN|nan|Infinity|inf)")
_ESCAPE = re.compile(rb"\\(?:u([0-9a-fA-F]{4})|.)", re.DOTALL)
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
    surrogate = _lone_surrogate(text)
    if surrogate is not None:
        return f"half a surrogate pair at byte {surrogate[0]}: {surrogate[1]} alone is not a character"
    found = _AT.search(message)
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


def type_fault(message: str) -> tuple[str, str]:
    """Reason (`invalid`, or `time`) and sentence for JSON that msgspec does not accept as a fragment.

    >>> type_fault("Expected `str`, got `int` - at `$.key`")
    ('invalid', '`key` must be a string, not an integer')
    >>> type_fault("Object missing required field `key`")
    ('invalid', 'the fragment has no `key`')
    """
    if message == "Integer value out of range - at `$.time`":
        return "time", "`time` must lie in the years 1970 … 9999, in ms"
    wrong = _TYPE.match(message)
    if wrong is not None:
        _, got, field = wrong.groups()
        is_ = _GOT.get(got, got)
        if field is None:
            return "invalid", f"a fragment must be a JSON object, not {is_}"
        return "invalid", f"`{field}` must be {_EXPECTED.get(field, wrong[1])}, not {is_}"
    message = message.replace("Number out of range - at `$.time`", f"`time` must be {_EXPECTED['time']}")
    return "invalid", message.replace("Object missing required field", "the fragment has no")


def _lone_surrogate(text: bytes) -> tuple[int, str] | None:
    """Position and text of the first escape that is half a surrogate pair.

    JSON's grammar allows `\\ud800` alone, but no character has that number, and UTF-8 cannot hold it. In a
    pair, a low half (DC00 … DFFF) follows a high one (D800 … DBFF) at once.
    """
    high: re.Match[bytes] | None = None
    for escape in _ESCAPE.finditer(text):
        code = int(escape[1], 16) if escape[1] else 0
        if high is not None:
            if 0xDC00 <= code < 0xE000 and escape.start() == high.end():
                high = None
                continue
            break
        if 0xDC00 <= code < 0xE000:
            return escape.start(), escape[0].decode()
        if 0xD800 <= code < 0xDC00:
            high = escape
    return None if high is None else (high.start(), high[0].decode())
