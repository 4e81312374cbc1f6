"""The explanations of text that is not JSON or not a fragment."""

from __future__ import annotations

import json
import re

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shared.model.fragments import FragmentRejected, parse_fragment, time_of
from shared.model.json_faults import syntax_fault

WANTED_TIME = "an integer (ms since the epoch) or an RFC 3339 time in a string"
HALF = "half a surrogate pair at byte"
RANGE = "`time` must lie in the years 1970 … 9999, in ms"


MALFORMED = [
    (rb'{"key":"a","data":NaN}', "not JSON at byte 18: NaN is not a JSON number"),
    (rb'{"key":"a","data":[1,-Infinity]}', "not JSON at byte 21: -Infinity is not a JSON number"),
    (rb'{"key":"a","data":"\ud800"}', rf"{HALF} 19: \ud800 alone is not a character"),
    (
        rb'{"key":"a","data":["\\ud800","\ud83d\ude00","\uDFFF"]}',
        rf"{HALF} 45: \uDFFF alone is not a character",
    ),
    (rb'{"key":"\ud800\ud800\udc00"}', rf"{HALF} 8: \ud800 alone is not a character"),
    (b'{"key":"a","data":"\x01"}', "not JSON at byte 19: the control character 0x01, which must be escaped"),
    (rb'{"key":"a"', "not JSON: the text ends too early"),
    (rb'{"key":"a","data":[1,]}', "not JSON at byte 21: trailing comma in array"),
]
INVALID = [
    (rb"{}", "the fragment has no `key`"),
    (rb"7", "a fragment must be a JSON object, not an integer"),
    (rb'{"key":null}', "`key` must be a string, not null"),
    (rb'{"key":"a","end":"yes"}', "`end` must be true or false, not a string"),
    (rb'{"key":"a","id":[]}', "`id` must be a string, not an array"),
    (rb'{"key":"a","time":{}}', f"`time` must be {WANTED_TIME}, not an object"),
    (rb'{"key":"a","time":1e400}', f"`time` must be {WANTED_TIME}"),
]
DEEP = b'{"key":"a","data":' + b"[" * 5_000 + b"]" * 5_000 + b"}"


@pytest.mark.parametrize(
    ("raw", "reason", "sentence"),
    [
        *((raw, "malformed", sentence) for raw, sentence in MALFORMED),
        *((raw, "invalid", sentence) for raw, sentence in INVALID),
        (b'{"key":"a","data":"\xff"}', "encoding", "not valid UTF-8 at byte 19"),
        (rb'{"key":"a","time":1' + b"0" * 19 + b"}", "time", RANGE),
        (rb'{"key":"a","time":1' + b"0" * 5_000 + b"}", "time", RANGE),
        (DEEP, "nesting", "nested deeper than 1000"),
    ],
)
def test_a_reject_explains_the_fault(raw: bytes, reason: str, sentence: str) -> None:
    """The sentence says what to change, and where."""
    with pytest.raises(FragmentRejected) as rejected:
        time_of(parse_fragment(raw))

    assert (rejected.value.reason, rejected.value.detail) == (reason, sentence)


@pytest.mark.parametrize(("raw", "sentence"), MALFORMED)
def test_an_explanation_reads_only_the_bytes_around_the_fault(raw: bytes, sentence: str) -> None:
    """A text that is full of what could be a fault takes no longer, and the same byte is named."""
    before = rb"\ud800x" * 1_000
    with pytest.raises(msgspec.DecodeError) as caught:
        msgspec.json.decode(raw)

    def moved(text: str) -> str:
        return re.sub(r"byte (\d+)", lambda found: f"byte {int(found[1]) + len(before)}", text)

    assert syntax_fault(before + raw, moved(str(caught.value))) == moved(sentence)


@settings(max_examples=200)
@given(text=st.text(st.sampled_from('\\u0dD8cCfF12/"ab'), max_size=30))
def test_half_a_surrogate_pair_is_found_exactly_where_python_decodes_one(text: str) -> None:
    """For any escapes: the explanation names half a pair if and only if the decoded string has one."""
    raw = f'"{text}"'.encode()
    try:
        decoded = json.loads(raw)
    except ValueError:
        return
    if not isinstance(decoded, str):
        return

    try:
        msgspec.json.decode(raw)
        is_half = False
    except msgspec.DecodeError as error:
        is_half = syntax_fault(raw, str(error)).startswith("half a surrogate pair")

    assert is_half == any(0xD800 <= ord(char) < 0xE000 for char in decoded)
