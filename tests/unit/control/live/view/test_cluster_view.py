"""The view is read in the background and survives failures of its sources."""

from __future__ import annotations

import asyncio
import dataclasses
import time
from collections.abc import Iterable

import pytest

from services.control.core.report.observed import Offsets
from services.control.live.view.cluster_view import ClusterView, UnknownStream
from shared.errors import KafkaUnavailable, ZooKeeperUnavailable
from shared.model.names import DEFAULT_GROUP
from tests.unit.control.sources import Sources, head, small_baton


async def view_of(sources: Sources, *, status_window_s: float = 20.0) -> ClusterView:
    """A view on the sources after one reading of them."""
    view = sources.view(status_window_s=status_window_s)
    await view.step()
    return view


async def test_nothing_is_served_before_it_was_read() -> None:
    """An empty list would mislead: until ZooKeeper and Kafka have been read, the view is unavailable."""
    sources = small_baton()
    sources.offsets.is_down = True
    view = sources.view()

    with pytest.raises(ZooKeeperUnavailable):
        view.served(with_offsets=False)
    await view.step()

    assert len(view.served(with_offsets=False).report.members) == 2
    with pytest.raises(KafkaUnavailable, match="down for the test"):
        view.streams(DEFAULT_GROUP)


async def test_a_log_without_a_leader_hides_no_other() -> None:
    """Of its stream alone the lag is unknown, and its status begins anew when it is back.

    So are position and safe offset, if the group has committed none.
    """
    sources = small_baton()
    view = await view_of(sources)
    sources.offsets.leaderless = {2}
    await view.step()
    away = [(row.lag, row.status) for row in view.streams(DEFAULT_GROUP)]
    sources.offsets.leaderless = {0, 3}
    await view.step()
    begun, unbegun = (view.streams(DEFAULT_GROUP)[stream] for stream in (0, 3))
    sources.offsets.leaderless = set()
    await view.step()
    back = [(row.lag, row.status) for row in view.streams(DEFAULT_GROUP)]

    assert away == [(10, "OK"), (0, "OK"), (None, None), (100, "OK")]
    assert (begun.position, begun.safe_offset) == (90, 80)
    assert (unbegun.position, unbegun.safe_offset, unbegun.lag) == (None, None, None)
    assert back == [(10, "OK"), (0, "OK"), (40, "OK"), (100, "OK")]


async def test_a_failing_source_leaves_its_last_reading() -> None:
    """The last good reading is still served, with its age, and with a complaint that has its time."""
    sources = small_baton()
    view = await view_of(sources)
    read_ms = int(sources.now_s * 1000)

    sources.cluster.is_down = sources.offsets.is_down = True
    sources.now_s += 60
    await view.step()

    assert len(view.streams(DEFAULT_GROUP)) == 4
    assert view.stale_ms() == 60_000
    assert view.unread() == {
        "ZooKeeper cannot be read: ZooKeeper is down for the test": read_ms,
        "Kafka cannot be read: Kafka is down for the test": read_ms,
    }


async def test_readiness_forgives_short_failures_and_past_ones() -> None:
    """A source that was never read is a complaint; one that fails for a moment, or is back, is not."""
    sources = small_baton()
    view = sources.view()
    sources.cluster.is_down = True
    await view.step()
    never_read = view.complaints()

    sources.cluster.is_down = False
    await view.step()
    back = view.complaints()
    sources.offsets.is_down = True
    sources.now_s += 2
    await view.step()

    assert (len(never_read), back, view.complaints()) == (1, [], [])


async def test_what_was_read_but_is_not_served_yet_is_a_complaint(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody who has seen control ready gets a 503 because the view is not composed yet."""
    sources = small_baton()
    view, read = sources.view(), sources.offsets.read

    async def look(count: int, groups: Iterable[str]) -> Offsets:
        """After ZooKeeper was read, before the view is composed."""
        complaints.extend(view.complaints())
        return await read(count, groups)

    complaints: list[str] = []
    monkeypatch.setattr(sources.offsets, "read", look)
    await view.step()

    assert "ZooKeeper cannot be read: no answer yet" in complaints
    assert view.complaints() == []


async def test_control_is_not_ready_while_the_logs_of_new_streams_are_unread() -> None:
    """The pages of a table that has grown are a 503 until Kafka was asked about all of its streams."""
    sources = small_baton()
    view = await view_of(sources)
    ready = view.complaints()

    sources.cluster.cluster = dataclasses.replace(sources.cluster.cluster, count=5)
    await view.look_again()

    with pytest.raises(KafkaUnavailable) as refused:
        view.served()
    assert (ready, view.complaints()) == ([], [refused.value.reason])
    await view.step()
    assert view.complaints() == []


async def test_an_outage_of_kafka_does_not_change_statuses() -> None:
    """Old numbers say nothing about how a stream is doing now."""
    sources = small_baton()
    view = await view_of(sources, status_window_s=5)

    sources.offsets.is_down = True
    for _ in range(20):
        sources.now_s += 1
        await view.step()

    statuses = {row.status for row in view.served().report.streams[DEFAULT_GROUP]}
    assert statuses == {"OK"}


async def test_statuses_follow_from_the_history_of_readings() -> None:
    """A stream without a commit in the whole window is STOP; one that advances is OK."""
    sources = small_baton()
    view = sources.view(status_window_s=5)

    for n in range(7):
        heads = {0: head(90), 2: head(60 + n, seq=n)}
        offsets = dataclasses.replace(sources.offsets.offsets, heads={DEFAULT_GROUP: heads})
        sources.offsets.offsets = offsets
        await view.step()
        sources.now_s += 1

    rows = view.served().report.streams[DEFAULT_GROUP]
    assert [row.status for row in rows] == ["STOP", "STOP", "OK", "STOP"]


async def test_a_source_that_hangs_delays_no_other() -> None:
    """While ZooKeeper hangs, Kafka's offsets are still read."""
    sources = small_baton()
    sources.cluster.is_mute = True
    view = sources.view(refresh_s=0.01)

    running = asyncio.create_task(view.run(), name="view")
    deadline = time.monotonic() + 5
    while sources.offsets.reads < 3:
        assert time.monotonic() < deadline
        await asyncio.sleep(0.01)
    running.cancel()

    assert sources.cluster.reads == 1


async def test_without_a_table_there_are_no_streams() -> None:
    """Before a producer has created the table, the list is empty."""
    view = await view_of(Sources())

    assert view.streams(DEFAULT_GROUP) == []
    with pytest.raises(UnknownStream):
        view.stream(DEFAULT_GROUP, 0)
