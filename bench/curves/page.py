"""What the grid's results give to `docs/performance.md`: their source, a table, and the pictures.

How it was measured stands before it, written by hand.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from typing import Final

from bench.curves.pictures import WORK_NAMES, brokers_of, name_of
from bench.curves.plan import CURVES, USUAL_BATCH_KB, Point, plan
from bench.curves.results import Results, Spread, points_of

BEGIN: Final = "<!-- grid: `make bench-grid` writes from here -->"
END: Final = "<!-- grid: to here -->"
CAUTION: Final = " This is not the whole grid: it shows shapes, no figures to rely on."
HEAD: Final = (
    "| work | topics | brokers | fragments/s: Baton | aiokafka | ratio "
    "| CPU, µs/fragment: Baton | aiokafka | ratio |"
)


def renew(page: str, results: Results) -> str:
    """The page with the results between its two marks. Raises ValueError if it has no marks."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the page has no {BEGIN} … {END}")
    return f"{before}{BEGIN}\n\n{shown(results)}\n{END}{after}"


def shown(results: Results) -> str:
    """The source of the figures, the table (one client of each kind, the usual batch), and the pictures."""
    usual = [point for point in points_of(results.samples) if point.curve == "clients" and point.clients == 1]
    caution = CAUTION if is_partial(results) else ""
    lines = [f"Measured: {results.about}.{caution}", "", HEAD, "| --- " * HEAD.count(" |") + "|"]
    lines += [f"| {' | '.join(_cells(results, point))} |" for point in usual]
    lines += [
        "",
        f"One client of each kind, batches of at most {USUAL_BATCH_KB} kB, as fast as it goes. All values:",
    ]
    lines += ["[grid/grid.csv](grid/grid.csv).", ""]
    for curve in CURVES:
        pictures = [
            f"![{curve.title}; brokers: {brokers}](grid/{name_of(curve, brokers)})"
            for brokers in brokers_of(results, curve)
        ]
        lines += [*textwrap.wrap(curve.shows, 120, break_on_hyphens=False), "", *pictures, ""]
    return "\n".join(lines)


def is_partial(results: Results) -> bool:
    """Whether points are missing, as in the quick form."""
    return len(points_of(results.samples)) < len(plan(quick=False))


def _cells(results: Results, point: Point) -> Iterator[str]:
    yield from (WORK_NAMES[point.work], str(point.topics), str(point.brokers))
    for figure in ("rate", "cpu_us"):
        for side in ("baton", "aiokafka"):
            yield _cell(results.spread(point, side, figure))
        yield _cell(results.ratio(point, figure))


def _cell(spread: Spread | None) -> str:
    if spread is None:
        return ""
    median, low, high = (_short(value) for value in (spread.median, spread.low, spread.high))
    return f"{median} ({low} … {high})"


def _short(value: float) -> str:
    """Three digits.

    >>> _short(123456.0), _short(12.345), _short(0.5)
    ('123,000', '12.3', '0.5')
    """
    return f"{float(f'{value:.3g}'):,.10g}"
