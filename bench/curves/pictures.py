"""The pictures of the grid: for each curve and number of brokers one SVG file, drawn from stored results.

Text stays text and nothing depends on the time or on chance, so a picture changes only where a value does.
Greys and the two colours (which differ for colour-blind readers too) can be read on white and on black.
"""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import Any, Final

import matplotlib as mpl
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from bench.curves.plan import CURVES, SIDES, TOPICS, WORKS, Curve, Point, Side, Work
from bench.curves.results import Results, points_of

NAMES: Final[dict[Side, str]] = {"baton": "Baton", "aiokafka": "aiokafka"}
COLOURS: Final[dict[Side, str]] = {"baton": "#2a7fd4", "aiokafka": "#d9730d"}
MARKS: Final[dict[Side, str]] = {"baton": "o", "aiokafka": "s"}
SHIFTS: Final[dict[Side, float]] = {"baton": -0.03, "aiokafka": 0.03}
"""Their bars stand side by side."""
STYLES: Final = {24: "-", 288: "--"}
GREY: Final = "#808080"
WORK_NAMES: Final[dict[Work, str]] = {"write": "writing", "read": "reading", "both": "both at once"}
FIGURES: Final = {
    "rate": ("1,000 fragments/s", 1e-3),
    "cpu_us": ("client CPU, µs/fragment", 1.0),
    "latency_ms": ("median latency, ms", 1.0),
}
"""Label and factor of each figure."""
SETTINGS: Final = {
    "svg.hashsalt": "baton",
    "svg.fonttype": "none",
    "font.family": "DejaVu Sans",
    "font.size": 9,
    "text.color": GREY,
    "axes.edgecolor": GREY,
    "axes.labelcolor": GREY,
    "axes.titlecolor": GREY,
    "xtick.color": GREY,
    "ytick.color": GREY,
}


def name_of(curve: Curve, brokers: int) -> str:
    """The file name of a picture."""
    return f"{curve.name}-{brokers}.svg"


def brokers_of(results: Results, curve: Curve) -> list[int]:
    """For which numbers of brokers the curve was measured."""
    return sorted({point.brokers for point in points_of(results.samples) if point.curve == curve.name})


def draw_all(results: Results, folder: Path) -> list[Path]:
    """Draws every curve that has points; the files."""
    drawn = []
    with mpl.rc_context(SETTINGS):  # type: ignore[arg-type]
        for curve in CURVES:
            for brokers in brokers_of(results, curve):
                path = folder / name_of(curve, brokers)
                file = io.StringIO()
                draw(results, curve, brokers).savefig(
                    file, format="svg", transparent=True, metadata=dict.fromkeys(("Date", "Creator"))
                )
                path.write_text(slim(file.getvalue()), encoding="utf-8")
                drawn.append(path)
    return drawn


def slim(svg: str) -> str:
    """The same picture in a third of the bytes: tenths of a point, paths in one line, any sans-serif font.

    >>> slim('<path d="M 1.2345 6 \\nL 7 8.06 \\nz\\n" style="fill: none; x: 1"/>')
    '<path d="M 1.2 6 L 7 8.1 z" style="fill:none;x:1"/>'
    """
    svg = re.sub(r"-?\d+\.\d\d+", lambda found: f"{float(found[0]):.1f}", svg)
    svg = re.sub(r'(?<= d=)"[^"]*"', lambda found: " ".join(found[0].split()).replace(' "', '"'), svg)
    svg = re.sub(r' id="(?![mp][0-9a-f]{10}")[^"]*"', "", svg)  # those that nothing refers to
    svg = re.sub(r'style="[^"]*"', lambda found: re.sub(r"(?<=[:;]) ", "", found[0]), svg)
    return re.sub(r"(?m)^ +", "", svg).replace("'DejaVu Sans'", "sans-serif")


def draw(results: Results, curve: Curve, brokers: int) -> Figure:
    """A column for each kind of work, a row for each figure; medians, with bars from minimum to maximum."""
    figure = Figure(figsize=(9, 5), layout="constrained")
    rows = figure.subplots(len(curve.figures), len(WORKS), sharex=True, squeeze=False)
    for row, name in zip(rows, curve.figures, strict=True):
        label, factor = FIGURES[name]
        for axes, work in zip(row, WORKS, strict=True):
            for topics in TOPICS:
                for side in SIDES:
                    points = [
                        Point(brokers=brokers, topics=topics, curve=curve.name, work=work, value=value)
                        for value in curve.values
                    ]
                    _line(axes, [results.spread(p, side, name) for p in points], side, topics, factor)
            _frame(axes, curve)
        row[0].set_ylabel(label)
    for axes, work in zip(rows[0], WORKS, strict=True):
        axes.set_title(WORK_NAMES[work], fontsize=9)
    plural = "broker" if brokers == 1 else "brokers, replication 3"
    figure.suptitle(f"{curve.title}; {brokers} {plural}", fontsize=10, x=0.01, ha="left")
    figure.supxlabel(curve.x, fontsize=9)
    lines, labels = rows[0][0].get_legend_handles_labels()
    figure.legend(lines, labels, loc="outside upper right", ncols=2, fontsize=8, frameon=False)
    return figure


def _line(axes: Any, spreads: list[Any], side: Side, topics: int, factor: float) -> None:
    """Values that were not measured are left out."""
    found = [(at, spread) for at, spread in enumerate(spreads) if spread is not None]
    if not found:
        return
    axes.errorbar(
        [at + SHIFTS[side] for at, _ in found],
        [spread.median * factor for _, spread in found],
        yerr=[
            [(spread.median - spread.low) * factor for _, spread in found],
            [(spread.high - spread.median) * factor for _, spread in found],
        ],
        label=f"{NAMES[side]}, {topics} topics",
        color=COLOURS[side],
        linestyle=STYLES[topics],
        marker=MARKS[side],
        markersize=4,
        linewidth=1.4,
        elinewidth=0.8,
        clip_on=False,
    )


def _frame(axes: Any, curve: Curve) -> None:
    axes.set_xticks(range(len(curve.values)), [f"{value}" for value in curve.values])
    axes.yaxis.set_major_locator(MaxNLocator(3))
    axes.set_ylim(bottom=0)
    axes.grid(axis="y", color=GREY, alpha=0.25, linewidth=0.5)
    axes.tick_params(bottom=False, left=False)
    axes.spines[["top", "right"]].set_visible(False)
