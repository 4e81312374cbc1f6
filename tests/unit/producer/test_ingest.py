"""The rules of core/ingest.py: which bodies are readable, which fragments are accepted, where they go."""

from __future__ import annotations

import json
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.producer.core.ingest import (
    MAX_EXPLAINED,
    Ingested,
    Limits,
    ingest,
)
from services.producer.http.openapi import FRAGMENTS_RESPONSES
from shared.model.form import Form
from shared.model.items import MAX_MARKS, MAX_TOKENS, RequestTooLarge, RequestUnreadable
from shared.model.json_faults import UNEXPLAINED
from shared.model.routing import initial_table

TABLE = initial_table(24)
LIMITS = Limits(max_fragment_bytes=32 * 1024, max_request_bytes=1024 * 1024, max_request_fragments=2_500)


def take(body: bytes, form: Form = Form.JSON) -> Ingested:
    return ingest(body, form, TABLE, LIMITS)


def accepted(ingested: Ingested) -> dict[int, tuple[int, bytes, bytes]]:
    """index → stream, key, value."""
    return {
        index: (stream, key, value)
        for stream, portion in ingested.accepted.items()
        for index, key, value in zip(portion.indexes, portion.keys, portion.values, strict=True)
    }


def reasons(ingested: Ingested) -> list[tuple[int, str]]:
    return [(rejected.index, rejected.reason) for rejected in ingested.rejected]


@pytest.mark.parametrize(
    ("body", "values"),
    [
        (b' \r\n{"key": "a",  "data":{"x":1.0e2}}\n', [b'{"key": "a",  "data":{"x":1.0e2}}']),
        (b'[ {"key":"a" , "n": 1.50} ,\n{"key":"b"}]', [b'{"key":"a" , "n": 1.50}', b'{"key":"b"}']),
    ],
)
def test_fragments_keep_their_bytes_without_the_space_around_them(body: bytes, values: list[bytes]) -> None:
    """A body is one object or an array of items; space inside a fragment is kept."""
    taken = accepted(take(body))

    assert [taken[index][2] for index in range(len(taken))] == values


@pytest.mark.parametrize(
    ("body", "form"),
    [
        *((body, Form.JSON) for body in (b"[]", b" [ ] ")),
        *((body, Form.NDJSON) for body in (b"", b"\n", b"\r\n \n", b"\xef\xbb\xbf")),
    ],
)
def test_a_body_without_fragments_is_valid(body: bytes, form: Form) -> None:
    """An empty array, and NDJSON without lines."""
    ingested = take(body, form)

    assert (ingested.count, ingested.total, ingested.rejected) == (0, 0, [])


def test_blank_lines_do_not_count() -> None:
    """The index of a fragment in NDJSON counts fragments, not lines."""
    ingested = take(b'\n{"key":"a"}\r\n\r\n{}\n  \n{"key":"c"}', Form.NDJSON)

    assert sorted(accepted(ingested)) == [0, 2]
    assert reasons(ingested) == [(1, "invalid")]
    assert accepted(ingested)[0][2] == b'{"key":"a"}'


def test_a_byte_order_mark_is_not_part_of_the_first_fragment() -> None:
    """A byte order mark before the body is ignored, as RFC 8259 allows, in every form."""
    for form in Form:
        ingested = take(b'\xef\xbb\xbf{"key":"a"}', form)

        assert accepted(ingested)[0][2] == b'{"key":"a"}'


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"nonsense",
        b'{"key":"a"',
        b'{"key":"a"} x',
        b'{"key":"a"}\n{"key":"b"}',
        b'{"key":"a","data":NaN}',
        b'{"key":"a","data":"\xff"}',
        b'[{"key":"a"}',
        b'[{"key":"a"},]',
        b'[{"key":"a"}] x',
        b"[" * 200_000,
        '{"key":"a"}'.encode("utf-16"),
        b'[{"key":"a"},NaN,]',
        b'[{"key":"a"},,NaN]',
        b'[{"key":"a"},{"data":NaN]}',
        b'[{"key":"a"},{"data":NaN}',
        b'[{"key":"a"},{"data":NaN}]]',
        b'[{"key":"a"},{"data":NaN}] {"key":"b"}',
        b'[{"key":"a"},{"data":"NaN}]',
        b'{"key":"a"},{"data":NaN}',
        b'x[{"key":"a"}]',
        b'[{"key":"a"},NaN \\","]',
        b'[NaN,"' + b"[" * 1_000_000,
        b"[NaN" + b",[" * 300_000 + b"]" * 300_000 + b"]",
    ],
)
def test_a_body_that_is_not_json_is_unreadable_as_a_whole(body: bytes) -> None:
    """Also if it is not certain where the items of its array begin and end, or takes too long to find out."""
    with pytest.raises(RequestUnreadable):
        take(body)


