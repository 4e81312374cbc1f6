"""Reads the traces of observed members (`observed_member.py`): when streams advanced and when they paused.

A stream *advances* when a member folds a record that no member has folded before; a replay is not an advance.
All times are ms since the epoch, by the machine's one clock.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path


@dataclass(frozen=True, slots=True, order=True)
class Line:
    """`what` is `fold` (through `offset`) or `stop`."""

    at_ms: float
    member: str
    stream: int
    what: str
    offset: int


def parse_line(text: str) -> Line:
    """A line of a trace.

    >>> parse_line("5.5 m1 3 fold 17").offset
    17
    """
    at_ms, member, stream, what, offset = text.split()
    return Line(float(at_ms), member, int(stream), what, int(offset))


def read_trace(folder: Path) -> list[Line]:
    """The lines of all members in the order of time, without incomplete ones."""
    lines = []
    for path in folder.glob("*.trace"):
        whole, _, _ = path.read_text().rpartition("\n")
        lines += [parse_line(text) for text in whole.splitlines()]
    return sorted(lines)


def advances(lines: list[Line]) -> dict[int, list[Line]]:
    """For each stream the folds that went beyond all earlier ones.

    >>> texts = ["1 a 0 fold 5", "2 b 0 fold 3", "3 b 0 fold 6"]
    >>> [line.at_ms for line in advances([parse_line(text) for text in texts])[0]]
    [1.0, 3.0]
    """
    found: dict[int, list[Line]] = {}
    for line in lines:
        if line.what != "fold":
            continue
        so_far = found.setdefault(line.stream, [])
        if not so_far or line.offset > so_far[-1].offset:
            so_far.append(line)
    return found


def pauses_ms(lines: list[Line], stream: int, since_ms: float = 0.0) -> list[float]:
    """The pause of each change of owner: from the donor's last record or later stop to the first new record.

    >>> texts = ["1 a 0 fold 5", "2 a 0 stop 0", "3 b 0 fold 3", "4.5 b 0 fold 6"]
    >>> pauses_ms([parse_line(text) for text in texts], 0)
    [2.5]
    """
    lines = [line for line in lines if line.stream == stream]
    stops = [line for line in lines if line.what == "stop"]
    found = []
    steps = advances(lines).get(stream, [])
    for before, after in pairwise(steps):
        if before.member == after.member or after.at_ms < since_ms:
            continue
        stopped = [s.at_ms for s in stops if s.member == before.member and s.at_ms < after.at_ms]
        found.append(after.at_ms - max(before.at_ms, *stopped[-1:], 0.0))
    return found


def standstill_ms(lines: list[Line], since_ms: float, until_ms: float) -> float:
    """The longest time between `since_ms` and `until_ms` in which some stream did not advance.

    >>> texts = ["1 a 0 fold 5", "9 b 0 fold 6", "2 a 1 fold 0", "8 b 1 fold 1"]
    >>> standstill_ms([parse_line(text) for text in texts], 1, 10)
    8.0
    """
    longest = 0.0
    for steps in advances(lines).values():
        times = [since_ms, *(step.at_ms for step in steps if since_ms < step.at_ms < until_ms), until_ms]
        longest = max([longest, *(after - before for before, after in pairwise(times))])
    return longest
