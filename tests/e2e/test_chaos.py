"""Chaos on real servers: whatever dies, stands still or goes mute, the sessions stay those of the log.

`make chaos` runs the long one. Seeded; the seed is printed, and `BATON_TEST_SEED` replays its choices (the
moments still vary).
"""

from __future__ import annotations

from pathlib import Path

import pytest

from cli.stack.jars import fetch_jars
from tests.e2e.chaos import Plan, chaos
from tests.e2e.fleet import new_seed
from tests.e2e.stack import left_running

SHORT = Plan(fragments=20_000, per_s=250, rounds=1, at_once=1)
LONG = Plan(fragments=200_000, per_s=500, rounds=4, at_once=2)


@pytest.mark.parametrize(
    "plan",
    [
        pytest.param(SHORT, id="short", marks=pytest.mark.timeout(900)),
        pytest.param(LONG, id="long", marks=[pytest.mark.soak, pytest.mark.timeout(3600)]),
    ],
)
async def test_chaos_loses_and_doubles_nothing(tmp_path: Path, plan: Plan) -> None:
    """Acknowledged fragments are in exactly one session each, in order; Spark's audit finds no difference."""
    fetch_jars("spark", quiet=True)
    try:
        await chaos(tmp_path, new_seed(), plan)
    finally:
        left = left_running(tmp_path)

    assert left == []
