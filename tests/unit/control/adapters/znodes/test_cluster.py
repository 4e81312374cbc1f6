"""Control's copy of ZooKeeper is current, and costs almost nothing while nothing changes."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from services.control.adapters.znodes.cluster import RESYNC_S, ZooKeeperCluster
from shared.errors import ZooKeeperUnavailable
from shared.model.cluster import UNREADABLE_CLAIM, ClaimNode, MemberNode, ProducerNode, StreamNode
from shared.model.group import GroupSettings
from shared.model.names import Names
from shared.model.routing import initial_table
from tests.fakes.coordinator import InMemoryZooKeeper, ZnodeStore

NAMES = Names()
STREAMS = 50


class Baton:
    """A Baton in an in-memory ZooKeeper; tests move its clock."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.store = ZnodeStore(clock=lambda: self.now_s)
        self.writer = InMemoryZooKeeper(self.store)
        self.reader = InMemoryZooKeeper(self.store)
        self.source = ZooKeeperCluster(self.reader, NAMES)

    async def fill(self) -> None:
        """One group of two members; m0 owns the even streams."""
        for path in (NAMES.producers, NAMES.groups):
            await self.writer.make_path(path)
        await self.put(NAMES.table, initial_table(STREAMS).encode())
        await self.put(NAMES.producer("p"), ProducerNode(address="http://p"))
        await self.put(NAMES.group("default"), GroupSettings(gap_ms=7))
        for path in (NAMES.members("default"), NAMES.claims("default"), NAMES.streams("default")):
            await self.writer.make_path(path)
        for member in ("m0", "m1"):
            await self.put(NAMES.member("default", member), MemberNode(address=f"http://{member}"))
        for stream in range(0, STREAMS, 2):
            await self.put(NAMES.stream("default", stream), StreamNode(epoch=1, owner="m0"))
            await self.put(NAMES.claim("default", stream), ClaimNode(member="m0", epoch=1))

    async def put(self, path: str, value: msgspec.Struct | bytes) -> None:
        """Creates or writes a znode."""
        data = value if isinstance(value, bytes) else msgspec.json.encode(value)
        if not await self.writer.create(path, data):
            await self.writer.set(path, data)

    async def calls_of_a_read(self) -> int:
        """The number of one-way trips of the next reading."""
        before = self.reader.calls
        await self.source.read()
        return self.reader.calls - before


@pytest.fixture
async def baton() -> Baton:
    baton = Baton()
    await baton.fill()
    return baton


async def test_everything_is_read(baton: Baton) -> None:
    """The table, the producers, and each group's settings, members, claims and nodes."""
    cluster = await baton.source.read()

    group = cluster.groups["default"]
    assert cluster.count == group.view.count == STREAMS
    assert cluster.stream_table == initial_table(STREAMS).encode().decode()
    assert cluster.producers["p"].address == "http://p"
    assert group.settings == GroupSettings(gap_ms=7)
    assert sorted(group.view.members) == ["m0", "m1"]
    assert group.view.streams_of("m0") == list(range(0, STREAMS, 2))
    assert group.view.node(4) == StreamNode(epoch=1, owner="m0")
    assert group.view.node(5).epoch == 0


async def test_a_quiet_cluster_costs_one_request(baton: Baton) -> None:
    """A znode is read again only after its watch has fired."""
    first = await baton.source.read()

    assert await baton.calls_of_a_read() == 2  # there and back
    assert await baton.source.read() is first


async def test_one_change_costs_a_few_requests(baton: Baton) -> None:
    """A claim that changes is read again, the other streams are not."""
    await baton.source.read()

    await baton.put(NAMES.claim("default", 4), ClaimNode(member="m1", epoch=2))
    calls = await baton.calls_of_a_read()

    assert calls <= 6
    cluster = await baton.source.read()
    assert cluster.groups["default"].view.claims[4] == ClaimNode(member="m1", epoch=2)


async def test_creations_changes_and_deletions_are_seen(baton: Baton) -> None:
    """New members, groups and pins appear; released claims and dead producers disappear."""
    await baton.source.read()

    await baton.writer.delete(NAMES.claim("default", 4))
    await baton.writer.delete(NAMES.producer("p"))
    await baton.put(NAMES.member("default", "m2"), MemberNode(address="http://m2"))
    await baton.put(NAMES.group("other"), GroupSettings())
    await baton.put(NAMES.pins("default"), b'{"4": "m1"}')
    cluster = await baton.source.read()
    await baton.put(NAMES.pins("default"), b"{}")
    emptied = await baton.source.read()

    view = cluster.groups["default"].view
    assert 4 not in view.claims
    assert cluster.producers == {}
    assert sorted(view.members) == ["m0", "m1", "m2"]
    assert sorted(cluster.groups) == ["default", "other"]
    assert (view.pins, emptied.groups["default"].view.pins) == ({4: "m1"}, {})


