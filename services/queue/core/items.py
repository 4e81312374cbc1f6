"""What an item is: as clients post it, as it lies in its topic, and as a dead letter.

A record's value is the item's `data`, bytes untouched, so any topic can be a queue. The id and what a queue
of dead letters adds stand in the record's headers. Used by the routes and by `worker/leasing.py`.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from hashlib import blake2b
from typing import NamedTuple

import msgspec

from services.queue.core.commands import Receipt
from shared.errors import InvalidInput
from shared.model.form import JSON_SPACE, Form, form_of
from shared.model.fragments import MAX_ID_BYTES, deep_stack
from shared.model.items import RequestUnreadable, items_in
from shared.model.json_faults import syntax_fault
from shared.model.nesting import MAX_NESTING, is_too_deep

MAX_ITEM_BYTES = 1024 * 1024
MAX_POSTED = 2_500
SLICE_BYTES, SLICE_ITEMS = 256 * 1024, 500
"""So much is read at a time: brackets alone take 20 ms per MB, rejects 13 µs each."""
MAX_KEPT_ID_BYTES = 256
"""Of the id in a record's header: those of dead letters begin with the name of their queue."""
_BOM = b"\xef\xbb\xbf"
_ID, _ITEM = "id", "item"
"""Headers: the item's id; in a dead letter, the id that the item had."""
_PLACE = "place"
"""Header of a dead letter without its value: topic or queue, partition and offset of the item."""


class ItemRecord(msgspec.Struct, frozen=True, kw_only=True):
    """An item as it lies in its topic. `append_ms`: the broker's time; `id`: "" for an item without one."""

    value: bytes
    id: str = ""
    append_ms: int = 0
    headers: dict[str, str] = {}

    @property
    def size(self) -> int:
        """Its bytes in memory, roughly."""
        return len(self.value) + len(self.id) + 200


class RejectedItem(msgspec.Struct, frozen=True, kw_only=True):
    """A rejected item: its position in the request from 0, a reason to count by, and a sentence."""

    index: int
    reason: str
    detail: str


class Posted(msgspec.Struct, frozen=True, kw_only=True):
    """The items of a request; `indexes` are those of the accepted ones in the request."""

    accepted: list[ItemRecord]
    indexes: list[int]
    rejected: list[RejectedItem]


