"""When an owner may append a tick."""

from __future__ import annotations

import pytest

from services.consumer.core.commits.ticks import QUIET_S, TICK_EVERY_S, Ticks


@pytest.mark.parametrize(
    ("since_record_s", "since_tick_s", "may_come"),
    [
        (QUIET_S, TICK_EVERY_S, True),
        (QUIET_S - 0.25, TICK_EVERY_S, False),
        (QUIET_S, TICK_EVERY_S - 0.25, False),
    ],
)
def test_a_tick_comes_to_a_silent_stream_and_not_too_often(
    since_record_s: float, since_tick_s: float, *, may_come: bool
) -> None:
    """Every group reads it."""
    ticks = Ticks(0.0)
    ticks.last_record_s, ticks.last_tick_s = 100 - since_record_s, 100 - since_tick_s

    assert ticks.may_come(100.0) is may_come
