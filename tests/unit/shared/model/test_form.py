"""The rules of shared/model/form.py: what headers say about a body, and which form a text has."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shared.model.form import (
    ACCEPT,
    ACCEPT_ENCODING,
    Coding,
    Form,
    UnsupportedType,
    Wrapping,
    form_of,
    wrapping_for,
)

JSON = (b"application/json",)
SUPPORTED = "supported: application/json, application/x-ndjson, text/plain"


@pytest.fixture(autouse=True)
def forget() -> None:
    """Answers that an earlier test has cached would hide a fault."""
    wrapping_for.cache_clear()


@pytest.mark.parametrize(
    ("types", "form"),
    [
        ((b"application/json",), Form.JSON),
        ((b"Application/JSON; charset=UTF-8",), Form.JSON),
        ((b'application/json;charset="utf-8"',), Form.JSON),
        ((b"application/json ; profile=x",), Form.JSON),
        ((b"application/x-ndjson; charset=utf8",), Form.NDJSON),
        ((b"text/plain;charset=UTF-8",), Form.TEXT),
    ],
)
def test_the_content_type_decides_the_form(types: tuple[bytes, ...], form: Form) -> None:
    """Case and parameters do not matter, except the charset."""
    assert wrapping_for(types, ()) == Wrapping(form, Coding.IDENTITY)


@pytest.mark.parametrize(
    ("encodings", "coding"),
    [
        ((), Coding.IDENTITY),
        ((b"",), Coding.IDENTITY),
        ((b"identity",), Coding.IDENTITY),
        ((b"gzip",), Coding.GZIP),
        ((b" GZip ",), Coding.GZIP),
        ((b"x-gzip",), Coding.GZIP),
        ((b"identity, zstd",), Coding.ZSTD),
        ((b"identity", b"gzip"), Coding.GZIP),
    ],
)
def test_the_content_encoding_decides_the_coding(encodings: tuple[bytes, ...], coding: Coding) -> None:
    """At most one; `identity` does not count, and `x-gzip` is gzip (RFC 9110, 8.4.1.3)."""
    assert wrapping_for(JSON, encodings).coding is coding


@pytest.mark.parametrize(
    ("types", "detail"),
    [
        ((), f"the request has no Content-Type; {SUPPORTED}"),
        ((b"",), f"the content type '' is not supported; {SUPPORTED}"),
        ((b"x" * 81,), f"the content type '{'x' * 80}' is not supported; {SUPPORTED}"),
        ((b"application/jsonx",), f"the content type 'application/jsonx' is not supported; {SUPPORTED}"),
        (
            (b"text/html, text/plain",),
            f"the content type 'text/html, text/plain' is not supported; {SUPPORTED}",
        ),
        (
            (b"application/json", b"application/x-ndjson"),
            f"the request has more than one Content-Type; {SUPPORTED}",
        ),
        ((b"text/plain;charset= utf-16",), "the charset 'utf-16' is not supported, only UTF-8"),
        ((b"text/plain;charset=x=utf-8",), "the charset 'x=utf-8' is not supported, only UTF-8"),
        ((b"\xff\xfe",), f"the content type 'ÿþ' is not supported; {SUPPORTED}"),
    ],
)
def test_other_types_are_not_supported(types: tuple[bytes, ...], detail: str) -> None:
    """Exactly one supported type, in UTF-8; the error names the supported ones."""
    with pytest.raises(UnsupportedType) as caught:
        wrapping_for(types, ())

    assert (caught.value.accept, caught.value.detail) == (ACCEPT, detail)


@pytest.mark.parametrize(
    ("encodings", "shown"),
    [
        ((b"br",), "br"),
        ((b"Deflate",), "deflate"),
        ((b"gzip, gzip",), "gzip, gzip"),
        ((b"gzip", b"zstd"), "gzip, zstd"),
        ((b"zstd, identity, br",), "zstd, br"),
        ((b"\xff",), "ÿ"),
    ],
)
def test_other_and_several_encodings_are_not_supported(encodings: tuple[bytes, ...], shown: str) -> None:
    """At most one layer; the error names the supported ones."""
    with pytest.raises(UnsupportedType) as caught:
        wrapping_for(JSON, encodings)

    detail = f"the content encoding '{shown}' is not supported; supported is one of: gzip, zstd"
    assert (caught.value.accept, caught.value.detail) == (ACCEPT_ENCODING, detail)


@pytest.mark.parametrize(
    ("text", "form"),
    [
        (b'{"key":"a"}\n', Form.JSON),
        (b'\n {"key":"a"} \r\n \n', Form.JSON),
        (b'[{"key":"a"},\n{"key":"b"}]', Form.JSON),
        (b'{"key":"a"}\n{"key":"b"}', Form.NDJSON),
        (b'{"key":"a"} \r\n\r\n {"key":"b"}\r\n', Form.NDJSON),
        (b'{"key":"a"}\nnonsense', Form.NDJSON),
        (b'{"data":{}\n,"key":"a"}', Form.JSON),
        (b'{"data":{"x":{}\n},"key":"a"}', Form.JSON),
        (b'{"data":[{}\n],"key":"a"}', Form.JSON),
        (b"", Form.JSON),
        (b"\n\n", Form.JSON),
        (b"nonsense\nnonsense", Form.JSON),
    ],
)
def test_the_first_lines_of_a_text_decide_its_form(text: bytes, form: Form) -> None:
    """Several lines are NDJSON if the first looks like a whole object; anything else is JSON."""
    assert form_of(text) is form


VALUES = st.recursive(
    st.none() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)
OBJECTS = st.dictionaries(st.text(max_size=3), VALUES, max_size=4)


@settings(max_examples=100)
@given(content=OBJECTS | st.lists(OBJECTS), data=st.data())
def test_one_object_or_array_is_never_ndjson(content: object, data: st.DataObject) -> None:
    """Wherever its lines are broken."""
    text = json.dumps(content, indent=1).encode()
    lines = text.split(b"\n")
    broken = lines[0] + b"".join(data.draw(st.sampled_from([b"\n", b""])) + line for line in lines[1:])

    assert form_of(broken) is Form.JSON
