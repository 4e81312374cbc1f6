"""The map of streams × members, as the page and the live messages show it. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from services.control.core.report.rows import MemberRow
from services.control.http.console.drawing.beads import Bead, Colour, Scale, bead_of, scale_of
from services.control.http.console.shown.scene import Scene, member_cells

MOST_WIRES = 96
"""Streams that fit side by side as wires; more are drawn as beads pushed together."""
MOST_CELLS = 4000
"""Streams × members of a map with wires: each is a cell of the page."""
BLOCKS = 6
"""Parts of a pushed-together map, each with its own heads: one, two or three columns share them evenly."""
LEAST_LINES = 3
"""Rows of a part, so that a map of few members is not all heads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberLine:
    """A row of the map: the member, its streams with their beads by number, and the texts at its end."""

    member: MemberRow
    beads: Sequence[tuple[int, Bead]]
    cells: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnershipMap:
    """The whole map. `nobody`: the beads of streams without an owner."""

    colour: Colour
    has_wires: bool
    streams: int
    lines: Sequence[MemberLine]
    nobody: Sequence[tuple[int, Bead]]
    scale: Scale
    beads: Sequence[Bead]

    @property
    def blocks(self) -> list[Sequence[MemberLine]]:
        """The lines in order, in parts that no column cuts; one empty part without members."""
        size = max(LEAST_LINES, math.ceil(len(self.lines) / BLOCKS))
        return [self.lines[at : at + size] for at in range(0, max(1, len(self.lines)), size)]


def has_wires(streams: int, members: int) -> bool:
    """Whether each stream gets a wire of its own."""
    return streams <= MOST_WIRES and streams * max(1, members) <= MOST_CELLS


def ownership_map(scene: Scene, colour: Colour) -> OwnershipMap:
    """The map of the group, coloured by a measure."""
    scale = scale_of(scene.rows, colour)
    beads = [bead_of(row, scale, scene.plan.pins) for row in scene.rows]
    owned = scene.owned
    known = {member.id for member in scene.members}
    return OwnershipMap(
        colour=colour,
        has_wires=has_wires(len(scene.rows), len(scene.members)),
        streams=len(scene.rows),
        lines=[
            MemberLine(
                member=member,
                beads=[(row.stream, beads[row.stream]) for row in owned[member.id]],
                cells=member_cells(member, owned[member.id]),
            )
            for member in scene.members
        ],
        # also those of a member that has just gone: its claims outlive it for a moment
        nobody=[(stream, bead) for stream, bead in enumerate(beads) if bead.member not in known],
        scale=scale,
        beads=beads,
    )
