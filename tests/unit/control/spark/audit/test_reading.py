"""The audit's own parser agrees with the parser of producer and consumer on every record."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.control.spark.audit.reading import UNREADABLE, Reading, read_record
from shared.model.fragments import FragmentRejected, parse_fragment, parse_marker, time_of

NASTY = [
    b'{"key":"a"}',
    b' {"key":"a"}\n',
    b'{"key":"a"}x',
    b'{"key":"a",}',
    b"",
    b"null",
    b'["a",true]',
    b'"a"',
    b"{}",
    b'{"key":1,"key":"a"}',
    b'{"key":"b","key":"a"}',
    b'{"k\\u0065y":"a"}',
    b'{"key":"a","end":1}',
    b'{"key":"a","end":null}',
    b'{"key":"a","end":true}',
    b'{"key":"a","time":null}',
    b'{"key":"a","time":1.0}',
    b'{"key":"a","time":1e3}',
    b'{"key":"a","time":true}',
    b'{"key":"a","time":-0}',
    b'{"key":"a","time":-1}',
    b'{"key":"a","time":253402300799999}',
    b'{"key":"a","time":253402300800000}',
    b'{"key":"a","time":99999999999999999999999999}',
    b'{"key":"a","time":' + b"1" * 5000 + b"}",
    b'{"key":"a","id":7}',
    b'{"key":"a","id":""}',
    b'{"key":"a","id":"' + b"i" * 64 + b'"}',
    b'{"key":"a","id":"' + b"i" * 65 + b'"}',
    b'{"key":"a","id":"' + "é".encode() * 33 + b'"}',
    b'{"key":"a","time":' + b"1" * 3900 + b"}",
    b'{"key":"a","x":' + b"1" * 3900 + b"}",
    b'{"key":"a","x":' + b"1" * 5000 + b"}",
    b'{"key":"a","x":1e999}',
    b'{"key":"a","x":01}',
    b'{"key":"a","x":NaN}',
    b'{"key":"a","x":"\\ud800"}',
    b'{"key":"a","x":"\\uD83D\\uDE00"}',
    b'{"key":"a","x":"\\ude00\\ud83d"}',
    b'{"key":"a","\\ud800":1}',
    b'{"key":"a","x":"\\\\ud800"}',
    b'{"key":"a","x":"\x01"}',
    b'{"key":"a","x":"\x7f"}',
    b'{"key":"a","x":"\xff"}',
    b'\xef\xbb\xbf{"key":"a"}',
    b'{"key":"a","x":' + b"[" * 99 + b"]" * 99 + b"}",
    b'{"key":"a","x":' + b"[" * 1000 + b"]" * 1000 + b"}",
    b'{"key":"a","x":' + b'{"y":' * 1000 + b"1" + b"}" * 1001,
    b'{"key":"a","x":' + b"[" * 5000 + b"]" * 5000 + b"}",
    b'{"key":"a","x":"' + b"[" * 500 + b'"}',
    b'{"key":"a","x":[' + b"[]," * 200 + b"[]]}",
]
TIMES = [
    "1970-01-01T00:00:00Z",
    "1969-12-31T23:59:59.999Z",
    "9999-12-31T23:59:59.9999Z",
    "2016-12-31T23:59:60Z",
    "2016-12-31t23:59:60.5z",
    "9999-12-31T23:59:60Z",
    "2023-02-29T00:00:00Z",
    "2024-02-29T12:00:00.1+05:30",
    "2024-02-29 12:00:00.123456789-23:59",
    "2024-02-29T12:00:00+24:00",
    "2024-02-29T12:00:00+00:60",
    "",
    "2024-02-29T12:00:61Z",
    "2024-02-29T24:00:00Z",
    "2024-02-29T12:00Z",
    "2024-02-29T12:00:00",
    "0000-01-01T00:00:00Z",
    "1970-01-01T00:00:00+00:01",
    "1970-01-01T01:00:00-00:00",
    "٢٠٢٤-02-29T12:00:00Z",
    "2024-2-9T12:00:00Z",
    "now",
]
MARKS = [
    *(None, b"", b"{}", b" {} ", b"[]", b"null", b'{"time":5}', b'{"time":null}', b'{"time":-1}'),
    *(b'{"time":"5"}', b'{"time":true}', b'{"time":5,"x":1}', b'{"time":1,"time":7}', b'{"time":1.5}'),
    *(b'{"time":' + b"9" * 40 + b"}", b'{"time":"x","time":7}', b'{"time":5}{}'),
    b'{"time":253402300800000}',
]


def expected(key: bytes | None, value: bytes | None) -> Reading:
    """The parser of producer and consumer, translated to the audit's result."""
    try:
        if key is None:
            time = parse_marker(value or b"").time
            return Reading("tick") if time is None else Reading("marker", time=time)
        fragment = parse_fragment(value or b"")
        if fragment.key.encode() != key:
            return UNREADABLE
        name = fragment.id if isinstance(fragment.id, str) else None
        return Reading("fragment", fragment.key, time_of(fragment), fragment.end, name)
    except FragmentRejected:
        return UNREADABLE


@pytest.mark.parametrize("value", NASTY)
def test_nasty_fragments_are_read_alike(value: bytes) -> None:
    """In JSON's corner cases both parsers accept the same bytes and find the same fields."""
    assert read_record(b"a", value) == expected(b"a", value)


@pytest.mark.parametrize("text", TIMES)
def test_times_are_read_alike(text: str) -> None:
    """In RFC 3339's corner cases both parsers return the same millisecond, or both reject the time."""
    value = json.dumps({"key": "a", "time": text}).encode()

    assert read_record(b"a", value) == expected(b"a", value)


@pytest.mark.parametrize("value", MARKS)
def test_marks_are_read_alike(value: bytes | None) -> None:
    """Both parsers classify a record without a key the same way: marker, tick or unreadable."""
    assert read_record(None, value) == expected(None, value)


def test_the_keys_of_record_and_fragment_must_be_equal() -> None:
    """A record whose fragment has another key is unreadable."""
    value = b'{"key":"a"}'

    assert read_record(b"a", value).kind == "fragment"
    assert read_record(b"b", value) == read_record(b"", value) == read_record(b"a", None) == UNREADABLE


@pytest.mark.parametrize(("size", "is_readable"), [(256, True), (257, False)])
def test_a_key_has_at_most_256_bytes(size: int, is_readable: bool) -> None:
    """The limit counts bytes of UTF-8, not characters."""
    key = ("é" * 128 + "x" * (size - 256)).encode()

    assert (read_record(key, b'{"key":"%s"}' % key) != UNREADABLE) is is_readable


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
_field = st.sampled_from(["key", "time", "end", "id", "data", "x"])


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.tuples(_field, st.one_of(st.just("a"), _json)), max_size=5),
    st.booleans(),
    st.integers(0, 10**6),
    st.sampled_from([b"", b'"', b"\\", b",", b"\xc3", b"0", b" ", b"{", b"}"]),
)
def test_random_records_are_read_alike(
    fields: list[tuple[str, Any]], is_plain: bool, at: int, inserted: bytes
) -> None:
    """Both parsers agree on objects with any fields, some repeated, damaged at one place."""
    pairs = ",".join(
        f"{json.dumps(name)}:{json.dumps(value, ensure_ascii=is_plain)}" for name, value in fields
    )
    whole = f'{{"key":"a"{"," if pairs else ""}{pairs}}}'.encode(errors="surrogatepass")
    at %= len(whole)
    value = whole[:at] + inserted + whole[at:]

    assert read_record(b"a", value) == expected(b"a", value)
