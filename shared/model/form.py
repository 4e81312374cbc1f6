"""The form of a request's body (one object, an array, or lines) and its encoding, decided from the headers.

Pure. The producer's door and the queue's routes ask before they read a body, so they reject an unsupported
one at once. Only `text/plain` does not say what it holds, so there the body decides (`form_of`). Beacons of
web pages must use that type: with any other, the browser would first have to ask for permission
(docs/protocol.md, "Origins").
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from enum import Enum

from shared.errors import InvalidInput

JSON_SPACE = b" \t\r\n"


class UnsupportedType(InvalidInput):
    """The body's type or encoding is not supported; `accept` is the header that lists the supported ones."""

    def __init__(self, detail: str, accept: tuple[str, str]) -> None:
        self.accept = accept
        super().__init__(detail)


class Form(Enum):
    """How a body holds fragments: one object or an array, one object per line, or either of the two."""

    JSON = "application/json"
    NDJSON = "application/x-ndjson"
    TEXT = "text/plain"


class Coding(Enum):
    """How a body is encoded."""

    IDENTITY = "identity"
    GZIP = "gzip"
    ZSTD = "zstd"


@dataclass(frozen=True, slots=True)
class Wrapping:
    """What a request's headers say about its body."""

    form: Form
    coding: Coding


ACCEPT = ("Accept", ", ".join(form.value for form in Form))
ACCEPT_ENCODING = ("Accept-Encoding", "gzip, zstd")
_CODINGS = {b"gzip": Coding.GZIP, b"x-gzip": Coding.GZIP, b"zstd": Coding.ZSTD}


@functools.lru_cache(maxsize=256)
def wrapping_for(content_types: tuple[bytes, ...], content_encodings: tuple[bytes, ...]) -> Wrapping:
    """What the request's `Content-Type` and `Content-Encoding` headers say.

    Raises UnsupportedType unless there is exactly one supported type, with no charset but UTF-8, and at most
    one supported encoding.

    >>> wrapping_for((b"text/plain; charset=UTF-8",), (b"gzip",))
    Wrapping(form=<Form.TEXT: 'text/plain'>, coding=<Coding.GZIP: 'gzip'>)
    """
    return Wrapping(_form_for(content_types), _coding_for(content_encodings))


def form_of(text: bytes) -> Form:
    """The form of a text without a byte order mark: JSON or NDJSON.

    Several lines are NDJSON if the first begins with `{` and ends with `}`, and the next cannot continue it.
    One JSON object never looks like that, however it is split into lines.

    >>> form_of(b'{"key":"a"}\\n{"key":"b"}')
    <Form.NDJSON: 'application/x-ndjson'>
    >>> form_of(b'{"data":{}\\n,"key":"a"}')
    <Form.JSON: 'application/json'>
    """
    first, _, rest = text.strip(JSON_SPACE).partition(b"\n")
    # a line feed cannot stand in a JSON string, so a line break is always between tokens
    is_object = first.startswith(b"{") and first.rstrip(JSON_SPACE).endswith(b"}")
    return Form.NDJSON if rest and is_object and rest.lstrip(JSON_SPACE)[:1] not in b",]}" else Form.JSON


def _form_for(content_types: tuple[bytes, ...]) -> Form:
    if len(content_types) != 1:
        which = "more than one" if content_types else "no"
        raise UnsupportedType(f"the request has {which} Content-Type; supported: {ACCEPT[1]}", ACCEPT)
    media_type, *parameters = content_types[0].lower().split(b";")
    for parameter in parameters:
        name, _, value = parameter.partition(b"=")
        if name.strip() == b"charset" and value.strip().strip(b'"') not in (b"utf-8", b"utf8"):
            raise UnsupportedType(f"the charset {_shown(value)} is not supported, only UTF-8", ACCEPT)
    try:
        return Form(media_type.strip().decode("latin-1"))
    except ValueError:
        detail = f"the content type {_shown(media_type)} is not supported; supported: {ACCEPT[1]}"
        raise UnsupportedType(detail, ACCEPT) from None


def _coding_for(content_encodings: tuple[bytes, ...]) -> Coding:
    # several headers and one header with commas mean the same (RFC 9110, 5.3)
    named = [part.strip().lower() for line in content_encodings for part in line.split(b",")]
    encodings = [name for name in named if name not in (b"", b"identity")]
    if not encodings:
        return Coding.IDENTITY
    coding = _CODINGS.get(encodings[0])
    if len(encodings) > 1 or coding is None:
        shown = _shown(b", ".join(encodings))
        detail = f"the content encoding {shown} is not supported; supported is one of: {ACCEPT_ENCODING[1]}"
        raise UnsupportedType(detail, ACCEPT_ENCODING)
    return coding


def _shown(header: bytes) -> str:
    return repr(header[:80].decode("latin-1").strip())
