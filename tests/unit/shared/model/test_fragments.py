"""Parsing fragments: reasons of rejects, times, markers, and independence from the stack depth."""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.model.fragments import (
    MAX_TIME_MS,
    Fragment,
    FragmentRejected,
    encode_marker,
    parse_fragment,
    parse_marker,
    parse_rfc3339,
    time_of,
)
from shared.model.nesting import MAX_NESTING

# besides the texts of test_json_faults.py
REJECTED = [
    (b"", "malformed"),
    (b'{"key":"a"} {"key":"b"}', "malformed"),
    (b'\xef\xbb\xbf{"key":"a"}', "malformed"),
    (b'{"key":"a","end":1}', "invalid"),
    (b'{"key":"a","time":1.5}', "invalid"),
    (b'{"key":"a","time":true}', "invalid"),
    (b'{"key":""}', "key"),
    (b'{"key":"' + b"k" * 257 + b'"}', "key"),
    (b'{"key":"' + "ж".encode() * 129 + b'"}', "key"),
    (b'{"key":"a","id":"' + b"i" * 65 + b'"}', "id"),
    (b'{"key":"a","id":"' + "ж".encode() * 33 + b'"}', "id"),
    (b'{"key":"a","time":-1}', "time"),
    (b'{"key":"a","time":253402300800000}', "time"),
    (b'{"key":"a","time":"1995-08-01"}', "time"),
    (b'{"key":"a","time":"2026-02-30T00:00:00Z"}', "time"),
    (b'{"key":"a","time":"2026-01-01T00:00:00+24:00"}', "time"),
    (b'{"key":"a","time":"1970-01-01T00:00:00+00:01"}', "time"),
]


def read(raw: bytes) -> tuple[Fragment, int | None]:
    fragment = parse_fragment(raw)
    return fragment, time_of(fragment)


@pytest.mark.parametrize(("raw", "reason"), REJECTED)
def test_an_invalid_fragment_is_rejected_with_a_reason(raw: bytes, reason: str) -> None:
    """Parsing is strict; every reject has one reason and a sentence for a person."""
    with pytest.raises(FragmentRejected) as rejected:
        read(raw)

    assert rejected.value.reason == reason
    assert rejected.value.detail


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
local_times = st.datetimes(
    min_value=datetime(1970, 1, 2),  # noqa: DTZ001  the other argument is the time zone
    max_value=datetime(9999, 12, 30),  # noqa: DTZ001
)
keys = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=60)


@given(
    key=keys,
    end=st.booleans(),
    time=st.integers(0, MAX_TIME_MS),
    fragment_id=st.text(st.characters(exclude_categories=["Cs"]), max_size=16),
    data=json_values,
    ascii_only=st.booleans(),
)
def test_every_valid_fragment_is_read(
    key: str, end: bool, time: int, fragment_id: str, data: Any, ascii_only: bool
) -> None:
    """With any JSON as data, escaped or not, and fields in any order."""
    fields = {"data": data, "id": fragment_id, "key": key, "end": end, "time": time}
    try:
        raw = json.dumps(fields, ensure_ascii=ascii_only).encode()
    except UnicodeEncodeError:  # half of a surrogate pair in `data`
        return
    if "\\ud" in raw.decode():
        return

    fragment, found = read(raw)

    assert (fragment.key, fragment.end, fragment.id, found) == (key, end, fragment_id, time)


@given(local_times, st.integers(-1439, 1439))
def test_an_rfc_3339_time_is_rounded_down_to_milliseconds(moment: datetime, offset: int) -> None:
    """With any offset, as the standard library does."""
    sign, (hours, minutes) = "-" if offset < 0 else "+", divmod(abs(offset), 60)
    text = f"{moment.isoformat()}{sign}{hours:02d}:{minutes:02d}"

    twin = datetime.fromisoformat(text)
    since = twin.astimezone(UTC) - datetime(1970, 1, 1, tzinfo=UTC)

    assert parse_rfc3339(text) == (since.days * 86_400 + since.seconds) * 1000 + since.microseconds // 1000


def test_a_leap_second_is_the_first_of_the_next_minute() -> None:
    """RFC 3339 allows leap seconds, so they must be accepted."""
    assert parse_rfc3339("2016-12-31T23:59:60Z") == parse_rfc3339("2017-01-01T00:00:00Z")


@pytest.mark.parametrize(
    "depth", [2, 500, MAX_NESTING - 20, MAX_NESTING - 1, MAX_NESTING, MAX_NESTING + 1, 8_000, 50_000]
)
@pytest.mark.parametrize(("frames", "limit"), [(0, None), (300, None), (800, None), (0, 12_000)])
@pytest.mark.parametrize("end", [b'"key":"a"}', b'"key":1}'])
def test_the_stack_does_not_decide_what_is_readable(
    depth: int, frames: int, limit: int | None, end: bytes
) -> None:
    """Text is read up to the nesting limit and rejected above it, for the same reason in every process.

    At any call depth, and where the parser goes deeper: Python 3.13 allows it 8,000 levels, as `limit` does.
    """
    raw = b'{"data":' + b"[" * (depth - 1) + b"]" * (depth - 1) + b"," + end

    def called(levels: int) -> str:
        if levels:
            return called(levels - 1)
        try:
            return parse_fragment(raw).key
        except FragmentRejected as rejected:
            return rejected.reason

    usual = sys.getrecursionlimit()
    sys.setrecursionlimit(limit or usual)
    try:
        result = called(frames)
    finally:
        sys.setrecursionlimit(usual)

    valid = "a" if end == b'"key":"a"}' else "invalid"
    assert result == (valid if depth <= MAX_NESTING else "nesting")


@given(st.none() | st.integers(0, MAX_TIME_MS))
def test_a_marker_or_tick_is_read_as_it_was_written(time: int | None) -> None:
    """With a time it is a marker, without one a tick."""
    assert parse_marker(encode_marker(time)).time == time


@pytest.mark.parametrize(
    "raw", [b"", b"null", b"[]", b'{"time":"now"}', b'{"time":-1}', b'{"times":1}', b"\xff", b'{"t\xff":1}']
)
def test_any_other_record_without_a_key_is_rejected(raw: bytes) -> None:
    """It must not close sessions by accident."""
    with pytest.raises(FragmentRejected):
        parse_marker(raw)
