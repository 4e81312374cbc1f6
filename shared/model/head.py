"""The head: metadata of a stream's committed offset; where a restart of the stream would begin.

It rides in the Kafka group's offset metadata (at most 4,096 bytes), so every Kafka tool shows it and
a new owner reads it in 1–3 ms; the offset that it rides on is the safe offset. The consumer writes
it, control and the audit read it.
"""

from __future__ import annotations

import msgspec

from shared.errors import InvalidInput

NOTHING = -1
"""W or A of an empty log: below every time."""


class Counts(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Totals of a stream in a group from its first record up to the head's position.

    `fragments` and `bytes` count every readable fragment, repeats included; `delivered` and
    `delivered_bytes` those in the `sessions` that have been closed. They are committed with the head,
    so a crash neither loses nor doubles a count.
    """

    fragments: int = 0
    bytes: int = 0
    repeats: int = 0
    markers: int = 0
    ticks: int = 0
    unreadable: int = 0
    sessions: int = 0
    delivered: int = 0
    delivered_bytes: int = 0


class Head(msgspec.Struct, frozen=True, kw_only=True, rename={"checkpoint_from": "ck", "newest": "last"}):
    """Where a stream stands, as of its last commit.

    `0 <= safe_offset <= position`. `w`, `a`: W and A (ms) just before the safe offset, -1 for none.
    `checkpoint_from`, `newest`: offsets in the stream's checkpoints partition where the whole set begins and
    of the newest checkpoint record, -1 while there is none (`ck` and `last` on the wire). `seq` grows by one
    with each commit of an epoch's owner and never goes back.
    """

    epoch: int
    seq: int
    position: int
    safe_offset: int
    w: int = NOTHING
    a: int = NOTHING
    checkpoint_from: int = -1
    newest: int = -1
    counts: Counts = Counts()

    def metadata(self) -> str:
        """The head as the committed offset's metadata (JSON; the safe offset is the offset itself)."""
        return msgspec.json.encode(
            {
                "epoch": self.epoch,
                "seq": self.seq,
                "position": self.position,
                "W": self.w,
                "A": self.a,
                "ck": self.checkpoint_from,
                "last": self.newest,
                "counts": self.counts,
            }
        ).decode()


class _Wire(msgspec.Struct):
    epoch: int
    seq: int
    position: int
    W: int
    A: int
    ck: int
    last: int
    counts: Counts = Counts()


def parse_head(safe_offset: int, metadata: str) -> Head:
    """The head of a committed offset. Raises InvalidInput when the metadata is not a head."""
    try:
        wire = msgspec.json.decode(metadata, type=_Wire)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidInput(f"the committed offset {safe_offset} carries no head: {error}") from None
    if not 0 <= safe_offset <= wire.position:
        raise InvalidInput(f"the head's position {wire.position} lies below its offset {safe_offset}")
    return Head(
        epoch=wire.epoch,
        seq=wire.seq,
        position=wire.position,
        safe_offset=safe_offset,
        w=wire.W,
        a=wire.A,
        checkpoint_from=wire.ck,
        newest=wire.last,
        counts=wire.counts,
    )
