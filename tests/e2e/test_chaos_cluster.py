"""Chaos on three brokers and three ZooKeeper servers: one of them dies, stands still or is cut off, again and
again, among the faults of services.

`make chaos-cluster` runs both. So many servers are too much for every CI, which has `test_chaos.py` on one
broker, and `test_three_brokers.py`. Topics have three replicas, two of them in step.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from cli.stack.jars.downloads import fetch_jars
from tests.e2e.chaos import Plan, chaos
from tests.e2e.fleet import new_seed
from tests.e2e.stack import left_running

SHORT = Plan(
    fragments=6_000,
    per_s=250,
    rounds=1,
    at_once=1,
    nodes=3,
    is_audited=False,
    faults=(
        "kill Kafka",
        "stop Kafka",
        "kill ZooKeeper",
        "stop ZooKeeper",
        "kill a consumer",
        "suspect a consumer",
        "drain a consumer",
    ),
)
LONG = Plan(fragments=1_080_000, per_s=600, rounds=15, at_once=2, batch=100, nodes=3)


@pytest.mark.parametrize(
    "plan",
    [
        pytest.param(SHORT, id="short", marks=[pytest.mark.soak, pytest.mark.timeout(600)]),
        pytest.param(LONG, id="long", marks=[pytest.mark.soak, pytest.mark.timeout(5400)]),
    ],
)
async def test_chaos_on_a_cluster_loses_and_doubles_nothing(tmp_path: Path, plan: Plan) -> None:
    """Acknowledged fragments are in exactly one session each, in order, whichever server is away."""
    if plan.is_audited:
        fetch_jars("spark", quiet=True)
    try:
        await chaos(tmp_path, new_seed(), plan)
    finally:
        left = left_running(tmp_path)

    assert left == []
