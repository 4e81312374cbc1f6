"""A stream as the map draws it: which row, which colour, which shape. Pure.

Colours stand for steps of a measure, so a change that nobody could see need not be sent to a page.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable, Collection, Mapping, Sequence
from statistics import median
from typing import Final, Literal, get_args

import msgspec

from services.control.core.report.rows import StreamRow
from services.control.http.console.words import count, per_second, short, size

Colour = Literal["lag", "rate", "open", "state"]
COLOURS: Final[tuple[Colour, ...]] = get_args(Colour)
LAG_STEPS: Final = (100, 1_000, 10_000, 100_000, 1_000_000)
"""Records at which the next colour of lag begins; ten times as many where streams get much."""
BUSY_RATE: Final = 100.0
"""Fragments per second of the median stream, above which a lag of 100 records is ordinary."""
AMOUNT_STEPS: Final = (1.5, 2, 4, 8, 16)
"""Times the group's median at which the next colour of an amount begins. Step 0 is at most the first."""
ON_THE_MOVE: Final = frozenset({"opening", "replaying", "retrying", "stopping"})


class Bead(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """One stream on the map.

    `step`: 0 to 5, -1 if the measure is not known. `status`: Burrow's word, "" if it is not known. `text`:
    its value, `words`: the same for screen readers.
    """

    member: str | None
    step: int
    status: str
    is_moving: bool
    is_pinned: bool
    text: str
    words: str

    @property
    def is_ordinary(self) -> bool:
        """Whether the map draws it grey and unmarked."""
        is_marked = self.is_moving or self.is_pinned
        return self.step == 0 and self.status == "OK" and not is_marked


class Scale(msgspec.Struct, frozen=True, kw_only=True):
    """The values at which each step of a measure begins, from step 1 on."""

    colour: Colour
    edges: tuple[float, ...]

    def step(self, value: float | None) -> int:
        """The step of a value; -1 for one that is not known.

        >>> [Scale(colour="lag", edges=LAG_STEPS).step(lag) for lag in (None, 0, 99, 100, 2_000_000)]
        [-1, 0, 0, 1, 5]
        """
        return -1 if value is None else bisect.bisect_right(self.edges, value)


_VALUES: Final[Mapping[Colour, Callable[[StreamRow], float | None]]] = {
    "lag": lambda row: row.lag,
    "rate": lambda row: row.rate,
    "open": lambda row: row.open_sessions,
    "state": lambda row: row.state_bytes,
}
_TEXTS: Final[Mapping[Colour, Callable[[StreamRow], str]]] = {
    "lag": lambda row: short(row.lag),
    "rate": lambda row: per_second(row.rate),
    "open": lambda row: short(row.open_sessions),
    "state": lambda row: short(row.state_bytes),
}
_WORDS: Final[Mapping[Colour, Callable[[StreamRow], str]]] = {
    "lag": lambda row: f"lag {count(row.lag) or 'unknown'}",
    "rate": lambda row: f"{per_second(row.rate) or 'unknown'} fragments/s",
    "open": lambda row: f"{count(row.open_sessions) or 'unknown'} open sessions",
    "state": lambda row: f"{size(row.state_bytes) or 'unknown'} of state",
}


def scale_of(rows: Sequence[StreamRow], colour: Colour) -> Scale:
    """The scale for these streams."""
    if colour == "lag":
        rates = [row.rate for row in rows if row.rate is not None]
        factor = 10 if rates and median(rates) > BUSY_RATE else 1
        return Scale(colour=colour, edges=tuple(edge * factor for edge in LAG_STEPS))
    known = [value for row in rows if (value := _VALUES[colour](row)) is not None]
    # where most are at 0, an amount of 1 is the first that one can see
    typical = max(median(known), 1.0) if known else 1.0
    return Scale(colour=colour, edges=tuple(edge * typical for edge in AMOUNT_STEPS))


def bead_of(row: StreamRow, scale: Scale, pins: Collection[int]) -> Bead:
    """The stream's bead."""
    owner = f"owner {row.owner}" if row.owner else "no owner"
    is_pinned = row.stream in pins
    text = _TEXTS[scale.colour](row)
    # the visible text is part of the accessible name, so that speech control finds it
    name = f"Stream {row.stream} ({text})" if text else f"Stream {row.stream}"
    status = row.status or "status unknown"
    words = [owner, _WORDS[scale.colour](row), status, *([] if row.state == "running" else [row.state])]
    return Bead(
        member=row.owner,
        step=scale.step(_VALUES[scale.colour](row)),
        status=row.status or "",
        is_moving=row.state in ON_THE_MOVE,
        is_pinned=is_pinned,
        text=text,
        words=f"{name}: {', '.join(words + ['pinned'] * is_pinned)}",
    )


def legend(beads: Sequence[Bead], scale: Scale) -> list[tuple[int, str, int]]:
    """For each step: its number, where it begins, and how many streams it has."""
    begins = ["0", *(_edge_text(edge, scale.colour) for edge in scale.edges)]
    return [(step, begin, sum(bead.step == step for bead in beads)) for step, begin in enumerate(begins)]


def _edge_text(edge: float, colour: Colour) -> str:
    if colour == "rate":
        return per_second(edge)
    return size(int(edge)) if colour == "state" else short(int(edge))
