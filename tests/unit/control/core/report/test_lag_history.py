"""A stream's status, its rate and the time that its lag has lasted follow from its last samples."""

from __future__ import annotations

import gc
import random

import pytest

from services.control.core.report.burrow import Sample, Status
from services.control.core.report.lag_history import MOST_OLDER, LagHistory, Trend

WINDOW_MS = 5000


def test_the_history_forgets_what_is_older_than_the_window() -> None:
    """A rewind is reported while it lies within the window."""
    history = LagHistory(WINDOW_MS)

    def observe(at: int, position: int) -> Status:
        sample = Sample(at_ms=at * 1000, position=position, end=100, commit=(1, at))
        return history.observe([(7, sample)])[7].status

    statuses = [observe(at, 50 if at == 0 else 40 + at) for at in range(9)]

    assert statuses[1:6] == ["REWIND"] * 5
    assert statuses[7:] == ["OK"] * 2


def test_the_history_spans_the_window_whatever_the_pace() -> None:
    """Samples that do not divide the window evenly still yield a status when it is over."""
    history = LagHistory(WINDOW_MS)

    statuses = [
        history.observe([(0, Sample(at_ms=n * 700, position=1, end=9, commit=(1, 1)))])[0].status
        for n in range(20)
    ]

    assert statuses.index("STOP") == 8  # 8 × 700 ms is the first time past 5,000
    assert set(statuses[8:]) == {"STOP"}


def test_a_stream_without_a_sample_is_forgotten() -> None:
    """A stream that was gone starts a new history when it returns."""
    history = LagHistory(WINDOW_MS)
    ahead = Sample(at_ms=0, position=50, end=90, commit=(1, 1))
    behind = Sample(at_ms=1000, position=10, end=90, commit=(1, 1))

    history.observe([(0, ahead)])
    history.observe([])
    trends = history.observe([(0, behind)])

    assert trends == {0: Trend(status="OK", rate=None, lag_ms=None)}


def test_a_garbage_collection_looks_at_no_sample() -> None:
    """However many samples there are: no request is answered during a collection."""
    history = LagHistory(WINDOW_MS)

    def tracked_after(times: range, streams: int = 50) -> int:
        for n in times:
            samples = [Sample(at_ms=n * 500, position=n, end=9 * n, commit=(1, n)) for _ in range(streams)]
            history.observe(enumerate(samples))
        gc.collect()
        return len(gc.get_objects())

    few = tracked_after(range(2))
    many = tracked_after(range(2, 10))

    assert many - few < 50


def trends_of(ends: list[int], positions: list[int], step_ms: int = 500) -> list[Trend]:
    """The trends of one stream, sampled every `step_ms`."""
    history = LagHistory(WINDOW_MS)
    return [
        history.observe([(0, Sample(at_ms=n * step_ms, position=position, end=end, commit=(1, n)))])[0]
        for n, (end, position) in enumerate(zip(ends, positions, strict=True))
    ]


@pytest.mark.parametrize("seed", range(20))
def test_the_lag_lasts_as_long_as_the_oldest_waiting_record_has_waited(seed: int) -> None:
    """Over any course of records and commits: as exact as two samples, or as a sixteenth of a long lag."""
    chance, step_ms = random.Random(seed), 500
    ends, positions, written = [0], [0], list[int]()
    for n in range(1, 600):
        arrived = chance.choice((0, 0, 1, 3, 20))
        written += [n] * arrived
        ends.append(ends[-1] + arrived)
        is_commit = chance.random() < (0.3 if seed % 2 else 0.01)
        positions.append(chance.randint(positions[-1], ends[-1]) if is_commit else positions[-1])

    trends = trends_of(ends, positions, step_ms)

    for n, (end, position, trend) in enumerate(zip(ends, positions, trends, strict=True)):
        if end == position:
            assert trend.lag_ms == 0
            continue
        waited_ms = (n - written[position]) * step_ms
        assert trend.lag_ms is not None
        assert abs(trend.lag_ms - waited_ms) <= max(step_ms, waited_ms / 8)


def test_a_lag_of_hours_is_known_from_few_samples() -> None:
    """Memory is bounded, and the time since the last commit is still known to within a sixteenth."""
    steps = 2 * 3600 * 2
    trends = trends_of(list(range(100, 100 + steps)), [100] * steps)

    lasted_ms = [trend.lag_ms or 0 for trend in trends]

    assert all(abs(lag_ms - n * 500) <= max(500, n * 500 / 16) for n, lag_ms in enumerate(lasted_ms))
    assert MOST_OLDER < 100


@pytest.mark.parametrize("samples", [8, 100])
def test_a_lost_log_has_no_past(samples: int) -> None:
    """The ends before the loss are of other records: how long the new ones have waited is unknown."""
    before, after = list(range(0, 3 * samples, 3)), list(range(20, 400, 2))

    trends = trends_of(before + after, [5] * (len(before) + len(after)))

    assert trends[len(before) - 1].lag_ms is not None
    assert {trend.lag_ms for trend in trends[len(before) :]} == {None}


@pytest.mark.parametrize(
    ("ends", "positions", "lag_ms"),
    [
        pytest.param([9], [3], None, id="control has just started"),
        pytest.param([9, 9], [3, 3], None, id="what waits is older than control"),
        pytest.param([9, 9], [3, 9], 0, id="no lag"),
        pytest.param([9, 4], [9, 9], 0, id="the log ends below the position"),
        pytest.param([2, 90, 5, 6], [2, 2, 4, 4], None, id="another log since then"),
        pytest.param([2, 2, 4], [2, 2, 3], 250, id="interpolated between two samples"),
    ],
)
def test_what_nobody_saw_is_unknown(ends: list[int], positions: list[int], lag_ms: int | None) -> None:
    """An unknown lag is None, never 0."""
    assert trends_of(ends, positions)[-1].lag_ms == lag_ms


def test_the_rate_is_what_the_log_gains_over_the_window() -> None:
    """It needs two moments, follows a change within a window, and is unknown where a log became shorter."""
    ends = [n * 5 for n in range(20)] + [95 + n * 50 for n in range(20)]

    rates = [trend.rate for trend in trends_of(ends, [0] * 40)]

    assert rates[0] is None
    assert set(rates[1:20]) == {10.0}
    assert rates[-1] == 100.0
    assert [trend.rate for trend in trends_of([9, 9, 3], [0, 0, 0])] == [None, 0.0, None]
