"""The last hour in slots: of each name one value per slot, whatever the order in which samples arrive.

Pure. Time is divided into slots of STEP_MS, counted from 1970, so the samples of two controls meet in the
same slots. Used by `history.py` (groups) and `queue_history.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Final, Generic, TypeVar

from msgspec import DecodeError, Meta

from shared.errors import InvalidInput

STEP_MS: Final = 15_000
SLOTS: Final = 240
"""An hour."""

Number = float | None
Column = Annotated[list[Number], Meta(description="one number per step; null: unknown")]
Rank = tuple[Any, ...]
T = TypeVar("T")


def slot_of(at_ms: int) -> int:
    """The begin of the slot that this moment lies in.

    >>> slot_of(15_000), slot_of(29_999)
    (15000, 15000)
    """
    return at_ms // STEP_MS * STEP_MS


def decode_sample(raw: bytes, decode: Callable[[bytes], T], most_bytes: int) -> T:
    """The sample in a record's value, which anybody may have written. Raises InvalidInput."""
    if len(raw) > most_bytes:
        raise InvalidInput(f"the sample has {len(raw)} bytes, more than {most_bytes}")
    try:
        return decode(raw)
    except (DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidInput(f"not a sample: {error}") from None


class Hour(Generic[T]):
    """The values of the last SLOTS slots by name; of two for one slot, the one with the higher rank stays."""

    def __init__(self) -> None:
        self._names: dict[str, dict[int, tuple[Rank, T]]] = {}

    def __repr__(self) -> str:
        return f"<Hour of {len(self)} names>"

    def __len__(self) -> int:
        return len(self._names)

    def add(self, name: str, at: int, rank: Rank, value: T, now_ms: int) -> None:
        """Keeps the value of the slot `at`, unless it is older than an hour, of the future, or outranked.

        Drops what is older than an hour.
        """
        oldest = slot_of(now_ms) - SLOTS * STEP_MS  # one more, until this slot has its sample
        for old in [other for other, slots in self._names.items() if max(slots) < oldest]:
            del self._names[old]
        if not oldest <= at <= now_ms:
            return
        slots = self._names.setdefault(name, {})
        for past in [past for past in slots if past < oldest]:
            del slots[past]
        known = slots.get(at)
        if known is None or known[0] < rank:
            slots[at] = rank, value

    def of(self, name: str, now_ms: int) -> tuple[int, list[T | None]]:
        """The begin of the hour up to now, and its slots; None for those without a value."""
        slots, last = self._names.get(name, {}), slot_of(now_ms)
        if last not in slots:
            last -= STEP_MS  # the sample of this slot is still to come
        first = last - (SLOTS - 1) * STEP_MS
        return first, [
            found[1] if (found := slots.get(at)) else None for at in range(first, last + 1, STEP_MS)
        ]
