"""What observed members wrote down (`observed_member.py`): when which stream went on, and when it paused.

A stream *advances* when somebody folds a record that nobody had folded before; what is replayed is no
advance. All times are ms since the epoch, of the one clock of the machine.
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
    """The lines of all members, in the order of time; one that is being written is left out."""
    lines = []
    for path in folder.glob("*.trace"):
        whole, _, _ = path.read_text().rpartition("\n")
        lines += [parse_line(text) for text in whole.splitlines()]
    return sorted(lines)


def advances(lines: list[Line]) -> dict[int, list[Line]]:
    """Per stream the folds that went beyond all before.

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
    """For each change of the stream's owner: from the donor's last record, or its stop where that is later,
    to the recipient's first that is new.

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
    """The longest time between these two that any stream did not advance.

    >>> texts = ["1 a 0 fold 5", "9 b 0 fold 6", "2 a 1 fold 0", "8 b 1 fold 1"]
    >>> standstill_ms([parse_line(text) for text in texts], 1, 10)
    8.0
    """
    longest = 0.0
    for steps in advances(lines).values():
        times = [since_ms, *(step.at_ms for step in steps if since_ms < step.at_ms < until_ms), until_ms]
        longest = max([longest, *(after - before for before, after in pairwise(times))])
    return longest
