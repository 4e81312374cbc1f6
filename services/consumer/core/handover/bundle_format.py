"""The encoding of a bundle: MessagePack, with fragments' bytes as they were posted. `sent.py` has the
meaning."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import TypeVar, cast

import msgspec

from services.consumer.core.commits.checkpoint_format import CoveredWire
from services.consumer.core.sessions.state import OpenSession
from services.consumer.core.slices import SLICE_BYTES, Steps
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


class CopyWire(msgspec.Struct, frozen=True, kw_only=True):
    """A `BundleWire` without a tail, whose entries are still encoded to be decoded bit by bit."""

    position: int
    sessions: list[msgspec.Raw]
    covered: list[msgspec.Raw]
    tail: msgspec.Raw | None = None


class CopyWriter:
    """Encodes a `BundleWire` without a tail bit by bit: first all sessions, then all covered keys."""

    def __init__(self, position: int) -> None:
        self._body = bytearray(b"\x83" + _pack("position") + _pack(position) + _pack("sessions"))
        self._covered = bytearray(_pack("covered"))
        self._counts = [0, 0]
        self._counts_at = len(self._body), len(self._covered)
        for part in (self._body, self._covered):
            part += _ARRAY + bytes(4)

    def __repr__(self) -> str:
        return f"<CopyWriter {self._counts[0]} sessions, {self._counts[1]} covered keys>"

    def add_session(self, sent: SessionWire) -> int:
        """Adds a session; returns how many bytes are written so far."""
        self._counts[0] += 1
        _pack_into(sent, self._body, -1)
        return len(self._body)

    def add_covered(self, sent: CoveredWire) -> None:
        """Adds a covered key."""
        self._counts[1] += 1
        _pack_into(sent, self._covered, -1)

    def finish(self) -> bytes:
        """The whole body: a bytearray that nobody changes any more, because copying 138 MB takes 50 ms."""
        for part, count, at in zip((self._body, self._covered), self._counts, self._counts_at, strict=True):
            part[at + 1 : at + 5] = count.to_bytes(4, "big")
        self._body += self._covered
        return cast("bytes", self._body)


def digesting(body: bytes) -> Steps[str]:
    """SHA-256 of a body, in hex, in slices."""
    digest, view = hashlib.sha256(), memoryview(body)
    for start in range(0, len(body), SLICE_BYTES):
        digest.update(view[start : start + SLICE_BYTES])
        yield
    return digest.hexdigest()


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
    return _decode(_bundles, body)


def decode_copy(body: bytes) -> CopyWire:
    """A copy's entries, still encoded. Raises BundleRejected if it is unreadable."""
    return _decode(_copies, body)


def decode_sessions(entries: Iterable[msgspec.Raw]) -> list[SessionWire]:
    """Decodes entries of a copy. Raises BundleRejected."""
    return [_decode(_sessions, entry) for entry in entries]


def decode_covered(entries: Iterable[msgspec.Raw]) -> list[CoveredWire]:
    """Decodes entries of a copy. Raises BundleRejected."""
    return [_decode(_covered, entry) for entry in entries]


def _decode(decoder: msgspec.msgpack.Decoder[T], raw: bytes | msgspec.Raw) -> T:
    try:
        return decoder.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BundleRejected(f"the bundle is unreadable: {error}") from None


T = TypeVar("T")
_ARRAY = b"\xdd"
"""MessagePack's array with a length of 4 bytes."""
encode_bundle = msgspec.msgpack.Encoder().encode
_pack, _pack_into = msgspec.msgpack.Encoder().encode, msgspec.msgpack.Encoder().encode_into
_bundles = msgspec.msgpack.Decoder(BundleWire)
_copies = msgspec.msgpack.Decoder(CopyWire)
_sessions = msgspec.msgpack.Decoder(SessionWire)
_covered = msgspec.msgpack.Decoder(CoveredWire)
