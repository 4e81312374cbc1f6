"""From the body of a request to fragments with their streams, and the list of those refused.

Pure. Decides by shared/model/fragments.py what is a fragment (so that what is accepted can be assembled)
and by the stream table where it goes; a fragment's bytes are never changed. The door
(`services/producer/http/door.py`) reads the body and sends what comes out of here.

This is the hot path: 100 fragments of 1 KB cost 0.25 ms, hence three lists per stream instead of an
object per fragment, `msgspec.Raw`, which slices an array without building its items, and structs, which
are made in a third of the time of a frozen dataclass.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from services.producer.core.form import JSON_SPACE, Form, form_of
from shared.errors import InvalidInput
from shared.model.fragments import MAX_NESTING, FragmentRejected, deep_stack, parse_fragment, time_of
from shared.model.json_faults import syntax_fault
from shared.model.routing import StreamTable

BOM = b"\xef\xbb\xbf"
MAX_TOKENS = 100_000
MANY_COMMAS = 200_000
"""More than a request of fragments has; an array of so many items would take 40 MB for a moment."""
_TOKEN = re.compile(rb'"(?:[^"\\]++|\\.)*+"?|[\[\]{},]', re.DOTALL)
_COMMA = ord(",")


class RequestUnreadable(InvalidInput):
    """The body is not what its type says."""


class RequestTooLarge(InvalidInput):
    """The request is larger than a limit allows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What one request may hold."""

    max_fragment_bytes: int
    max_request_bytes: int
    max_request_fragments: int


class Rejected(msgspec.Struct, frozen=True, kw_only=True):
    """A fragment that is refused: its place in the request from 0, a word to count by, a sentence."""

    index: int
    reason: str
    detail: str


class Portion(msgspec.Struct, frozen=True):
    """The fragments of one request for one stream, in the request's order; three lists of one length."""

    indexes: list[int] = msgspec.field(default_factory=list)
    keys: list[bytes] = msgspec.field(default_factory=list)
    values: list[bytes] = msgspec.field(default_factory=list)


class Ingested(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a request's fragments: `accepted` by stream, and the rejected in order.

    The indexes of both together are 0 … n - 1, each once; `refused[n]` are the bytes of `rejected[n]`.
    """

    accepted: dict[int, Portion]
    rejected: list[Rejected]
    refused: list[bytes]
    count: int
    bytes: int

    @property
    def total(self) -> int:
        """Fragments in the request."""
        return self.count + len(self.rejected)


_slice_array = msgspec.json.Decoder(list[msgspec.Raw]).decode


def ingest(body: bytes, form: Form, table: StreamTable, limits: Limits) -> Ingested:
    """The fragments that a body holds, each accepted for its stream or rejected with its reason.

    Reasons: those of parse_fragment, `time` (see time_of), and `size` (over max_fragment_bytes).
    Raises RequestUnreadable when the body as a whole is not of its form, RequestTooLarge when it holds
    too many bytes or fragments.
    """
    if len(body) > limits.max_request_bytes:
        raise RequestTooLarge(f"a request may have at most {limits.max_request_bytes} bytes")
    if body.startswith(BOM):
        body = body[len(BOM) :]
    if form is Form.TEXT:
        form = form_of(body)
    if form is Form.NDJSON:
        items = _lines(body)
    else:
        body = body.strip(JSON_SPACE)
        if body.startswith(b"{"):
            return _single(body, table, limits)
        items = _elements(body, limits.max_request_fragments)
    if len(items) > limits.max_request_fragments:
        raise RequestTooLarge(f"a request may have at most {limits.max_request_fragments} fragments")
    return _sort(items, table, limits)


def _lines(body: bytes) -> Sequence[bytes]:
    # blank lines are no fragments and are not counted
    return [line for piece in body.split(b"\n") if (line := piece.strip(JSON_SPACE))]


def _elements(body: bytes, max_items: int) -> Sequence[bytes | msgspec.Raw]:
    if not body:
        raise RequestUnreadable("the body is empty")
    if len(body) > MANY_COMMAS and body.count(b",") > MANY_COMMAS:
        items = _salvage(body, max_items)
        if items is not None and len(items) > max_items:
            return items
    try:
        try:
            return _slice_array(body)
        except RecursionError:  # one fragment is nested too deep: the others shall not suffer
            with deep_stack():
                return _slice_array(body)
    except msgspec.ValidationError:
        raise RequestUnreadable("the body is neither a JSON object nor an array") from None
    except (msgspec.DecodeError, RecursionError) as error:
        items = _salvage(body, max_items)
        if items is None:
            raise RequestUnreadable(f"the body is unreadable: {_fault(body, error)}") from None
        return items


def _fault(body: bytes, error: Exception) -> str:
    deep = isinstance(error, RecursionError)
    return f"nested deeper than {MAX_NESTING}" if deep else syntax_fault(body, str(error))


def _salvage(body: bytes, max_items: int) -> list[bytes] | None:
    """The items of an array of which some are no JSON, by brackets and commas alone, so that each is judged.

    At most one more than `max_items`. None where brackets do not match, an item is empty, something is
    behind the array, or looking took too long (2 µs for each of MAX_TOKENS).
    """
    if not body.startswith(b"["):
        return None
    items: list[bytes] = []
    open_brackets = bytearray()
    start = 1
    for count, token in enumerate(_TOKEN.finditer(body)):
        mark = token[0][0]
        if mark in b"[{":
            open_brackets.append(mark)
        elif not open_brackets or count > MAX_TOKENS:
            return None
        elif mark in b"]}":
            if open_brackets.pop() != mark - 2:  # in ASCII a bracket closes the one two before it
                return None
            if not open_brackets:
                items.append(body[start : token.start()].strip(JSON_SPACE))
                return items if all(items) and token.end() == len(body) else None
        elif mark == _COMMA and len(open_brackets) == 1:
            items.append(body[start : token.start()].strip(JSON_SPACE))
            start = token.end()
            if len(items) > max_items:
                return items
    return None


def _single(body: bytes, table: StreamTable, limits: Limits) -> Ingested:
    ingested = _sort([body], table, limits)
    # alone, text that is not JSON makes the whole request unreadable
    for rejected in ingested.rejected:
        if rejected.reason in ("malformed", "encoding"):
            raise RequestUnreadable(f"the body is unreadable: {rejected.detail}")
    return ingested


def _sort(items: Sequence[bytes | msgspec.Raw], table: StreamTable, limits: Limits) -> Ingested:
    accepted: dict[int, Portion] = {}
    rejected: list[Rejected] = []
    refused: list[bytes] = []
    owner_of, max_bytes, size = table.owner_of, limits.max_fragment_bytes, 0
    for index, item in enumerate(items):
        raw = bytes(item)
        try:
            if len(raw) > max_bytes:
                raise FragmentRejected("size", f"{len(raw)} bytes; a fragment may have at most {max_bytes}")
            fragment = parse_fragment(raw)
            time_of(fragment)
        except FragmentRejected as error:
            rejected.append(Rejected(index=index, reason=error.reason, detail=error.detail))
            refused.append(raw)
            continue
        key = fragment.key.encode()
        stream = owner_of[zlib.crc32(key) & 0xFFF]
        portion = accepted.get(stream)
        if portion is None:
            portion = accepted[stream] = Portion()
        portion.indexes.append(index)
        portion.keys.append(key)
        portion.values.append(raw)
        size += len(raw)
    count = len(items) - len(rejected)
    return Ingested(accepted=accepted, rejected=rejected, refused=refused, count=count, bytes=size)
