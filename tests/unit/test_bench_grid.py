"""The grid's plan, its jobs, its stored results, and the page that comes from them."""

from __future__ import annotations

import doctest
from pathlib import Path

import pytest

import bench.curves.page
import bench.curves.work
from bench.curves.page import renew
from bench.curves.plan import BROKERS, CURVES, SIDES, TOPICS, WORKS, Point, order_of, plan
from bench.curves.results import Measured, Results, Sample, read_results, write_results
from bench.curves.work import Tally
from bench.grid import PAGE, RESULTS, jobs_of, measured

POINTS = plan(quick=False)


@pytest.mark.parametrize("module", [bench.curves.page, bench.curves.work])
def test_the_examples_hold(module: object) -> None:
    """An example that does not run misleads."""
    result = doctest.testmod(module)  # type: ignore[arg-type]

    assert result.attempted
    assert not result.failed


def test_the_plan_has_every_curve_for_all_work_topics_and_brokers() -> None:
    """Each point once, and the quick form has the ends of each curve."""
    values = {curve.name: curve.values for curve in CURVES}
    ends = {(name, value) for name, found in values.items() for value in (found[0], found[-1])}
    quick = plan(quick=True)

    assert (
        len(set(POINTS))
        == len(POINTS)
        == len(BROKERS) * len(TOPICS) * len(WORKS) * sum(map(len, values.values()))
    )
    assert set(quick) < set(POINTS)
    assert {(point.curve, point.value) for point in quick} == ends
    assert {order_of(0), order_of(1)} == {SIDES, SIDES[::-1]}


@pytest.mark.parametrize("side", SIDES)
def test_readers_share_the_topics_and_wait_for_every_writer(side: str) -> None:
    """Else a round would count a fragment twice, or never end. What is under measurement is on its side."""
    for point in POINTS:
        topics = [f"t{n}" for n in range(point.topics)]
        writers, readers = jobs_of(point, "baton" if side == "baton" else "aiokafka", "host:1", topics)

        assert [job.topics for job in writers] == [topics] * len(writers)
        assert sorted(t for job in readers for t in job.topics) == (sorted(topics) if readers else [])
        assert {job.writers for job in readers} <= {len(writers)}
        assert {job.side for job in (readers if point.work == "read" else [*writers, *readers])} == {side}
        assert bool(writers) != point.reads_log
        assert bool(readers) == (point.work != "write")


def test_a_fragment_that_is_written_and_read_counts_once_and_costs_both() -> None:
    """The round ends with its last reader; a latency has a meaning only at a steady rate."""
    writers = [Tally(fragments=100, seconds=1.0, cpu_s=0.003, latency_ms=0)]
    readers = [
        Tally(fragments=60, seconds=1.5, cpu_s=0.001, latency_ms=4),
        Tally(fragments=40, seconds=2.0, cpu_s=0.001, latency_ms=6),
    ]
    at = Point(brokers=1, topics=24, curve="clients", work="both", value=2)

    both = measured(at, writers, readers)

    assert both == Measured(rate=50.0, cpu_us=50.0, latency_ms=0.0)


def test_results_are_read_as_they_were_written(tmp_path: Path) -> None:
    """Also without some points; a ratio compares values of the same round."""
    values = {"baton": (2.0, 9.0), "aiokafka": (1.0, 3.0)}
    samples = [
        Sample(point=POINTS[0], side=side, round=n, measured=Measured(rate=value, cpu_us=1.5, latency_ms=0.0))
        for side in SIDES
        for n, value in enumerate(values[side])
    ]
    results = Results(about="a machine", samples=samples)
    write_results(tmp_path / "grid.csv", results)

    found = read_results(tmp_path / "grid.csv")

    assert found == results
    assert found.spread(POINTS[1], "baton", "rate") is None
    ratio = found.ratio(POINTS[0], "rate")
    assert ratio is not None
    assert (ratio.low, ratio.high) == (2.0, 3.0)


def test_the_page_shows_the_stored_results() -> None:
    """Both come from `docs/grid/grid.csv`; `make bench-grid ARGS=--tables` renews the page."""
    page = PAGE.read_text()

    assert page == renew(page, read_results(RESULTS))
