"""Reading a delivered session returns its fields and the exact bytes of its fragments."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.control.spark.audit.reading import DEEPEST, read_record
from services.control.spark.kafka.delivered import (
    NUMBERS,
    NotASession,
    _read_object,
    _read_usual,
    read_session,
)
from shared.model.sessions import Session, encode_session

FIELDS: dict[str, Any] = {"id": "i", "group": "g", "key": "k", "reason": "end"} | dict.fromkeys(NUMBERS, 5)

_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(_values, st.sampled_from([None, 2]), st.booleans(), st.text(" \t\r\n", max_size=2)))
)
def test_fragments_keep_their_bytes(bodies: list[tuple[Any, int | None, bool, str]]) -> None:
    """The slice equals the original, however a fragment is spelled, indented or padded."""
    data = [
        (
            space + json.dumps({"key": "k", "data": body}, indent=indent, ensure_ascii=is_plain) + space
        ).encode()
        for body, indent, is_plain, space in bodies
    ]
    session = Session(**FIELDS, data=[])

    fields, fragments = read_session(encode_session(session, data))

    assert [fragment.encode() for fragment in fragments] == data
    assert dict(fields) == FIELDS | {"log": 0}


def test_the_number_of_another_log_is_read() -> None:
    """A stream that was started over names its log; the first log is not named."""
    first, other = (encode_session(Session(**FIELDS, log=log, data=[]), []) for log in (0, 52))

    assert b'"log"' not in first
    assert [read_session(raw)[0]["log"] for raw in (first, other)] == [0, 52]


def test_numbers_longer_than_python_converts_are_read() -> None:
    """A fragment's numbers may have any length, but Python refuses to convert 5,000 digits to an int."""
    fragment = b'{"key":"k","data":' + b"7" * 5000 + b"}"

    _, (found,) = read_session(encode_session(Session(**FIELDS, data=[]), [fragment]))

    assert found.encode() == fragment


def test_the_deepest_readable_fragment_is_read() -> None:
    """A fragment nested to the limit of its reader can be delivered and read again."""
    deep = DEEPEST - 1
    fragment = b'{"key":"k","data":' + b"[" * deep + b'"\\ud83d\\ude00"' + b"]" * deep + b"}"
    assert read_record(b"k", fragment).kind == "fragment"

    _, (found,) = read_session(encode_session(Session(**FIELDS, data=[]), [fragment]))

    assert found.encode() == fragment


@pytest.mark.parametrize(
    "raw",
    [
        *(b"", b"{", b"null", b"[]", b"{}", b"\xff", b"x"),
        json.dumps(FIELDS).encode(),
        json.dumps(FIELDS | {"data": {}}).encode(),
        json.dumps(FIELDS | {"data": [], "stream": "5"}).encode(),
        json.dumps(FIELDS | {"data": [], "key": None}).encode(),
        json.dumps(FIELDS | {"data": [], "log": "0"}).encode(),
        json.dumps(FIELDS | {"data": [], "fragments": True}).encode(),
        json.dumps(FIELDS | {"data": []}).encode() + b"{}",
        json.dumps(FIELDS | {"data": [1]}).encode()[:-2],
    ],
)
def test_anything_but_a_session_is_rejected(raw: bytes) -> None:
    """Truncated, mistyped or with trailing text: always NotASession, never another error."""
    with pytest.raises(NotASession):
        read_session(raw)


_texts = st.text(st.sampled_from('abé"\\,:[]{} '), max_size=8)
_oddities = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | _texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_texts, inner, max_size=3),
    max_leaves=6,
)


@given(
    st.lists(st.tuples(st.sampled_from(["id", "key", "data", ',"data":[']), _oddities), max_size=4),
    st.lists(_oddities, max_size=3),
    st.sampled_from([(",", ":"), (", ", ": ")]),
    st.sampled_from(["]}", "]} ", "],}", "]", '],"x":1}', '],"data":[]}', "]]}"]),
)
def test_the_short_way_reads_what_the_long_one_reads(
    members: list[tuple[str, object]], data: list[object], separators: tuple[str, str], end: str
) -> None:
    """Whatever the text is: it may only leave the reading to the long way."""
    comma, colon = separators
    parts = [json.dumps(name) + colon + json.dumps(value, ensure_ascii=False) for name, value in members]
    fragments = comma.join(json.dumps(one, separators=separators) for one in data)
    text = "{" + comma.join([*parts, f'"data"{colon}[{fragments}']) + end

    found = _read_usual(text)

    if found is not None:
        assert found == _read_object(text)