UNACCEPTABLE = [
    (b"{}", "invalid"),
    (b'{"key":"a","end":"yes"}', "invalid"),
    (b'{"key":""}', "key"),
    (b'{"key":"a","id":"' + b"i" * 65 + b'"}', "id"),
    (b'{"key":"a","id":""}', "id"),
    (rb'{"key":"a\u0000b"}', "key"),
    (b'{"key":"a","time":-1}', "time"),
    (b'{"key":"a","time":"yesterday"}', "time"),
    (b'{"key":"a","data":' + b"[" * 1_001 + b"]" * 1_001 + b"}", "nesting"),
    (b'{"key":"a","data":"' + b"x" * 32 * 1024 + b'"}', "size"),
]
"""One for each check; the rules of a fragment are tested in tests/unit/shared/model/test_fragments.py."""
NOT_OBJECTS = [(item, "invalid") for item in (b"1", b'"a"', b"null", b"[]", b'[{"key":"a"}]')]
NOT_JSON = [
    (b'{"key":"a","data":"\xff"}', "encoding"),
    (b'{"key":"a","data":-Infinity}', "malformed"),
    (rb'{"key":"\udc00"}', "malformed"),
    (b'{"key":"a" "data":1}', "malformed"),
    (b'{"key":"a","data":[1,]}', "malformed"),
    (b"nonsense", "malformed"),
    (b'{"key":"a","data":' + b"[" * 5_000 + b"]" * 5_000 + b"}", "nesting"),
]


@pytest.mark.parametrize(("item", "reason"), [*UNACCEPTABLE, *NOT_OBJECTS, *NOT_JSON])
def test_a_fragment_is_rejected_alone_with_its_reason(item: bytes, reason: str) -> None:
    """In arrays and in lines, also if it is not JSON; the other fragments are stored as posted."""
    good = rb'{"key":"good","data":"],\"}[{,"}'

    for body, form in (
        (b"[" + good + b" ,\n" + item + b", " + good + b" ]", Form.JSON),
        (good + b"\n" + item + b"\n" + good, Form.NDJSON),
    ):
        ingested = take(body, form)
        assert reasons(ingested) == [(1, reason)]
        assert {index: value for index, (_, _, value) in accepted(ingested).items()} == {0: good, 2: good}


@pytest.mark.parametrize(("item", "reason"), UNACCEPTABLE)
def test_a_single_object_is_rejected_with_its_reason(item: bytes, reason: str) -> None:
    """A readable object is a request of one fragment, whatever is wrong with the fragment."""
    assert reasons(take(item)) == [(0, reason)]


def test_every_documented_reason_is_tested() -> None:
    """The OpenAPI document and docs/protocol.md list the same reasons."""
    members = FRAGMENTS_RESPONSES[422]["content"]["application/problem+json"]["schema"]["properties"]

    documented = members["rejected"]["items"]["properties"]["reason"]["enum"]
    assert {reason for _, reason in [*UNACCEPTABLE, *NOT_OBJECTS, *NOT_JSON]} == set(documented)


@pytest.mark.parametrize("body", [b" " * (1024 * 1024 + 1), b"[" + b"NaN," * 2_500 + b"NaN]"])
def test_limits_apply_before_anything_is_judged(body: bytes) -> None:
    """Too many bytes, or too many items, of whatever kind."""
    with pytest.raises(RequestTooLarge):
        take(body)


