"""The encoding of a bundle: MessagePack, with fragments' bytes as they were posted. `bundle.py` has the
meaning."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from services.consumer.core.commits.checkpoint import CoveredWire
from services.consumer.core.sessions.state import OpenSession
from shared.errors import BundleRejected
from shared.model.head import NOTHING, Counts, Head
from shared.model.sessions import Reason


class SessionWire(msgspec.Struct, frozen=True, array_like=True):
    """An open session, with its ids and fragments from number `ids_from` and `data_from` on."""

    key: str
    first_offset: int
    last_offset: int
    opened_at: int
    low_t: int
    last_t: int
    w: int
    last_a: int
    pin: int
    pin_w: int
    pin_a: int
    parked: int
    ids_from: int
    ids: list[int]
    data_from: int
    data: list[bytes]
    parked_ids: int = 0


class ClosedWire(msgspec.Struct, frozen=True, array_like=True):
    """A closed session that has not been committed yet."""

    session: SessionWire
    reason: Reason
    closed_at: int


class TailWire(msgspec.Struct, frozen=True, array_like=True):
    """What completes a delta: the head of the last commit, W, A and totals at the delta's position, what the
    next commit has to write, and the writer's sizes.

    `changed`: keys that were covered since that head; `unparked`: those of them that the checkpoint holds as
    parked; `read_at`: pairs of a position and the number of bytes that had been read there; `appended`:
    append time (ms) of the record before the delta's position, -1 if unknown, as with older donors.
    """

    head: Head
    w: int
    a: int
    counts: Counts
    pending: list[ClosedWire]
    changed: list[str]
    unparked: list[str]
    written: int
    last_whole: int
    bytes_read: int
    read_at: list[tuple[int, int]]
    appended: int = NOTHING


class BundleWire(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A copy (without `tail`) or a delta. `closed`: keys whose session in the copy has closed since."""

    position: int
    sessions: list[SessionWire]
    covered: list[CoveredWire]
    closed: list[str] = []
    tail: TailWire | None = None


def session_wire(session: OpenSession, data_from: int, ids_from: int) -> SessionWire:
    """The session, with its fragments and ids from these numbers on."""
    ids: Iterable[int] = session.ids or ()
    return SessionWire(
        session.key,
        session.first_offset,
        session.last_offset,
        session.opened_at,
        session.low_t,
        session.last_t,
        session.w,
        session.last_a,
        session.pin,
        session.pin_w,
        session.pin_a,
        session.parked,
        ids_from,
        list(ids)[ids_from:],
        data_from,
        session.data[data_from:] if data_from else session.data,
        session.parked_ids,
    )


def decode_bundle(body: bytes) -> BundleWire:
    """What a body holds. Raises BundleRejected if it is unreadable."""
    try:
        return _decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BundleRejected(f"the bundle is unreadable: {error}") from None


encode_bundle = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(BundleWire).decode
