"""What a stream's state consists of: open sessions, closed ones, covered keys.

The fold makes them, checkpoints store them, handovers carry them. Offsets are those of the stream's fragments
topic; times are integer ms UTC.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from services.consumer.core.sessions.remembered import NO_IDS, Ids, newest_a
from shared.model.sessions import Reason

ENVELOPE_BYTES = 2048
"""What delivering a session costs beside its fragments and ids, as bytes: the work for an empty one is about
that for copying a few KB."""


class OpenSession:
    """A session that has not ended: `low_t <= last_t`, `first_offset <= last_offset`.

    `w`, `last_a`: W right after its last fragment, and A at it. `parked`, `parked_ids`: how many of its
    fragments and of its ids stand in the checkpoint. `pin`: offset of the first fragment that does not, -1
    when all do; a replay must start there, with `pin_w` and `pin_a`, W and A just before that offset, because
    it must judge silence as the first owner did. `ids`: hashes of its fragments' ids in order of arrival;
    None for none.
    """

    __slots__ = (
        "bytes",
        "data",
        "first_offset",
        "ids",
        "key",
        "last_a",
        "last_offset",
        "last_t",
        "low_t",
        "opened_at",
        "parked",
        "parked_ids",
        "pin",
        "pin_a",
        "pin_w",
        "w",
    )

    def __init__(self, key: str, offset: int, opened_at: int, t: int, pin_w: int, pin_a: int) -> None:
        self.key = key
        self.first_offset = self.last_offset = self.pin = offset
        self.opened_at = self.last_a = opened_at
        self.low_t = self.last_t = t
        self.w = t
        self.pin_w = pin_w
        self.pin_a = pin_a
        self.data: list[bytes] = []
        self.bytes = 0
        self.parked = self.parked_ids = 0
        self.ids: dict[int, None] | None = None

    def __repr__(self) -> str:
        return (
            f"<OpenSession {self.key!r} {self.first_offset}…{self.last_offset}, "
            f"{len(self.data)} fragments, {self.parked} parked>"
        )

    @property
    def closing_bytes(self) -> int:
        """About how many bytes a commit writes when the session closes: itself and its covered key."""
        return self.bytes + 9 * len(self.ids or ()) + ENVELOPE_BYTES

    def mark_parked(self) -> None:
        """All its fragments stand in the checkpoint now, so it no longer pins the safe offset."""
        self.parked, self.parked_ids, self.pin = len(self.data), len(self.ids or ()), -1

    def remember(self, hashed: int) -> None:
        """Adds the hash of a fragment's id."""
        if self.ids is None:
            self.ids = {}
        self.ids[hashed] = None


@dataclass(slots=True, kw_only=True)
class Covered:
    """All of a key's records through `offset` are accounted for, because its session closed there.

    `ids`: the ids that the key remembers. When its next session closes, the new entry takes them over and
    changes them in place. Not frozen: that would make the close of a small session 4 % slower.
    """

    offset: int
    ids: Ids = field(default_factory=lambda: NO_IDS)


def is_droppable(entry: Covered, safe_offset: int, safe_a: int, repeat_ms: int) -> bool:
    """Whether no replay from `safe_offset`, with A = `safe_a` before it, can need the entry."""
    return entry.offset < safe_offset and (not entry.ids or safe_a > newest_a(entry.ids) + repeat_ms)


@dataclass(frozen=True, slots=True, kw_only=True)
class Closed:
    """A session that ended, why, and A when it was closed."""

    session: OpenSession
    reason: Reason
    closed_at: int
