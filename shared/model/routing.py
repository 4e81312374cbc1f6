"""Finds the stream of a key: `slot = crc32(key) & 0xFFF`, then the stream table.

Pure. The producer routes fragments with it, the importer builds its lanes from it, the audit checks against
it. Fixed slots that are assigned to streams (instead of `crc32 % n`) are Redis Cluster's idea: splitting a
stream later moves only its slots, not every key.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from shared.errors import InvalidInput

SLOTS = 4096
"""Number of hash buckets, and so the largest possible number of streams."""


class StreamEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One stream of the table: half-open slot ranges `[[low, high), …]`, and its state.

    The state is always `active`; it is stored so that a later version can split a stream.
    """

    slots: list[tuple[int, int]]
    state: str = "active"


class _TableWire(msgspec.Struct, frozen=True, kw_only=True):
    version: int
    streams: dict[str, StreamEntry]


def slot_for(key: bytes) -> int:
    """The slot, 0 … 4095, of a key's UTF-8 bytes.

    >>> slot_for(b"visitor-1")
    1780
    """
    return zlib.crc32(key) & 0xFFF


@dataclass(frozen=True, slots=True)
class StreamTable:
    """The stream of every slot: `owner_of[slot]`. Immutable, compared by value."""

    version: int
    owner_of: tuple[int, ...]

    @property
    def count(self) -> int:
        """The number of streams."""
        return max(self.owner_of) + 1

    def stream_for(self, key: bytes) -> int:
        """The stream, 0 … count - 1, of a key's UTF-8 bytes."""
        return self.owner_of[slot_for(key)]

    def encode(self) -> bytes:
        """The table as JSON, as the znode `streams` holds it (docs/protocol.md)."""
        ranges: dict[int, list[tuple[int, int]]] = {}
        start = 0
        for slot in range(1, SLOTS + 1):
            if slot == SLOTS or self.owner_of[slot] != self.owner_of[start]:
                ranges.setdefault(self.owner_of[start], []).append((start, slot))
                start = slot
        streams = {str(n): StreamEntry(slots=ranges[n]) for n in sorted(ranges)}
        return msgspec.json.encode(_TableWire(version=self.version, streams=streams))


def initial_table(count: int) -> StreamTable:
    """The first table of `count` streams: stream i owns `[i·4096//n, (i+1)·4096//n)`.

    Raises InvalidInput unless 1 <= count <= 4096.

    >>> initial_table(24).encode()[:57]
    b'{"version":1,"streams":{"0":{"slots":[[0,170]],"state":"a'
    """
    if not 1 <= count <= SLOTS:
        raise InvalidInput(f"the number of streams must be 1 … {SLOTS}, not {count}")
    owner_of = [0] * SLOTS
    for stream in range(count):
        # integer division spreads the remainder, so that ranges differ by one slot at most
        low, high = stream * SLOTS // count, (stream + 1) * SLOTS // count
        owner_of[low:high] = [stream] * (high - low)
    return StreamTable(version=1, owner_of=tuple(owner_of))


def parse_table(raw: bytes) -> StreamTable:
    """The table in `raw`, the JSON of the znode.

    Raises InvalidInput if it is malformed, or if a slot has no owner or two.
    """
    try:
        wire = msgspec.json.decode(raw, type=_TableWire)
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        raise InvalidInput(f"the stream table cannot be read: {error}") from None
    return StreamTable(version=wire.version, owner_of=_owners(wire.streams))


def _owners(streams: Mapping[str, StreamEntry]) -> tuple[int, ...]:
    owner_of: list[int] = [-1] * SLOTS  # -1: no stream yet
    for name, entry in streams.items():
        if not name.isdecimal():
            raise InvalidInput(f"the stream table names a stream {name!r}, which is not a number")
        for low, high in entry.slots:
            if not 0 <= low < high <= SLOTS:
                raise InvalidInput(f"stream {name} has the impossible slot range [{low}, {high})")
            for slot in range(low, high):
                # two owners would split a key's fragments over two streams
                if owner_of[slot] != -1:
                    raise InvalidInput(f"slot {slot} belongs to streams {owner_of[slot]} and {name}")
                owner_of[slot] = int(name)
    if -1 in owner_of:
        raise InvalidInput(f"slot {owner_of.index(-1)} belongs to no stream")
    if set(owner_of) != set(range(len(streams))):
        raise InvalidInput("the stream table does not number its streams 0, 1, 2, … without a gap")
    return tuple(owner_of)
