"""Which columns of a table fit a terminal, and how wide each of them is. It never shortens a cell.

A number, id or time that is cut looks like another one, so a column without room is left out as a whole and
named below the table. Only prose wraps, at its blanks. Pure; `cli/terminal/output.py` measures and prints.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from rich.cells import cell_len

LONGEST_WORD = 24
"""Characters of a word in prose that stay together: a narrow column may fold longer ones, such as URLs."""
BETWEEN = 3
"""Characters that a table takes between two columns."""
MARGIN = 2
"""Characters that a table takes beside its columns."""

Cell = str | Callable[[Mapping[str, Any]], Any]
"""The dotted path of a cell in a JSON object, or a function of that object."""


class Column(NamedTuple):
    """Where a column's cells come from, and what happens to it in a narrow terminal.

    The column with the highest rank is left out first, and among equals the rightmost.
    """

    cell: Cell
    rank: int = 0
    is_prose: bool = False


class Measured(NamedTuple):
    """A column's rank, its width without wrapping (`full`), and the width that breaks no word (`least`)."""

    rank: int
    full: int
    least: int


class Layout(NamedTuple):
    """The width of each column, and the columns that are left out (the width of those says nothing)."""

    widths: list[int]
    left_out: set[int]


def lay_out(columns: Sequence[Measured], width: int) -> Layout:
    """The columns that fit into `width` characters; the first always stays, even when it does not fit.

    >>> lay_out([Measured(0, 6, 6), Measured(2, 9, 9), Measured(1, 30, 12)], 40)
    Layout(widths=[6, 9, 17], left_out=set())
    >>> lay_out([Measured(0, 6, 6), Measured(2, 9, 9), Measured(1, 30, 12)], 30).left_out
    {1}
    """
    shown = list(range(len(columns)))
    # the first names the row, so it is never left out
    while len(shown) > 1 and _needed([columns[n].least for n in shown]) > width:
        shown.remove(max(shown[1:], key=lambda n: (columns[n].rank, n)))
    spare = max(0, width - _needed([columns[n].least for n in shown]))
    widths = [column.least for column in columns]
    for n in shown:
        more = min(spare, columns[n].full - columns[n].least)
        widths[n] += more
        spare -= more
    return Layout(widths, set(range(len(columns))) - set(shown))


def least_width(text: str) -> int:
    """The width below which prose would break a word of up to LONGEST_WORD characters.

    >>> least_width("stream 7 has no owner"), least_width("http://a.example/a/long/address")
    (6, 24)
    """
    return min(LONGEST_WORD, max(map(cell_len, text.split()), default=0))


def _needed(widths: Sequence[int]) -> int:
    return sum(widths) + BETWEEN * (len(widths) - 1) + MARGIN