async def test_an_outage_of_zookeeper_is_reported(baton: Baton) -> None:
    """Cached values are never returned as a new reading."""
    await baton.source.read()
    baton.reader.disconnect()

    with pytest.raises(ZooKeeperUnavailable):
        await baton.source.read()

    await baton.put(NAMES.claim("default", 4), ClaimNode(member="m1", epoch=2))
    baton.reader.reconnect()
    cluster = await baton.source.read()
    assert cluster.groups["default"].view.claims[4].member == "m1"


async def test_a_lost_watch_is_repaired(baton: Baton) -> None:
    """Even without any watch, everything is read again every RESYNC_S."""
    await baton.source.read()
    baton.store.watches.clear()
    await baton.put(NAMES.claim("default", 4), ClaimNode(member="m1", epoch=2))

    old = await baton.source.read()
    baton.now_s += RESYNC_S + 1
    new = await baton.source.read()

    assert old.groups["default"].view.claims[4].member == "m0"
    assert new.groups["default"].view.claims[4].member == "m1"


@pytest.mark.parametrize("data", [b"{", b"\xff", b'{"x":' + b"[" * 100_000])
async def test_an_unreadable_znode_hides_only_itself(baton: Baton, data: bytes) -> None:
    """A claim stays somebody's, of the table the last good one stays; anything else is left out."""
    await baton.source.read()
    await baton.put(NAMES.table, data)
    await baton.put(NAMES.claim("default", 4), data)
    await baton.put(NAMES.stream("default", 6), data)
    await baton.put(NAMES.claims("default") + "/odd", b"{}")
    await baton.put(NAMES.claims("default") + "/" + "9" * 5000, b"{}")
    await baton.put(NAMES.group("default"), data)
    await baton.put(NAMES.pins("default"), data)
    await baton.put(NAMES.member("default", "m1"), data)
    await baton.put(NAMES.producer("p"), data)

    cluster = await baton.source.read()

    view = cluster.groups["default"].view
    assert (cluster.count, cluster.producers) == (STREAMS, {})
    assert cluster.stream_table == initial_table(STREAMS).encode().decode()
    assert cluster.groups["default"].settings is None
    assert (list(view.members), view.pins) == (["m0"], {})
    assert view.claims[4] is UNREADABLE_CLAIM
    assert view.streams_of("m0") == [n for n in range(0, STREAMS, 2) if n != 4]
    assert view.node(6) == StreamNode()
    assert baton.source.unreadable_znodes == 7


async def test_an_unreadable_znode_is_logged_once(baton: Baton, caplog: pytest.LogCaptureFixture) -> None:
    """It counts until it is repaired or gone, however often it is read."""
    path = NAMES.claim("default", 4)
    await baton.put(path, b"{")
    for _ in range(3):
        await baton.source.read()
        baton.now_s += RESYNC_S + 1
    during = baton.source.unreadable_znodes
    await baton.writer.delete(path)
    await baton.source.read()

    assert [record.message for record in caplog.records].count("znode unreadable") == 1
    assert (during, baton.source.unreadable_znodes) == (1, 0)


async def test_an_empty_zookeeper_is_an_empty_cluster() -> None:
    """Before anything has started there is nothing to read, which is not a failure."""
    cluster = await Baton().source.read()

    assert (cluster.count, cluster.groups, cluster.producers) == (0, {}, {})


async def test_a_member_that_goes_between_two_reads_leaves_no_watch(baton: Baton) -> None:
    """Ids of members may be new at every start; one that comes back is seen all the same."""
    parent, path = NAMES.members("default"), NAMES.member("default", "m1")
    answer = baton.reader.slow[parent] = asyncio.Event()
    async with asyncio.TaskGroup() as tasks, asyncio.timeout(5):
        reading = tasks.create_task(baton.source.read())
        while parent in baton.reader.slow:  # noqa: ASYNC110  polled with a deadline
            await asyncio.sleep(0)
        await baton.writer.delete(path)
        answer.set()
    await baton.source.read()
    watched = path in baton.store.watches
    await baton.put(path, MemberNode(address="http://m1"))
    after = await baton.source.read()

    assert list(reading.result().groups["default"].view.members) == ["m0"]
    assert not watched
    assert list(after.groups["default"].view.members) == ["m0", "m1"]
