"""What a member does about a znode that it cannot read: it goes on, and the damage harms only the znode."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace

import pytest

from services.consumer.member.metrics import ConsumerMetrics
from shared.errors import ZooKeeperUnavailable
from shared.model.cluster import UNREADABLE_CLAIM, ClaimNode, StreamNode
from shared.model.group import GroupSettings
from shared.model.names import Names
from tests.coordinator_contract import COUNT, node
from tests.fakes.coordinator import InMemoryCoordinator, ZnodeStore
from tests.fakes.virtual_time import virtual_time
from tests.unit.consumer.group_world import GroupWorld
from tests.unit.consumer.stream_world import LONG

NAMES = Names()
DEEP = b'{"member":"a","address":"","x":' + b"[" * 100_000
DAMAGES = [
    b"",
    b"{",
    b"null",
    b"\xff",
    b'{"member":"\xff","address":"\xff","owner":"\xff"}',
    b'{"member":1,"address":1,"owner":1}',
    DEEP,
]
NUMBERS = [b"-1", b"18446744073709551616", b"9" * 5000, b'"7"']


@pytest.fixture
def store() -> ZnodeStore:
    return ZnodeStore()


async def joined(store: ZnodeStore, member: str) -> InMemoryCoordinator:
    coordinator = InMemoryCoordinator(store, member, count=COUNT)
    await coordinator.ensure_group(GroupSettings())
    await coordinator.join(node(coordinator))
    return coordinator


def damage(store: ZnodeStore, path: str, data: bytes = b"{") -> None:
    """Overwrites a znode as an operator or a bug might; ephemerals stay their owner's, and watches fire."""
    old = store.znodes[path]
    store.znodes[path] = replace(old, data=data, version=old.version + 1)
    for watch in store.watches.pop(path, ()):
        watch(path)


@pytest.mark.parametrize("data", [*DAMAGES, *(b'{"address":"","pid":' + number + b"}" for number in NUMBERS)])
async def test_an_unreadable_member_counts_for_nothing(store: ZnodeStore, data: bytes) -> None:
    """The others see the group without it; it writes its own node anew."""
    a, b = await joined(store, "a"), await joined(store, "b")
    await a.view()

    damage(store, NAMES.member("default", "b"), data)
    during, unreadable = await a.view(), a.unreadable_znodes
    await b.view()
    await b.join(node(b))
    after = await a.view()

    assert (list(during.members), unreadable) == (["a"], 1)
    assert (after.members, a.unreadable_znodes) == ({"a": node(a), "b": node(b)}, 0)


@pytest.mark.parametrize(
    "data", [*DAMAGES, *(b'{"member":"a","epoch":' + number + b"}" for number in NUMBERS)]
)
async def test_an_unreadable_claim_stays_somebodys(store: ZnodeStore, data: bytes) -> None:
    """No other member claims the stream, and its owner keeps it and can release it."""
    a, b = await joined(store, "a"), await joined(store, "b")
    await a.view()
    await a.claim(3)
    await b.view()

    damage(store, NAMES.claim("default", 3), data)
    seen, won, read = await b.view(), await b.claim(3), await b.read_claim(3)
    own = await a.view()
    released = await a.release(3, 1, 5, "b")
    after = await b.view()

    assert (seen.claims, won, read) == ({3: UNREADABLE_CLAIM}, None, UNREADABLE_CLAIM)
    assert own.claims == {3: ClaimNode(member="a", epoch=1)}
    assert released
    assert (after.claims, await b.claim(3)) == ({}, 2)
    assert b.unreadable_znodes == 0


async def test_an_owner_confirms_its_unreadable_claim_and_writes_it_anew(store: ZnodeStore) -> None:
    """Its epoch stands in the stream's node, which every claim writes in the same transaction."""
    a, b = await joined(store, "a"), await joined(store, "b")
    await a.claim(3)
    await a.raise_epoch(3, 6)

    damage(store, NAMES.claim("default", 3))
    read, adopted = await a.read_claim(3), await a.adopt(3)

    assert (read, adopted) == (ClaimNode(member="a", epoch=7), 7)
    assert (await b.view()).claims == {3: ClaimNode(member="a", epoch=7)}


@pytest.mark.parametrize("data", [*DAMAGES, *(b'{"epoch":' + number + b"}" for number in NUMBERS)])
async def test_a_stream_with_an_unreadable_node_counts_as_never_owned(store: ZnodeStore, data: bytes) -> None:
    """A claim writes the node anew; opening the stream raises the epoch above the stored head's."""
    a, b = await joined(store, "a"), await joined(store, "b")
    await a.claim(3)
    await a.release(3, 1, 5, "b")

    damage(store, NAMES.stream("default", 3), data)
    view, won = await b.view(), await b.claim(3)

    assert (view.node(3), won) == (StreamNode(), 1)
    assert b.unreadable_znodes == 0
    assert await b.raise_epoch(3, 4) == 5


