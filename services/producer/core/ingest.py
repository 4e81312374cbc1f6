"""Turns the body of a request into fragments with their streams, and a list of the rejected ones.

Pure. shared/model/fragments.py decides what a fragment is, so a consumer can assemble whatever is accepted
here; the stream table decides where it goes. The bytes of a fragment never change. Used by `http/door.py`,
which reads the body and sends the result.

This is the hot path: 100 fragments of 1 KB cost 0.25 ms. Hence three lists per stream instead of an object
per fragment; `msgspec.Raw`, which slices an array without building its items; and structs, which take a third
of the time of a frozen dataclass to create.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from services.producer.core.form import JSON_SPACE, Form, form_of
from shared.errors import InvalidInput
from shared.model.fragments import MAX_NESTING, FragmentRejected, deep_stack, parse_fragment, time_of
from shared.model.json_faults import syntax_fault
from shared.model.rejects import inserted_bytes
from shared.model.routing import StreamTable, slot_for

BOM = b"\xef\xbb\xbf"
MAX_TOKENS = 100_000
MANY_COMMAS = 200_000
"""More than a valid request has; unpacking an array of so many items would briefly take 40 MB."""
# a string, or one mark; `++` never gives back what it took, so that a body full of quotes takes no longer
_TOKEN = re.compile(rb'"(?:[^"\\]++|\\.)*+"?|[\[\]{},]', re.DOTALL)
_COMMA = ord(",")


class RequestUnreadable(InvalidInput):
    """The body does not match its type."""


class RequestTooLarge(InvalidInput):
    """The request is larger than a limit allows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The limits of one request."""

    max_fragment_bytes: int
    max_request_bytes: int
    max_request_fragments: int


class Rejected(msgspec.Struct, frozen=True, kw_only=True):
    """A rejected fragment: its position in the request from 0, a reason to count by, and a sentence."""

    index: int
    reason: str
    detail: str


class Portion(msgspec.Struct, frozen=True):
    """The fragments of one request for one stream, in the request's order; three lists of one length."""

    indexes: list[int] = msgspec.field(default_factory=list)
    keys: list[bytes] = msgspec.field(default_factory=list)
    values: list[bytes] = msgspec.field(default_factory=list)


class Ingested(msgspec.Struct, frozen=True, kw_only=True):
    """The fragments of a request: the `accepted` by stream, and the `rejected` in order.

    The indexes of both together are 0 … n - 1, each once. `rejected_values[n]` has the bytes of
    `rejected[n]`; `count` and `bytes` are totals of the accepted.
    """

    accepted: dict[int, Portion]
    rejected: list[Rejected]
    rejected_values: list[bytes]
    count: int
    bytes: int

    @property
    def total(self) -> int:
        """Fragments in the request."""
        return self.count + len(self.rejected)


_slice_array = msgspec.json.Decoder(list[msgspec.Raw]).decode


def ingest(body: bytes, form: Form, table: StreamTable, limits: Limits) -> Ingested:
    """The fragments in a body, each accepted for its stream or rejected with a reason.

    Reasons: those of parse_fragment, `time` (see time_of), `id` (an empty one), and `size` (above
    max_fragment_bytes). Raises RequestUnreadable if the body as a whole does not match its form,
    RequestTooLarge if it has too many bytes or fragments.
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
    # blank lines do not count as fragments
    return [line for piece in body.split(b"\n") if (line := piece.strip(JSON_SPACE))]


def _elements(body: bytes, max_items: int) -> Sequence[bytes | msgspec.Raw]:
    if not body:
        raise RequestUnreadable("the body is empty")
    # an array with too many items must not be unpacked just to count them
    if len(body) > MANY_COMMAS and body.count(b",") > MANY_COMMAS:
        items = _salvage(body, max_items)
        if items is not None and len(items) > max_items:
            return items
    try:
        try:
            return _slice_array(body)
        except RecursionError:  # one fragment is nested too deeply: the others must not suffer
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
    """The items of an array that is not JSON, split at brackets and commas alone.

    So each item can be judged by itself: one broken fragment must not cost its sender the whole request.
    At most `max_items` + 1. None if brackets do not match, an item is empty, text follows the array, or the
    array has more than MAX_TOKENS tokens (2 µs each).
    """
    if not body.startswith(b"["):
        return None
    items: list[bytes] = []
    open_brackets = bytearray()
    start = 1
    for count, token in enumerate(_TOKEN.finditer(body)):
        mark = token[0][0]
        if mark in b"[{":  # strings are tokens of their own, so brackets in them do not count
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
    # if the only fragment is not JSON, the request as a whole is unreadable
    for rejected in ingested.rejected:
        if rejected.reason in ("malformed", "encoding"):
            raise RequestUnreadable(f"the body is unreadable: {rejected.detail}")
    return ingested


def _sort(items: Sequence[bytes | msgspec.Raw], table: StreamTable, limits: Limits) -> Ingested:
    accepted: dict[int, Portion] = {}
    rejected: list[Rejected] = []
    rejected_values: list[bytes] = []
    owner_of, max_bytes, size = table.owner_of, limits.max_fragment_bytes, 0
    for index, item in enumerate(items):
        raw = bytes(item)  # a copy: msgspec.Raw refers to the body, which must not stay in memory
        try:
            if len(raw) > max_bytes and len(raw) > max_bytes + inserted_bytes(raw):
                raise FragmentRejected("size", f"{len(raw)} bytes; a fragment may have at most {max_bytes}")
            fragment = parse_fragment(raw)
            # not in parse_fragment: consumers read the empty ids that earlier producers accepted
            if fragment.id == "":
                raise FragmentRejected("id", "`id` is empty, and a second one would be a repeat: omit it")
            time_of(fragment)  # only to reject a wrong time here: the consumer can no longer tell the sender
        except FragmentRejected as error:
            rejected.append(Rejected(index=index, reason=error.reason, detail=error.detail))
            rejected_values.append(raw)
            continue
        key = fragment.key.encode()
        stream = owner_of[slot_for(key)]  # `table.stream_for` without its call, 2 % of this loop
        portion = accepted.get(stream)
        if portion is None:
            portion = accepted[stream] = Portion()
        portion.indexes.append(index)
        portion.keys.append(key)
        portion.values.append(raw)
        size += len(raw)
    count = len(items) - len(rejected)
    return Ingested(
        accepted=accepted, rejected=rejected, rejected_values=rejected_values, count=count, bytes=size
    )
