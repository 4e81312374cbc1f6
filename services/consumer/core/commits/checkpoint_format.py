"""The format of checkpoint records: covered keys and parked sessions as MessagePack, and how large they are.

Pure. An entry of a whole set is the entry as of its commit, so later changes simply overwrite it, and a whole
set that was never finished is nothing but repeated changes. `writer.py` decides which records a commit has,
`checkpoint.py` reads them back, and a handover sends covered keys in the same form.
"""

from __future__ import annotations

from collections import Counter
from itertools import islice

import msgspec

from services.consumer.core.sessions.remembered import NO_IDS, newest_a, remember
from services.consumer.core.sessions.state import Covered, OpenSession
from shared.errors import InvalidInput
from shared.model.head import NOTHING, Head

ID_BYTES = 9
AGE_BYTES = 7
FRAGMENT_BYTES = 5
"""The most that MessagePack adds to an id's hash, an age that no other id has, and a fragment's length."""


class CoveredWire(msgspec.Struct, frozen=True, array_like=True):
    """A covered key as it is stored, with the newest of its ids or all of them, oldest first.

    `last_a`: A at the last fragment of the newest id's session. `ages`: pairs of (how many ms less than
    `last_a`, for how many ids), in the order of `ids`; without a pair an id is not older. `adds`: the ids are
    added to those that the records before have of the key, instead of replacing them.
    """

    key: str
    offset: int
    last_a: int
    ids: list[int] = []
    ages: list[tuple[int, int]] = []
    adds: bool = False


class FoldWire(msgspec.Struct, frozen=True, array_like=True):
    """The fold state of a session, with which it is stored and travels: the first entries of both."""

    key: str
    first_offset: int
    last_offset: int
    opened_at: int
    low_t: int
    last_t: int
    w: int
    last_a: int


class ParkedWire(FoldWire, frozen=True, array_like=True):
    """A parked session as it is stored: its fold state, and some of its fragments and ids, from the numbers
    `start` and `ids_start` on. One that is too large for a record is stored as several, in order.
    """

    ids: list[int]
    start: int
    fragments: list[bytes]
    ids_start: int = 0


class CheckpointRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One record of the checkpoints topic (MessagePack).

    `head`: the head of its commit, without the two offsets of checkpoint records, which only the broker
    knows. A whole set begins with the record that says `begins` and is complete with the one that says
    `ends`.
    """

    head: Head
    begins: bool = False
    ends: bool = False
    covered: list[CoveredWire] = []
    parked: list[ParkedWire] = []


def decode_record(raw: bytes) -> CheckpointRecord:
    """The checkpoint record in these bytes. Raises InvalidInput when they hold none."""
    try:
        return _decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidInput(f"a checkpoint record cannot be read: {error}") from None


def covered_wire(key: str, entry: Covered, new_ids: int | None = None) -> CoveredWire:
    """A covered key as it is stored, and as it travels: with its newest `new_ids` ids (None: with all)."""
    ids = entry.ids
    if not ids:
        return CoveredWire(key, entry.offset, NOTHING)
    count = len(ids) if new_ids is None else min(new_ids, len(ids))
    newest = newest_a(ids)
    sent = list(islice(reversed(ids), count))[::-1]
    # `last_a` never falls from one id to the next, so equal ones stand together
    ages: list[tuple[int, int]] = []
    if sent and ids[sent[0]] != newest:
        ages = [(newest - last_a, n) for last_a, n in Counter(map(ids.__getitem__, sent)).items()]
    return CoveredWire(
        key,
        entry.offset,
        newest,
        sent,
        ages,
        count < len(ids),
    )


def put_covered(covered: dict[str, Covered], wire: CoveredWire) -> None:
    """Adds a stored key as the newest of `covered`, which are in order of offset."""
    entry = covered.pop(wire.key, None)
    ids = entry.ids if entry is not None and wire.adds else NO_IDS
    at = 0
    for age, count in wire.ages:
        ids = remember(ids, wire.ids[at : at + count], wire.last_a - age)
        at += count
    ids = remember(ids, wire.ids[at:], wire.last_a)
    covered[wire.key] = Covered(offset=wire.offset, ids=ids)


def size_of_covered(key: str, entry: Covered) -> int:
    """About how many bytes the whole entry takes in a record, without the ages of its ids. Cost: none."""
    return len(key) + 40 + ID_BYTES * len(entry.ids)


def size_of_session(session: OpenSession) -> int:
    """About how many bytes the whole session takes in records. Cost: none."""
    ids = ID_BYTES * len(session.ids or ())
    return len(session.key) + 80 + session.bytes + FRAGMENT_BYTES * len(session.data) + ids


def encode_record(record: CheckpointRecord) -> bytes:
    """A checkpoint record as it is stored."""
    return _encode(record)


_encode = msgspec.msgpack.Encoder().encode


_decode = msgspec.msgpack.Decoder(CheckpointRecord).decode
