"""Turns the body of a request into fragments with their streams, and a list of the rejected ones.

Pure. shared/model/fragments.py decides what a fragment is, so a consumer can assemble whatever is accepted
here; `items.py` splits the body, and the stream table decides where a fragment goes. The bytes of a fragment
never change. Used by `http/door.py`, which reads the body and sends the result.

This is the hot path: 100 fragments of 1 KB cost 0.25 ms. Hence three lists per stream instead of an object
per fragment; `msgspec.Raw`, which slices an array without building its items; and structs, which take a third
of the time of a frozen dataclass to create.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import msgspec

from shared.model.form import JSON_SPACE, Form, form_of
from shared.model.fragments import Fragment, FragmentRejected, parse_fragment, time_of
from shared.model.items import RequestTooLarge, RequestUnreadable, items_in
from shared.model.rejects import inserted_bytes
from shared.model.routing import StreamTable, slot_for

BOM = b"\xef\xbb\xbf"
MAX_EXPLAINED = 100
"""Rejects of a request that are explained: the reasons of 2,500 take 4 ms, their explanations another 5."""


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


_parse_unexplained = functools.partial(parse_fragment, explain=False)


def ingest(body: bytes, form: Form, table: StreamTable, limits: Limits) -> Ingested:
    """The fragments in a body, each accepted for its stream or rejected with a reason.

    Reasons: those of parse_fragment, `time` (see time_of), `id` (an empty one), `key` (one with the character
    0), and `size` (above max_fragment_bytes). Raises RequestUnreadable if the body as a whole does not match
    its form, RequestTooLarge if it has too many bytes or fragments.
    """
    if len(body) > limits.max_request_bytes:
        raise RequestTooLarge(f"a request may have at most {limits.max_request_bytes} bytes")
    if body.startswith(BOM):
        body = body[len(BOM) :]
    if form is Form.TEXT:
        form = form_of(body)
    if form is not Form.NDJSON:
        body = body.strip(JSON_SPACE)
        if body.startswith(b"{"):
            return _single(body, table, limits)
    return _sort(items_in(body, form, limits.max_request_fragments), table, limits)


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
    parse: Callable[[bytes], Fragment] = parse_fragment
    for index, item in enumerate(items):
        raw = bytes(item)  # a copy: msgspec.Raw refers to the body, which must not stay in memory
        try:
            if len(raw) > max_bytes and len(raw) > max_bytes + inserted_bytes(raw):
                raise FragmentRejected("size", f"{len(raw)} bytes; a fragment may have at most {max_bytes}")
            fragment = parse(raw)
            # not in parse_fragment: consumers read the empty ids that earlier producers accepted
            if fragment.id == "":
                raise FragmentRejected("id", "`id` is empty, and a second one would be a repeat: omit it")
            # nor this: no command line and no database could name such a key
            key = fragment.key.encode()
            if 0 in key:
                raise FragmentRejected("key", "`key` must not hold the character 0")
            time_of(fragment)  # only to reject a wrong time here: the consumer can no longer tell the sender
        except FragmentRejected as error:
            rejected.append(Rejected(index=index, reason=error.reason, detail=error.detail))
            rejected_values.append(raw)
            if len(rejected) == MAX_EXPLAINED:
                parse = _parse_unexplained
            continue
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
