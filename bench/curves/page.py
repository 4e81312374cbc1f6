"""What the grid's results give to `docs/performance.md`: their source and the tables.

How it was measured stands before it, written by hand.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from typing import Final

from bench.curves.plan import CURVES, USUAL_BATCH_KB, Curve, Point, Work, plan
from bench.curves.results import Results, Spread, points_of

BEGIN: Final = "<!-- grid: `make bench-grid` writes from here -->"
END: Final = "<!-- grid: to here -->"
CAUTION: Final = " This is not the whole grid: it shows shapes, no figures to rely on."
WORK_NAMES: Final[dict[Work, str]] = {"write": "writing", "read": "reading", "both": "both at once"}
FIGURE_NAMES: Final = {"rate": "fragments/s", "cpu_us": "CPU", "latency_ms": "latency"}
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
    """The source of the figures, a table (one client of each kind, usual batches), and one for each curve."""
    usual = [point for point in points_of(results.samples) if point.curve == "clients" and point.clients == 1]
    caution = CAUTION if is_partial(results) else ""
    lines = [f"Measured: {results.about}.{caution}", "", HEAD, "| --- " * HEAD.count(" |") + "|"]
    lines += [f"| {' | '.join(_cells(results, point))} |" for point in usual]
    lines += [
        "",
        f"One client of each kind, batches of at most {USUAL_BATCH_KB} kB, as fast as it goes.",
        "",
    ]
    for curve in CURVES:
        lines += [*textwrap.wrap(curve.shows, 120, break_on_hyphens=False), "", *_ratios(results, curve), ""]
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


def _ratios(results: Results, curve: Curve) -> Iterator[str]:
    """The curve as a table of the medians of ratios, a row for each work and number of topics and brokers."""
    columns = [(figure, value) for figure in curve.figures for value in curve.values]
    heads = [
        f"{value}" if n else f"{FIGURE_NAMES[f]}: {value}"
        for f in curve.figures
        for n, value in enumerate(curve.values)
    ]
    yield f"Baton's value over aiokafka's, by {curve.x}:"
    yield ""
    yield f"| work | topics | brokers | {' | '.join(heads)} |"
    yield "| --- " * (3 + len(heads)) + "|"
    points = [point for point in points_of(results.samples) if point.curve == curve.name]
    for brokers, topics, work in dict.fromkeys((point.brokers, point.topics, point.work) for point in points):
        cells = [WORK_NAMES[work], str(topics), str(brokers)]
        for figure, value in columns:
            at = Point(brokers=brokers, topics=topics, curve=curve.name, work=work, value=value)
            ratio = results.ratio(at, figure)
            cells.append(_short(ratio.median) if ratio else "")
        yield f"| {' | '.join(cells)} |"


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