async def test_a_claim_finds_znodes_that_became_unreadable_after_the_view(store: ZnodeStore) -> None:
    """Before the first view nothing is known, so the claim reads both znodes."""
    a, b = await joined(store, "a"), await joined(store, "b")
    for stream in (3, 4):
        await a.claim(stream)
    await a.release(4, 1, None, None)

    damage(store, NAMES.claim("default", 3))
    damage(store, NAMES.stream("default", 4))

    assert await b.claim(3) is None
    assert await b.claim(4) == 1


async def test_unreadable_settings_of_the_group_are_waited_for(store: ZnodeStore) -> None:
    """They are neither another group's settings nor missing: nobody overwrites them, and nobody crashes."""
    a = await joined(store, "a")

    damage(store, NAMES.group("default"), b"nonsense")
    with pytest.raises(ZooKeeperUnavailable, match="unreadable"):
        await a.ensure_group(GroupSettings())

    assert store.znodes[NAMES.group("default")].data == b"nonsense"


@pytest.mark.parametrize("name", ["9" * 5000, "odd", "03", "\u0663", "-3", str(COUNT)])
async def test_znodes_that_name_no_stream_are_ignored(store: ZnodeStore, name: str) -> None:
    """Only the canonical number of an existing stream counts."""
    a = await joined(store, "a")
    for parent in (NAMES.claims("default"), NAMES.streams("default")):
        await a.zookeeper.create(f"{parent}/{name}", b"{")

    view = await a.view()

    assert (view.claims, view.nodes) == ({}, {})


async def test_an_unreadable_znode_is_logged_once(
    store: ZnodeStore, caplog: pytest.LogCaptureFixture
) -> None:
    """However often it is read; a different damage is a new message."""
    now = 0.0
    store.clock = lambda: now
    a, b = await joined(store, "a"), await joined(store, "b")
    await b.claim(3)

    def logged() -> int:
        return sum(record.message == "znode unreadable" for record in caplog.records)

    with caplog.at_level(logging.WARNING):
        for path in (NAMES.member("default", "b"), NAMES.claim("default", 3)):
            damage(store, path)
        await a.zookeeper.create(NAMES.pins("default"), b"{")
        for _ in range(5):
            await a.view()
            now += 6
        first = logged()
        damage(store, NAMES.pins("default"), b"[")
        await a.view()

    assert (first, logged(), a.unreadable_znodes) == (3, 4, 3)


async def test_an_unreadable_znode_that_is_gone_no_longer_counts(store: ZnodeStore) -> None:
    """Deleting it is one way to repair it."""
    a, b = await joined(store, "a"), await joined(store, "b")
    await b.claim(3)
    await a.zookeeper.create(NAMES.pins("default"), b"{")
    for path in (NAMES.member("default", "b"), NAMES.claim("default", 3)):
        damage(store, path)
    await a.view()
    before = a.unreadable_znodes

    await a.zookeeper.delete(NAMES.pins("default"))
    assert b.session_id is not None
    store.expire(b.session_id)
    await a.view()

    assert (before, a.unreadable_znodes) == (3, 0)


@virtual_time
async def test_a_group_outlives_unreadable_znodes() -> None:
    """Members keep their streams, a stream that nobody owns is claimed anew, and no session is lost."""
    world = GroupWorld(LONG, 4)
    one, two = await world.join("a"), await world.join("b")
    await world.settled()
    for stream in range(4):
        world.emit("k", stream=stream)
    await world.committed()
    shares = one.running, two.running

    damage(world.store, NAMES.member("default", "b"))
    for stream in range(4):
        damage(world.store, NAMES.claim("default", stream))
        damage(world.store, NAMES.stream("default", stream))
    damage(world.store, NAMES.group("default"))
    await asyncio.sleep(60)
    during = one.running, two.running
    metrics = ConsumerMetrics([two.member]).registry
    unreadable = metrics.get_sample_value("baton_unreadable_znodes")
    world.store.expire(await world.kill("a"))
    await world.settled()
    for stream in range(4):
        world.emit("k", stream=stream, end=True)
    await world.committed()

    assert during == shares
    assert unreadable == 4
    assert world.rows() == world.expected()
    await world.end()
