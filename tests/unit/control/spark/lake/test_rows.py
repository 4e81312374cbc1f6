"""A record becomes the row that the strict reader makes of it, or is set aside as that reader does."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from services.control.spark.kafka.delivered import LOG, NUMBERS, NotASession, read_session
from services.control.spark.lake.rows import (
    LATEST_MS,
    NUMBER_COLUMNS,
    TEXT_COLUMNS,
    parse_narrow,
    parse_rows,
    parse_unreadable,
    read_row,
)
from services.control.spark.lake.sums import MODULUS
from shared.model.sessions import Session, encode_session

_TIMES = ("first_time", "last_time", "opened_at", "closed_at")
_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)
_texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)


@st.composite
def sessions(draw: st.DrawFn) -> bytes:
    """A session's record of group `g`, with its fragments spelled in any way."""
    numbers = {name: draw(st.integers(-(2**63), 2**63 - 1)) for name in NUMBERS}
    numbers |= {name: draw(st.integers(0, LATEST_MS)) for name in _TIMES}
    bodies = draw(
        st.lists(st.tuples(_values, st.sampled_from([None, 1]), st.text(" \t", max_size=1)), max_size=4)
    )
    data = [
        (space + json.dumps({"key": "k", "data": body}, indent=indent) + space).encode()
        for body, indent, space in bodies
    ]
    session: Any = msgspec.convert(
        numbers | {"id": draw(_texts), "group": "g", "key": draw(_texts), "reason": "gap", "data": []},
        Session,
    )
    return encode_session(session, data)


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """A record with some of its bytes cut out, put in or replaced."""
    raw = draw(sessions())
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(raw)))
        to = draw(st.integers(at, min(at + 4, len(raw))))
        piece = draw(st.sampled_from(list(b'"{}[],:\\ 01e.-ntu\x00\xff\xed')) | st.integers(0, 255))
        raw = raw[:at] + bytes([piece]) * draw(st.integers(0, 2)) + raw[to:]
    return raw


def _strict(raw: bytes) -> tuple[tuple[Any, ...], list[bytes]] | None:
    """The row by the strict reader, and by the limits of the table's columns; None: set aside."""
    try:
        fields, fragments = read_session(raw)
        for name in ("id", "group", "key", "reason"):
            fields[name].encode()
    except (NotASession, UnicodeEncodeError):
        return None
    fits = all(-(2**63) <= fields[name] < 2**63 for name in (*NUMBERS, LOG))
    in_time = all(0 <= fields[name] <= LATEST_MS for name in _TIMES)
    if not fits or not in_time or fields["group"] != "g":
        return None
    return tuple(fields[name] for name in (*TEXT_COLUMNS, *NUMBER_COLUMNS)), [
        one.encode() for one in fragments
    ]


def _read(raw: bytes) -> tuple[tuple[Any, ...], list[bytes]] | None:
    try:
        return read_row(raw, "g")
    except NotASession:
        return None


def _record(**fields: Any) -> bytes:
    base = dict.fromkeys(NUMBERS, 5) | {"id": "i", "group": "g", "key": "k", "reason": "gap", "data": []}
    return json.dumps(base | fields).replace("}, {", "},{").encode()


@settings(max_examples=150, deadline=None)
@given(sessions())
def test_a_session_is_read_as_the_strict_reader_reads_it(raw: bytes) -> None:
    """Every field and every byte of its fragments."""
    assert _read(raw) == _strict(raw) is not None


@settings(max_examples=600, deadline=None)
@given(damaged())
@example(_record(first_offset=2**63))
@example(_record(opened_at=LATEST_MS + 1))
@example(_record(opened_at=-1))
@example(_record(group="other"))
@example(_record(key="\ud800"))
@example(_record(stream=1.0))
@example(_record(stream=True))
@example(_record(log=None))
@example(_record(data=None))
@example(_record(data=[1, "a", None]))
@example(_record() + b" ")
@example(_record() + b"x")
@example(_record().replace(b'"data": []', b'"data":[NaN]'))
@example(_record().replace(b'"data": []', b'"data":[{"a":"\\x"}]'))
@example(_record().replace(b'"data": []', b'"data":[01]'))
@example(_record().replace(b'"data": []', b'"data":["\xff"]'))
@example(_record().replace(b'"data": []', b'"data":[{"data":[1]}]'))
@example(_record().replace(b'"data": []', b'"data":[1],"data":[2]'))
@example(_record().replace(b'"data": []', b'"odd":{"data":[1]},"data":[1]'))
@example(_record().replace(b'"data": []', b'"data":[' + b"[" * 1500 + b"]" * 1500 + b"]"))
@example(b"")
@example(b"null")
def test_a_damaged_record_is_judged_as_by_the_strict_reader(raw: bytes) -> None:
    """Reading fast never accepts what is set aside, nor the other way round."""
    assert _read(raw) == _strict(raw)


def test_a_batch_becomes_rows_counts_and_a_remainder() -> None:
    """Rows keep their place in the topic and the day of `opened_at`; what is left out says why."""
    day = 86_400_000
    good = [
        _record(key=key, opened_at=day + n, bytes=n, data=[{"n": n}] * n) for n, key in enumerate("ab", 1)
    ]
    values = [good[0], b"{", None, good[1]]
    names = {"partition": pa.array([3] * 4, pa.int32()), "offset": [5, 6, 8, 9]}
    batch = pa.RecordBatch.from_pydict(names | {"value": pa.array(values, pa.binary())})
    wide = pa.RecordBatch.from_pydict(
        names
        | {"value": batch["value"], "key": pa.array([b"k"] * 4, pa.binary())}
        | {"appended": pa.array([7] * 4, pa.int64())}
    )
    counts: list[Any] = []

    (rows,) = parse_rows(iter([batch]), "g", "T", counts.append)
    (narrow,) = parse_narrow(iter([batch]), "g", "T")
    (left_out,) = parse_unreadable(iter([wide]), "g")

    rows.validate(full=True)
    assert [(row["key"], row["topic_partition"], row["topic_offset"]) for row in rows.to_pylist()] == [
        *(("a", 3, 5), ("b", 3, 9))
    ]
    assert {str(row["day"]) for row in rows.to_pylist()} == {"1970-01-02"}
    assert [row["data"] for row in rows.to_pylist()] == [['{"n": 1}'], ['{"n": 2}'] * 2]
    checksums = rows.column("checksum").to_pylist()
    spans = {"1970-01-02": (2, sum(checksums) % MODULUS)}
    assert counts == [(2, 10, 3, 2, len(good[0]) + len(good[1]) + 1, spans)]
    assert len(set(checksums)) == 2
    assert narrow.to_pylist() == [
        {name: row[name] for name in narrow.schema.names} for row in rows.to_pylist()
    ]
    assert [(row["topic_offset"], row["value"], row["appended"]) for row in left_out.to_pylist()] == [
        *((6, b"{", 7), (8, None, 7))
    ]
    assert all(row["why"].startswith("not a session") for row in left_out.to_pylist())


def test_a_batch_of_nothing_but_unreadable_records_is_empty() -> None:
    """Arrow gets columns of the right types without a single value."""
    columns = {"partition": pa.array([0], pa.int32()), "offset": [0], "value": pa.array([b""], pa.binary())}
    (rows,) = parse_rows(iter([pa.RecordBatch.from_pydict(columns)]), "g", "T", lambda _: None)

    rows.validate(full=True)
    assert rows.num_rows == 0
    with pytest.raises(NotASession):
        read_row(b"", "g")
