"""Snapshots: the state of a queue in bytes, in parts that fit into records, and back.

The bytes of one state are the same everywhere, so they also tell whether two workers agree. Used by
replica.py.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from services.queue.core.commands import RULES, QueueSettings, SnapshotPart
from services.queue.core.fold import check_rules
from services.queue.core.known_ids import AckedId
from services.queue.core.open_items import OpenItem
from services.queue.core.queue_state import Counts, QueueState
from shared.errors import InvalidInput

PART_BYTES = 900 * 1024


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Commands that store the state right after one record, each in a record of its own.

    Once all of them are stored, the records `below` may be deleted: those that the snapshot before made
    superfluous, but for the last one, which says whose log it is. So a worker that lags by less than a
    snapshot's distance goes on undisturbed.
    """

    parts: tuple[SnapshotPart, ...]
    below: int


class _Snapshot(msgspec.Struct, frozen=True, array_like=True):
    rules: int
    now_ms: int
    settings: QueueSettings | None
    frontier: list[int]
    counts: Counts
    open: list[OpenItem]
    acked: list[AckedId]


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(_Snapshot).decode


def encode_state(state: QueueState) -> bytes:
    """The state in bytes."""
    snapshot = _Snapshot(
        RULES,
        state.now_ms,
        state.settings,
        state.frontier,
        state.counts,
        sorted(state.open, key=lambda item: item.place),
        list(state.ids.acked),
    )
    return _encode(snapshot)


def decode_state(data: bytes) -> QueueState:
    """The state from its bytes. Raises UnknownRules, or InvalidInput if they are damaged."""
    try:
        check_rules(msgspec.msgpack.decode(data)[0])
        found = _decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, LookupError, TypeError) as error:
        raise InvalidInput(f"not a snapshot: {error}") from None
    state = QueueState()
    state.now_ms, state.settings, state.counts = found.now_ms, found.settings, found.counts
    state.frontier = found.frontier
    for item in found.open:
        state.open.add(item)
        if item.id:
            state.ids.hold(item.id, item.place)
    for acked in found.acked:
        state.ids.leave(acked)
    return state


def snapshot_of(state: QueueState, through: int, *, below: int) -> Snapshot:
    """The snapshot of the state right after the record at offset `through`."""
    data = encode_state(state)
    starts = range(0, len(data), PART_BYTES)
    parts = (
        SnapshotPart(through, part, len(starts), data[start : start + PART_BYTES])
        for part, start in enumerate(starts)
    )
    return Snapshot(tuple(parts), below=below)
