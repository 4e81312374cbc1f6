"""Times of a log that a wrong clock has made."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cli.importing.reading.clocks import DAY_MS, LIKELY_FROM_MS, MOST_HELD, NEIGHBOURS, ClockWatch, Doubt

JUMP_MS = 2_100_000
NOW_MS = 1_763_000_000_000


def judged(times_ms: Sequence[int | None]) -> list[Doubt | None]:
    """The doubt of each record, which come out once and in order."""
    watch: ClockWatch[int] = ClockWatch(JUMP_MS)
    found = [one for number, at in enumerate(times_ms) for one in watch.feed(number, at)]
    found += watch.finish()
    assert [number for number, _ in found] == list(range(len(times_ms)))
    return [doubt for _, doubt in found]


def a_log(count: int = 50, step_ms: int = 1000) -> list[int | None]:
    """The times of a log in order."""
    return [NOW_MS + n * step_ms for n in range(count)]


@pytest.mark.parametrize("at", [0, 1, 25, 49, 50])
def test_a_line_far_ahead_of_those_around_it_is_in_doubt(at: int) -> None:
    """Wherever it is; at the end of the log it takes more than a day, for nothing follows that could tell."""
    times_ms = a_log()
    times_ms.insert(at, NOW_MS + 2 * DAY_MS)

    found = judged(times_ms)

    assert [number for number, doubt in enumerate(found) if doubt] == [at]
    assert found[at] == "ahead"


def test_several_lines_of_a_wrong_clock_are_in_doubt() -> None:
    """Also one after the other, as long as most of the lines that follow are of right ones."""
    times_ms = a_log()
    for at in (10, 11, 12, 20, 21):
        times_ms.insert(at, NOW_MS + DAY_MS + at)

    assert [at for at, doubt in enumerate(judged(times_ms)) if doubt] == [10, 11, 12, 20, 21]


@given(
    st.lists(st.integers(0, 2 * JUMP_MS), max_size=60),
    st.lists(st.integers(-JUMP_MS // 2, JUMP_MS // 2), min_size=60),
)
def test_a_log_in_order_is_never_in_doubt(steps_ms: list[int], shifts_ms: list[int]) -> None:
    """Whatever gaps it has, and if lines come somewhat late."""
    at, times_ms = NOW_MS, []
    for step_ms, shift_ms in zip(steps_ms, shifts_ms, strict=False):
        at += step_ms
        times_ms.append(at + shift_ms)

    assert not any(judged(times_ms))


def test_logs_one_after_the_other_are_not_in_doubt() -> None:
    """The second goes back, and no line is alone."""
    assert not any(judged(a_log() + [at - DAY_MS for at in a_log() if at] + a_log()))


def test_a_time_before_2000_is_in_doubt() -> None:
    """It likely stands for seconds that were read as ms."""
    times_ms = [*a_log(), LIKELY_FROM_MS - 1, *a_log(), LIKELY_FROM_MS]

    assert judged(times_ms) == [*[None] * 50, "early", *[None] * 51]


def test_only_a_jump_holds_records_back_and_not_for_ever() -> None:
    """The others pass at once; lines without a time do not let memory grow."""
    watch: ClockWatch[int] = ClockWatch(JUMP_MS)
    for at in a_log():
        list(watch.feed(0, at))
    held = [len(list(watch.feed(n, NOW_MS + DAY_MS))) for n in range(1, NEIGHBOURS + 3)]
    passed = [len(list(watch.feed(n, NOW_MS + DAY_MS))) for n in range(5)]
    untimed = [
        len(list(watch.feed(0, NOW_MS + 9 * DAY_MS))),
        *(len(list(watch.feed(0, None))) for _ in range(2000)),
    ]

    assert held[:NEIGHBOURS] == [0] * NEIGHBOURS
    assert sum(held) == NEIGHBOURS + 2
    assert passed == [1] * 5
    assert untimed.index(MOST_HELD + 1) == MOST_HELD
