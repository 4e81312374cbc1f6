"""How long streams are likely to stand still, and an operation to take: as handovers of the last hour did.

Pure. A dry run shows it. Take-overs say nothing about it: they wait for the end of a session first.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from statistics import median
from typing import Annotated

import msgspec
from msgspec import Meta

from services.control.core.events.movements import Movement, by_cause, counts_of, handed_over


class Likely(msgspec.Struct, frozen=True, kw_only=True):
    """An estimate from the group's handovers of the last hour; null is what they do not say."""

    pause_ms: Annotated[float | None, Meta(description="how long each stream stands still: the median")] = (
        None
    )
    longest_pause_ms: Annotated[float | None, Meta(description="the longest pause among them")] = None
    length_ms: Annotated[
        float | None, Meta(description="until all streams have moved; null also if none has to")
    ] = None


def likely(moves: Sequence[Movement], number: int, now_ms: int) -> Likely:
    """The estimate for so many streams; `moves` are the group's movements, newest first."""
    handed = [move for move in handed_over(moves, now_ms) if move.pause_ms is not None]
    if not handed or not number:
        return Likely()
    pauses = counts_of(handed).handover_pauses
    return Likely(
        pause_ms=pauses.median_ms,
        longest_pause_ms=pauses.longest_ms,
        length_ms=_length_ms(handed, number),
    )


def _length_ms(handed: Sequence[Movement], number: int) -> float | None:
    """How long one handover takes, and for each further one the time until the same donor's next one ends."""
    one_ms = median((move.copy_ms or 0) + (move.pause_ms or 0) for move in handed)
    steps_ms = [
        later.at - earlier.at
        for cause in by_cause(handed)
        for later, earlier in pairwise(cause.moves)
        if later.source == earlier.source
    ]
    if number == 1:
        return one_ms
    return one_ms + (number - 1) * median(steps_ms) if steps_ms else None
