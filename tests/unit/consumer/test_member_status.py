"""What a member reports: `/status` and metrics, in the shapes that control and Prometheus read."""

from __future__ import annotations

import asyncio

from services.consumer.member.metrics import ConsumerMetrics
from services.consumer.member.status import Rates, member_status
from shared.model.cluster import MemberNode
from tests.fakes.virtual_time import virtual_time
from tests.unit.consumer.group_world import TIMEOUT_S, GroupWorld, settled_group
from tests.unit.consumer.stream_world import LONG


@virtual_time
async def test_the_status_of_a_member_has_the_agreed_shape() -> None:
    """Control reads identity, lease, rates, and one row per stream."""
    world = GroupWorld(LONG, 2)
    one = await world.join("a")
    node = MemberNode(address="http://a", pid=7, since=8)
    rates = Rates(asyncio.get_running_loop().time)
    before = member_status([], "a", "default", node, rates)
    await world.settled()
    member_status([one.member], "a", "default", node, rates)
    await asyncio.sleep(6)
    member_status([one.member], "a", "default", node, rates)
    for _ in range(60):
        world.emit("k", data="x" * 70)
    await asyncio.sleep(6)

    status = member_status([one.member], "a", "default", node, rates)

    assert (before["state"], before["lease_ms"], before["streams"]) == ("joining", 0, [])
    assert {"id": "a", "group": "default", "address": "http://a", "pid": 7, "since": 8}.items() <= (
        status.items()
    )
    assert (status["state"], status["zookeeper_session"]) == ("active", hex(one.session_id))
    assert 0 < status["lease_ms"] <= status["lease_length_ms"] <= TIMEOUT_S * 1000
    assert before["lease_length_ms"] is None
    assert [row["stream"] for row in status["streams"]] == [0, 1]
    assert 9 <= status["rates"]["fragments_per_s"] <= 10.1
    await world.end()


@virtual_time
async def test_the_metrics_of_a_member_are_totals_of_its_streams() -> None:
    """Every name begins with `baton_`, and counters include what earlier owners counted."""
    world = await settled_group(2, "a")
    world.emit("k", end=True)
    await world.committed()
    await world.stop("a")
    one = await world.join("b")
    await world.settled()
    world.emit("k", stream=1)
    await world.committed()

    metrics = ConsumerMetrics([one.member]).registry

    assert metrics.get_sample_value("baton_fragments_total") == 2
    assert metrics.get_sample_value("baton_sessions_total") == 1
    assert metrics.get_sample_value("baton_streams") == 2
    assert metrics.get_sample_value("baton_open_sessions") == 1
    assert metrics.get_sample_value("baton_lag") == 0
    assert all(metric.name.startswith("baton_") for metric in metrics.collect())
    await world.end()
