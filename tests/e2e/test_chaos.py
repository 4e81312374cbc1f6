"""Chaos on real servers: whatever dies, stands still or goes mute, the sessions stay those of the log.

`make chaos` runs the long one. Seeded; the seed is printed, and `BATON_TEST_SEED` replays its choices (the
moments still vary).
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from cli.stack.jars.downloads import fetch_jars
from tests.e2e import chaos_update
from tests.e2e.chaos import Plan, chaos
from tests.e2e.chaos_regrown import regrown_logs
from tests.e2e.chaos_update import EARLIER, Update, checkout_of, rolling_update
from tests.e2e.fleet import new_seed
from tests.e2e.stack import left_running

SHORT = Plan(fragments=20_000, per_s=250, rounds=1, at_once=2, is_audited=False)
LONG = Plan(fragments=1_080_000, per_s=730, rounds=21, at_once=2, batch=100)


@pytest.mark.parametrize(
    "plan",
    [
        pytest.param(SHORT, id="short", marks=pytest.mark.timeout(900)),
        pytest.param(LONG, id="long", marks=[pytest.mark.soak, pytest.mark.timeout(3600)]),
    ],
)
async def test_chaos_loses_and_doubles_nothing(tmp_path: Path, plan: Plan) -> None:
    """Acknowledged fragments are in exactly one session each, in order.

    Spark's audit finds no difference after the long run.
    """
    if plan.is_audited:
        fetch_jars("spark", quiet=True)
    try:
        await chaos(tmp_path, new_seed(), plan)
    finally:
        left = left_running(tmp_path)

    assert left == []


@pytest.mark.soak
@pytest.mark.timeout(900)
async def test_logs_that_grew_again_stop_their_streams_until_these_are_started_over(tmp_path: Path) -> None:
    """Nothing goes on silently, no other stream is affected, and no session id comes twice."""
    await regrown_logs(tmp_path, new_seed())


@pytest.mark.parametrize(
    "update",
    [
        pytest.param(chaos_update.SHORT, id="short", marks=pytest.mark.timeout(300)),
        pytest.param(chaos_update.LONG, id="long", marks=[pytest.mark.soak, pytest.mark.timeout(900)]),
    ],
)
async def test_a_rolling_update_loses_and_doubles_nothing(tmp_path: Path, update: Update) -> None:
    """From an earlier commit (`FROM=` names another), service by service, back and forth, under load."""
    commit = os.environ.get("BATON_TEST_FROM") or EARLIER
    earlier = tmp_path / "earlier"
    if not checkout_of(commit, earlier):
        pytest.skip(f"this clone does not have the commit {commit} to update from: git fetch --unshallow")
    if update.has_audit:
        fetch_jars("spark", quiet=True)
    await rolling_update(tmp_path, new_seed(), earlier, update)