class _Item(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    data: msgspec.Raw
    id: str | None = None


class _ItemRejected(InvalidInput):
    def __init__(self, reason: str, detail: str) -> None:
        self.reason = reason
        super().__init__(detail)


_decode = msgspec.json.Decoder(_Item).decode
_check_json = msgspec.json.Decoder(msgspec.Raw).decode


def reading_posted(body: bytes, form: Form) -> Generator[None, None, Posted]:
    """Reads the items in a body, each accepted or rejected; yields after SLICE_BYTES or SLICE_ITEMS of them.

    Reasons: `size`, `malformed`, `encoding`, `invalid`, `nesting`, `id`. Raises RequestUnreadable if the body
    as a whole does not match its form, RequestTooLarge if it has more than MAX_POSTED items.
    """
    body = body.removeprefix(_BOM)
    if form is Form.TEXT:
        form = form_of(body)
    is_single = form is not Form.NDJSON and body.lstrip(JSON_SPACE).startswith(b"{")
    stripped = body.strip(JSON_SPACE)
    whole = body if form is Form.NDJSON else stripped
    raws = [stripped] if is_single else items_in(whole, form, MAX_POSTED, "items")
    posted = Posted(accepted=[], indexes=[], rejected=[])
    count = size = 0
    for index, raw in enumerate(raws):
        if count >= SLICE_ITEMS or size >= SLICE_BYTES:
            yield
            count = size = 0
        item = bytes(raw)
        count += 1
        size += len(item)
        try:
            posted.accepted.append(_parse(item))
            posted.indexes.append(index)
        except _ItemRejected as error:
            posted.rejected.append(RejectedItem(index=index, reason=error.reason, detail=error.detail))
            if is_single and error.reason in ("malformed", "encoding"):
                raise RequestUnreadable(f"the body is unreadable: {error.detail}") from None
    return posted


def is_json(value: bytes) -> bool:
    """Whether the value may stand in an answer as it is."""
    try:
        if not value.isascii():
            value.decode()
        return not is_too_deep(value) and bool(_checked(value))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False


def headers_of(record: ItemRecord) -> list[tuple[str, bytes]]:
    """The headers of the item's record."""
    own = [(_ID, record.id.encode())] if record.id else []
    return own + [(name, text.encode()) for name, text in record.headers.items()]


def read_record(value: bytes | None, headers: Sequence[tuple[str, bytes]], append_ms: int) -> ItemRecord:
    """The item in a record of any topic; a record without a value is an item of no bytes."""
    texts = {name: (data or b"").decode(errors="replace") for name, data in headers if name != _ID}
    id_ = next((_read_id(data or b"") for name, data in headers if name == _ID), "")
    return ItemRecord(value=value or b"", id=id_, append_ms=append_ms, headers=texts)


class Death(NamedTuple):
    """What a dead letter says besides its item: how many attempts that had, and which of its lives ended."""

    attempts: int
    life: str


def life_of(first_lease: int, incarnation: bytes) -> str:
    """The life of an item that this lease began in this incarnation of the queue, which stays secret.

    >>> life_of(17, b""), life_of(17, b"drawn")
    ('17', '17/8fd6962c029b')
    """
    mark = blake2b(incarnation, digest_size=6).hexdigest()
    return f"{first_lease}/{mark}" if incarnation else str(first_lease)


def dead_letter(queue: str, receipt: Receipt, record: ItemRecord, death: Death, why: str) -> ItemRecord:
    """A copy of the item for the queue of dead letters.

    Copied twice, its id shows the repeat. An item that a seek has brought back, and that dies again, has
    another id: by its place alone it would pass for a repeat of the letter before, and be lost. So would an
    item of a queue made anew, if a worker still buries those of the queue before it.
    """
    headers = {**record.headers, "attempts": str(death.attempts), "why": why}
    if record.id:
        headers[_ITEM] = record.id
    id_ = f"{queue}/{receipt.partition}/{receipt.offset}/{death.life}"
    return ItemRecord(value=record.value, id=id_, headers=headers)


def without_value(letter: ItemRecord, place: str) -> ItemRecord:
    """The letter of an item that Kafka does not take: it says where the item is, and how large it was."""
    kept = {name: text for name, text in letter.headers.items() if name in ("attempts", "why", _ITEM)}
    return ItemRecord(value=b"", id=letter.id, headers=kept | {_PLACE: place, "size": str(len(letter.value))})


def has_value(letter: ItemRecord) -> bool:
    """Whether the letter of a queue with a topic of its own holds its item."""
    return _PLACE not in letter.headers


def redriven(letter: ItemRecord) -> ItemRecord:
    """The item of a dead letter, to be put again; with an id, so that it is done once if it is put twice."""
    headers: Mapping[str, str] = letter.headers
    kept = {name: text for name, text in headers.items() if name not in ("attempts", "why", _ITEM)}
    return ItemRecord(value=letter.value, id=headers.get(_ITEM, letter.id), headers=kept)


def _read_id(data: bytes) -> str:
    """The id in a header; "" if it cannot be one: commands hold ids, and two bad ones could read the same."""
    try:
        return data.decode() if len(data) <= MAX_KEPT_ID_BYTES else ""
    except UnicodeDecodeError:
        return ""


def _parse(raw: bytes) -> ItemRecord:
    if len(raw) > MAX_ITEM_BYTES:
        raise _ItemRejected("size", f"{len(raw)} bytes; an item may have at most {MAX_ITEM_BYTES}")
    if is_too_deep(raw):
        raise _ItemRejected("nesting", f"nested deeper than {MAX_NESTING}")
    try:
        if not raw.isascii():
            raw.decode()
        try:
            item = _decode(raw)
        except RecursionError:
            with deep_stack():
                item = _decode(raw)
    except UnicodeDecodeError as error:
        raise _ItemRejected("encoding", f"not valid UTF-8 at byte {error.start}") from None
    except msgspec.ValidationError as error:
        raise _ItemRejected("invalid", f'an item is {{"data": …, "id": "…"}}: {error}') from None
    except (msgspec.DecodeError, RecursionError) as error:
        raise _ItemRejected("malformed", syntax_fault(raw, str(error))) from None
    if item.id is not None and not 0 < len(item.id.encode()) <= MAX_ID_BYTES:
        raise _ItemRejected("id", f"`id` must have 1 to {MAX_ID_BYTES} bytes of UTF-8")
    # a copy: msgspec.Raw refers to the whole request
    return ItemRecord(value=bytes(item.data), id=item.id or "")


def _checked(value: bytes) -> msgspec.Raw:
    try:
        return _check_json(value)
    except RecursionError:
        with deep_stack():
            return _check_json(value)