@pytest.mark.parametrize("item", [b"0", b"[]", b'""'])
@pytest.mark.parametrize(("share", "form"), [(1.0, Form.JSON), (0.2, Form.JSON), (1.0, Form.NDJSON)])
def test_a_body_of_very_many_items_is_not_unpacked(item: bytes, share: float, form: Form) -> None:
    """It is rejected at the limit of fragments, before it takes 40 MB, or a step for each item."""
    items = [item] * int(share * (LIMITS.max_request_bytes - 2) / (len(item) + 1))
    body = b"\n".join(items) if form is Form.NDJSON else b"[" + b",".join(items) + b"]"
    tracemalloc.start()
    try:
        with pytest.raises(RequestTooLarge):
            take(body, form)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert peak < 3 * LIMITS.max_request_bytes


@pytest.mark.parametrize("blank", [b"\n", b"\r\n", b" \n", b"\t \n"])
def test_blank_lines_cost_nothing_each(blank: bytes) -> None:
    """A megabyte of them is skipped as one piece, and the fragments between them are found."""
    blanks = blank * (500_000 // len(blank))
    tracemalloc.start()
    try:
        ingested = take(b'{"key":"a"}\n' + blanks + b'{"key":"b"} \n' + blanks, Form.NDJSON)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert [value for _, _, value in accepted(ingested).values()] == [b'{"key":"a"}', b'{"key":"b"}']
    assert peak < 3 * LIMITS.max_request_bytes


def test_only_the_first_rejects_of_a_request_are_explained() -> None:
    """Each has its reason; explanations of thousands would hold up everybody else."""
    kinds = [b"NaN", b"[1]", b'{"key":null}', b'{"key":"a","time":-1}', b'{"key":"\xff"}']

    rejected = take(b"[" + b",".join(kinds * 500) + b"]").rejected

    explained = [reject for reject in rejected if reject.detail != UNEXPLAINED]
    by_parser = [reject for reject in explained if reject.reason in ("malformed", "invalid")]
    assert [reject.reason for reject in rejected[-5:]] == ["malformed", *["invalid"] * 2, "time", "encoding"]
    assert len(by_parser) == MAX_EXPLAINED * 3 // 5
    assert rejected[: len(explained)][:MAX_EXPLAINED] == explained[:MAX_EXPLAINED]


def test_a_broken_array_is_split_in_a_bounded_number_of_steps() -> None:
    """A megabyte of ordinary fragments is; one of brackets alone is unreadable as a whole."""
    ordinary = json.dumps({"key": "a", "time": 1, "data": {"path": "/", "tags": ["x" * 900, 1, {}]}}).encode()
    many = [ordinary] * (LIMITS.max_request_bytes // (len(ordinary) + 2))

    assert reasons(take(b"[" + b", ".join([*many, b"NaN"]) + b"]")) == [(len(many), "malformed")]
    with pytest.raises(RequestUnreadable):
        take(b'[{"key":"a"},NaN,[' + b"[]," * MAX_TOKENS + b"1]]")


@pytest.mark.parametrize("mark", [b'""', b'"\\\\"'], ids=["quotes", "backslashes"])
def test_a_broken_array_of_many_strings_is_refused_whole(mark: bytes) -> None:
    """Each string costs a step, also between two commas; with fewer of them each item is judged alone."""
    few = take(b'[{"key":"a"},NaN,[' + mark * 100 + b"]]")
    with pytest.raises(RequestUnreadable):
        take(b'[{"key":"a"},NaN,[' + mark * (MAX_MARKS // 2) + b"]]")

    assert few.count == 1


def test_many_commas_inside_a_fragment_do_not_count_as_items() -> None:
    """Each of these fragments is rejected or accepted alone."""
    large = b'{"key":"a","data":[' + b"0," * 300_000 + b"0]}"

    assert reasons(take(b"[" + large + b',{"key":"b"}]')) == [(0, "size")]


def test_a_deep_fragment_does_not_cost_the_others_of_a_large_array() -> None:
    """It is read where it stands: an array of so many tokens could not be split otherwise."""
    deep = b'{"key":"a","data":' + b"[" * 999 + b"]" * 999 + b"}"
    wide = b'{"key":"b","data":[' + b"[]," * 10_000 + b"0]}"

    assert take(b"[" + b",".join([*[wide] * 7, deep]) + b"]").count == 8


def test_a_fragment_of_exactly_32_kb_is_accepted() -> None:
    """The limit belongs to what is accepted."""
    frame = b'{"key":"a","data":""}'
    body = frame[:-2] + b"x" * (LIMITS.max_fragment_bytes - len(frame)) + frame[-2:]

    assert len(body) == LIMITS.max_fragment_bytes
    assert take(body).count == 1


@pytest.mark.parametrize(
    ("inserted", "expected"),
    [
        (b'"id":"rejected/0/9223372036854775807",', []),
        (b'"id":"rejected/0/7", ', [(0, "size")]),
        (b'"id":"rejected/0/7","id":"rejected/0/7",', [(0, "size")]),
        (b'"id":"someone-elses",', [(0, "size")]),
    ],
)
def test_the_id_that_a_replay_inserts_does_not_count(
    inserted: bytes, expected: list[tuple[int, str]]
) -> None:
    """A rejected fragment of the largest size could never be sent again; only that id, once, in its place."""
    largest = b'{"key":"a","data":"%b"}' % (b"x" * (LIMITS.max_fragment_bytes - 21))

    ingested = take(b"{" + inserted + largest[1:])

    assert len(largest) == LIMITS.max_fragment_bytes
    assert reasons(ingested) == expected


@pytest.mark.parametrize("form", Form)
def test_more_fragments_than_the_limit_are_too_large(form: Form) -> None:
    """2,500 fragments are accepted; 2,501 are rejected as a whole."""

    def body(count: int) -> bytes:
        items = [b'{"key":"a"}'] * count
        return b"\n".join(items) if form is Form.NDJSON else b"[" + b",".join(items) + b"]"

    assert take(body(2_500), form).count == 2_500
    with pytest.raises(RequestTooLarge):
        take(body(2_501), form)


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)
FRAGMENTS = st.fixed_dictionaries(
    {"key": st.text(min_size=1, max_size=20)},
    optional={
        "end": st.booleans(),
        "time": st.integers(0, 253_402_300_799_999),
        "id": st.text(min_size=1, max_size=10),
        "data": JSON,
    },
)
GARBAGE = st.sampled_from([b"NaN", b"nonsense", b'{"key":"a","data":Infinity}', rb'"\ud800"', b"[1,]"])
ITEMS = st.lists(FRAGMENTS | JSON, max_size=8)


@settings(max_examples=100)
@given(items=ITEMS, indent=st.sampled_from([None, 1]), ascii_only=st.booleans(), form=st.sampled_from(Form))
def test_every_item_is_accepted_with_its_bytes_or_rejected_once(
    items: list[object], indent: int | None, ascii_only: bool, form: Form
) -> None:
    """All indexes are there, in order within a stream; bytes are untouched; the table has the stream."""
    texts = [
        json.dumps(item, indent=None if form is Form.NDJSON else indent, ensure_ascii=ascii_only).encode()
        for item in items
    ]
    body = b"\n".join(texts) if form is Form.NDJSON else b"[" + b" ,\n".join(texts) + b"]"

    ingested = take(body, form)

    taken = accepted(ingested)
    assert sorted([*taken, *(index for index, _ in reasons(ingested))]) == list(range(len(items)))
    assert ingested.total == len(items)
    assert ingested.bytes == sum(len(value) for _, _, value in taken.values())
    assert all(portion.indexes == sorted(portion.indexes) for portion in ingested.accepted.values())
    for index, (stream, key, value) in taken.items():
        item = items[index]
        assert isinstance(item, dict)
        assert value == texts[index]
        assert key == str(item["key"]).encode()
        assert stream == TABLE.stream_for(key)


@settings(max_examples=100)
@given(items=st.lists(FRAGMENTS | GARBAGE, min_size=1, max_size=8))
def test_an_array_with_garbage_is_read_as_lines_with_garbage_are(items: list[object]) -> None:
    """In both forms the same items are accepted with the same bytes, or rejected for the same reason."""
    texts = [item if isinstance(item, bytes) else json.dumps(item).encode() for item in items]

    as_array = take(b"[" + b", ".join(texts) + b"]")
    as_lines = take(b"\n".join(texts), Form.NDJSON)

    assert accepted(as_array) == accepted(as_lines)
    assert as_array.rejected == as_lines.rejected
    assert as_array.rejected_values == as_lines.rejected_values
