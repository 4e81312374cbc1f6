"""The encoding of a bundle: MessagePack, with fragments' bytes as they were posted. `sent.py` has the
meaning."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from typing import Annotated, TypeVar, cast

import msgspec

from services.consumer.core.commits.checkpoint_format import CoveredWire, FoldWire
from services.consumer.core.sessions.state import OpenSession
from services.consumer.core.slices import SLICE_BYTES, Steps, sliced
from shared.errors import BundleRejected
from shared.model.head import NOTHING, Counts, Head
from shared.model.sessions import Reason

T = TypeVar("T")
_Size = Annotated[int, msgspec.Meta(ge=0, lt=2**32)]


class SessionWire(FoldWire, frozen=True, array_like=True):
    """An open session, with its ids and fragments from number `ids_from` and `data_from` on."""

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
    parked; `read_at`: pairs of a position and the number of bytes that had been read there; `appended`
    and `closing`: what a head at the delta's position would have (ms), -1 with older donors.
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
    closing: int = NOTHING


class BundleWire(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A copy (without `tail`) or a delta. `closed`: keys whose session in the copy has closed since."""

    position: int
    sessions: list[SessionWire]
    covered: list[CoveredWire]
    closed: list[str] = []
    tail: TailWire | None = None


class Section(msgspec.Struct, frozen=True, array_like=True):
    """Where one of a bundle's arrays begins, and pairs of (entries, bytes) for each of its parts."""

    at: _Size
    parts: list[tuple[_Size, _Size]]


class Index(msgspec.Struct, frozen=True, array_like=True):
    """The last entry of a bundle: where its arrays can be divided to decode them part by part."""

    sessions: Section
    covered: Section


class _ArrayWriter:
    """Encodes an array entry by entry, behind some bytes; notes where its parts end."""

    def __init__(self, before: bytes, name: str) -> None:
        self.body = bytearray(before + _pack(name))
        self._at = len(self.body)
        self.body += _array(0)
        self._parts: list[tuple[int, int]] = []
        self._count, self._start = 0, len(self.body)

    def add(self, entry: SessionWire | CoveredWire) -> None:
        self._count += 1
        _pack_into(entry, self.body, -1)

    def end_part(self) -> None:
        if self._count:
            self._parts.append((self._count, len(self.body) - self._start))
            self._count, self._start = 0, len(self.body)

    def finish(self) -> Section:
        self.end_part()
        self.body[self._at : self._at + len(_array(0))] = _array(sum(count for count, _ in self._parts))
        return Section(self._at, self._parts)


class BundleWriter:
    """Encodes a `BundleWire` bit by bit: first all sessions, then all covered keys.

    A recipient decodes it in the same parts: `end_part` ends one.
    """

    def __init__(self, position: int) -> None:
        self._sessions = _ArrayWriter(b"\x80" + _pack("position") + _pack(position), "sessions")
        self._covered = _ArrayWriter(b"", "covered")

    def __repr__(self) -> str:
        return f"<BundleWriter {self.size} bytes>"

    @property
    def size(self) -> int:
        """How many bytes are written so far."""
        return len(self._sessions.body) + len(self._covered.body)

    def add_session(self, sent: SessionWire) -> None:
        """Adds a session."""
        self._sessions.add(sent)

    def add_covered(self, sent: CoveredWire) -> None:
        """Adds a covered key."""
        self._covered.add(sent)

    def end_part(self) -> None:
        """Ends a part, here and for the recipient."""
        self._sessions.end_part()
        self._covered.end_part()

    def finish(self, closed: list[str] | None = None, tail: TailWire | None = None) -> bytes:
        """The whole body: a bytearray that nobody changes any more, because copying 138 MB takes 50 ms."""
        body, sessions, covered = self._sessions.body, self._sessions.finish(), self._covered.finish()
        index = Index(sessions, Section(covered.at + len(body), covered.parts))
        body += self._covered.body
        rest = {name: value for name, value in (("closed", closed), ("tail", tail)) if value}
        for name, value in rest.items():
            body += _pack(name) + _pack(value)
        packed = _pack(index)
        body += _index_mark(len(packed)) + packed + len(packed).to_bytes(4, "big")
        body[0] |= 4 + len(rest)  # MessagePack's map with that many entries
        return cast("bytes", body)


class BundleReader:
    """A bundle whose sessions and covered keys are decoded part by part, as they are read.

    `wire` has the rest. One that an older member wrote has no index, and is decoded at once. Raises
    BundleRejected, on creation and while reading, if it is unreadable.
    """

    def __init__(self, body: bytes) -> None:
        self._body, self._index = body, _index_of(body)
        if self._index is None:
            self.wire = decode_bundle(body)
            return
        at, remaining = 0, []
        for section in (self._index.sessions, self._index.covered):
            remaining += [body[at : section.at], _array(0)]
            at = section.at + len(_array(0)) + sum(size for _, size in section.parts)
        self.wire = decode_bundle(b"".join((*remaining, body[at:])))

    def __repr__(self) -> str:
        return f"<BundleReader of {len(self._body)} bytes>"

    def sessions(self) -> Iterator[list[SessionWire]]:
        """The sessions, in parts."""
        if self._index is None:
            return sliced(self.wire.sessions)
        return self._decoded(self._index.sessions, _sessions)

    def covered(self) -> Iterator[list[CoveredWire]]:
        """The covered keys, in parts."""
        if self._index is None:
            return sliced(self.wire.covered)
        return self._decoded(self._index.covered, _covered)

    def _decoded(self, section: Section, decoder: msgspec.msgpack.Decoder[list[T]]) -> Iterator[list[T]]:
        at = section.at + len(_array(0))
        for count, size in section.parts:
            yield _decode(decoder, b"".join((_array(count), self._body[at : at + size])))
            at += size


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


def _array(count: int) -> bytes:
    """MessagePack's array with a length of 4 bytes: what stands before its entries."""
    return b"\xdd" + count.to_bytes(4, "big")


def _index_mark(size: int) -> bytes:
    """What stands before an index of that size: its name, and MessagePack's byte string with a 4-byte length.

    The size follows the index once more, so that a reader finds it from the end of the bundle.
    """
    return _pack("index") + b"\xc6" + (size + 4).to_bytes(4, "big")


def _index_of(body: bytes) -> Index | None:
    size = int.from_bytes(body[-4:], "big")
    at = len(body) - 4 - size
    mark = _index_mark(min(size, len(body)))
    if at < len(mark) or body[at - len(mark) : at] != mark:
        return None
    return _decode(_indexes, body[at:-4])


def _decode(decoder: msgspec.msgpack.Decoder[T], raw: bytes) -> T:
    try:
        return decoder.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BundleRejected(f"the bundle is unreadable: {error}") from None


encode_bundle = msgspec.msgpack.Encoder().encode
_pack, _pack_into = msgspec.msgpack.Encoder().encode, msgspec.msgpack.Encoder().encode_into
_bundles = msgspec.msgpack.Decoder(BundleWire)
_indexes = msgspec.msgpack.Decoder(Index)
_sessions = msgspec.msgpack.Decoder(list[SessionWire])
_covered = msgspec.msgpack.Decoder(list[CoveredWire])
