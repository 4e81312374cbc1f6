"""The coordinator over an in-memory ZooKeeper: its contract, lost answers and expiries."""

from __future__ import annotations

import asyncio

import pytest
from msgspec.structs import replace

from services.consumer.adapters.zookeeper.coordinator import ZooKeeperCoordinator
from shared.errors import Conflict, ZooKeeperUnavailable
from shared.model.cluster import ClaimNode, MemberNode
from shared.model.group import GroupSettings
from shared.model.names import Names
from tests.coordinator_contract import COUNT, CoordinatorContract, OpenCoordinator, node
from tests.fakes.coordinator import InMemoryCoordinator, ZnodeStore


async def joined(store: ZnodeStore, member: str) -> InMemoryCoordinator:
    coordinator = InMemoryCoordinator(store, member, count=COUNT)
    await coordinator.ensure_group(GroupSettings())
    await coordinator.join(node(coordinator))
    return coordinator


@pytest.fixture
def store() -> ZnodeStore:
    return ZnodeStore()


class TestContract(CoordinatorContract):
    """The contract of all coordinators."""

    @pytest.fixture
    def open_coordinator(self, store: ZnodeStore) -> OpenCoordinator:
        async def open_one(member: str) -> ZooKeeperCoordinator:
            return await joined(store, member)

        return open_one


async def test_a_claim_whose_answer_was_lost_is_won(store: ZnodeStore) -> None:
    """The member reads an unknown outcome back: its own id and ZooKeeper session mean that it won."""
    a = await joined(store, "a")

    a.zookeeper.lose_answers = 1
    epoch = await a.claim(3)

    assert epoch == 1
    assert await a.release(3, 1, 5, None)


async def test_a_claim_whose_request_was_lost_is_not_won(store: ZnodeStore) -> None:
    """A claim counts only if it can be read."""
    a, b = await joined(store, "a"), await joined(store, "b")

    a.zookeeper.lose_requests = 1
    epoch = await a.claim(3)

    assert epoch is None
    assert await b.claim(3) == 1


async def test_a_claim_that_takes_effect_late_shows_in_a_later_view(store: ZnodeStore) -> None:
    """A member can adopt a claim of its current ZooKeeper session that it does not know about."""
    a = await joined(store, "a")

    a.zookeeper.delay_requests = 1
    epoch = await a.claim(3)
    before = await a.view()
    a.zookeeper.deliver_delayed()
    after = await a.view()

    assert epoch is None
    assert before.claims == {}
    assert after.claims == {3: ClaimNode(member="a", epoch=1)}
    assert await a.adopt(3) == 1


async def test_a_release_whose_answer_was_lost_succeeds(store: ZnodeStore) -> None:
    """The node's data prove that this release took effect."""
    a, b = await joined(store, "a"), await joined(store, "b")
    await a.claim(3)

    a.zookeeper.lose_answers = 1
    done = await a.release(3, 1, 5, "b")

    assert done
    assert await b.claim(3) == 2


async def test_a_late_release_fails_after_the_claim_was_adopted_again(store: ZnodeStore) -> None:
    """After an unknown release `adopt` writes the node, so the delayed release fails its version check."""
    a = await joined(store, "a")
    await a.claim(3)

    a.zookeeper.delay_requests = 1
    done = await a.release(3, 1, 5, "b")
    adopted = await a.adopt(3)
    delivered = a.zookeeper.deliver_delayed()

    assert (done, adopted, delivered) == (False, 1, [False])
    assert await a.read_claim(3) == ClaimNode(member="a", epoch=1)


async def test_a_late_release_succeeds_without_an_adoption(store: ZnodeStore) -> None:
    """The counterpart to the test above: without `adopt` the delayed release takes effect."""
    a = await joined(store, "a")
    await a.claim(3)

    a.zookeeper.delay_requests = 1
    await a.release(3, 1, 5, "b")

    assert a.zookeeper.deliver_delayed() == [True]
    assert await a.read_claim(3) is None


async def test_a_member_in_a_new_zookeeper_session_holds_nothing(store: ZnodeStore) -> None:
    """After an expiry its old claims are gone; the streams' nodes still name the last owner."""
    a = await joined(store, "a")
    await a.claim(3)
    old = a.session_id
    assert old is not None

    store.expire(old)
    with pytest.raises(ZooKeeperUnavailable):
        await a.view()
    await a.join(node(a))
    view = await a.view()

    assert a.session_id != old
    assert view.members.keys() == {"a"}
    assert view.claims == {}
    assert (view.node(3).owner, view.node(3).epoch) == ("a", 1)
    assert a.lease_of(3, 1) is None
    assert not await a.release(3, 1, 0, None)
    assert await a.claim(3) == 2
    assert a.lease_of(3, 2) is not None


@pytest.mark.parametrize("steps", range(1, 12))
async def test_a_claim_decided_in_one_zookeeper_session_is_not_made_in_the_next(
    store: ZnodeStore, steps: int
) -> None:
    """Wherever the expiry falls between the reads and the transaction."""
    a, b = await joined(store, "a"), await joined(store, "b")
    claiming = asyncio.ensure_future(a.claim(3))
    for _ in range(steps):
        await asyncio.sleep(0)

    assert a.session_id is not None
    store.expire(a.session_id)
    a.zookeeper.reconnect()
    await asyncio.gather(claiming, return_exceptions=True)

    assert await b.read_claim(3) is None


async def test_ephemerals_of_a_former_process_are_replaced(store: ZnodeStore) -> None:
    """The next process with the same id does not adopt them, but deletes them in its own transactions."""
    former = await joined(store, "a")
    await former.claim(3)

    a = await joined(store, "a")
    view = await a.view()
    read, adopted, claimed = await a.read_claim(3), await a.adopt(3), await a.claim(3)
    assert former.session_id is not None
    store.expire(former.session_id)
    after = await a.view()

    assert view.claims == {}
    assert view.node(3).owner == "a"
    assert (read, adopted, claimed) == (None, None, 2)
    assert after.claims == {3: ClaimNode(member="a", epoch=2)}
    assert after.members.keys() == {"a"}


async def test_a_late_write_of_the_former_process_is_overwritten(store: ZnodeStore) -> None:
    """A process that was killed while it drained does not make its successor drain."""
    former = await joined(store, "a")
    former.zookeeper.delay_requests = 1
    with pytest.raises(ZooKeeperUnavailable):
        await former.join(replace(node(former), state="draining"))

    a, b = await joined(store, "a"), await joined(store, "b")
    await a.view()
    assert former.zookeeper.deliver_delayed() == [True]
    seen, own = await b.view(), await a.view()
    await a.join(node(a))

    assert seen.members["a"].state == "draining"
    assert own.members["a"].state == "active"
    assert (await b.view()).members["a"] == node(a)


async def test_two_live_processes_of_one_id_are_a_conflict(store: ZnodeStore) -> None:
    """The first process finds its node replaced, and raises instead of replacing it in turn."""
    first = await joined(store, "a")
    await first.view()

    await joined(store, "a")
    await first.view()

    with pytest.raises(Conflict):
        await first.join(node(first))


async def test_the_lease_ends_while_disconnected_and_restarts_afterwards(store: ZnodeStore) -> None:
    """Only answered requests extend a lease."""
    now = 100.0
    store.clock = lambda: now
    a = await joined(store, "a")
    assert a.lease is not None
    assert a.lease.left_s(a.now_s()) == 4.5

    now = 101.0
    a.zookeeper.disconnect()
    now = 104.0
    during = a.lease.left_s(a.now_s())
    now = 106.0
    late = a.lease.is_alive(a.now_s())
    a.zookeeper.reconnect()

    assert during == 1.5
    assert not late
    assert a.lease.left_s(a.now_s()) == 4.5
    assert a.session_age_ms == 6000


async def test_an_unchanged_view_costs_no_requests(store: ZnodeStore) -> None:
    """Watches report what to read again, so a quiet group costs nothing."""
    a, b = await joined(store, "a"), await joined(store, "b")
    for stream in range(COUNT):
        await (a if stream % 2 else b).claim(stream)
    before = await a.view()

    calls = a.zookeeper.calls
    after = await a.view()
    quiet = a.zookeeper.calls - calls
    await b.release(0, 1, None, None)
    await a.view()
    one_release = a.zookeeper.calls - calls

    assert after == before
    assert quiet == 0
    assert 0 < one_release <= 12


async def test_a_claim_of_a_stream_in_the_view_is_one_request(store: ZnodeStore) -> None:
    """The view has read the node and its version through the watch, and the claim names that version."""
    a, b = await joined(store, "a"), await joined(store, "b")
    await a.claim(3)
    await b.view()

    await a.release(3, 1, 5, "b")
    view = await b.view()
    calls = b.zookeeper.calls
    epoch = await b.claim(3)
    there_and_back = b.zookeeper.calls - calls

    assert (view.node(3).target, view.node(3).seq) == ("b", 5)
    assert (epoch, there_and_back) == (2, 2)


async def test_a_claim_after_an_unseen_owner_gets_a_new_epoch(store: ZnodeStore) -> None:
    """A third member owned the stream since the view: the version differs, and the znodes decide."""
    a, b, c = [await joined(store, name) for name in "abc"]
    await a.claim(3)
    await a.release(3, 1, 5, "b")
    await b.view()

    assert await c.claim(3) == 2
    assert c.session_id is not None
    store.expire(c.session_id)

    assert await b.claim(3) == 3


@pytest.mark.parametrize("write", ["release", "raise"])
async def test_a_write_that_takes_effect_late_shows_in_the_view(store: ZnodeStore, write: str) -> None:
    """A member watches its own claim only while the outcome of its last write is unknown."""
    a, b = await joined(store, "a"), await joined(store, "b")
    await a.claim(3)
    await a.view()

    a.zookeeper.delay_requests = 1
    if write == "release":
        assert not await a.release(3, 1, 5, None)
    else:
        with pytest.raises(ZooKeeperUnavailable):
            await a.raise_epoch(3, 5)
    await a.view()
    assert a.zookeeper.deliver_delayed() == [True]
    if write == "release":
        await b.claim(3)

    assert (await a.view()).claims == (await b.view()).claims


async def test_a_lost_watch_is_compensated_within_seconds(store: ZnodeStore) -> None:
    """The coordinator reads lists again every 5 s, and the single znodes in slices."""
    now = 0.0
    store.clock = lambda: now
    a, b = await joined(store, "a"), await joined(store, "b")
    await a.view()

    store.watches.clear()
    await b.claim(3)
    await b.join(MemberNode(address="http://b", state="draining"))
    early = await a.view()
    now = 5.0
    late = await a.view()

    assert early.claims == {}
    assert late.claims == {3: ClaimNode(member="b", epoch=1)}
    assert late.members["b"].state == "draining"


async def test_a_failed_read_is_repeated(store: ZnodeStore) -> None:
    """A watch fires only once, so a later view repeats the read if it fails."""
    a, b = await joined(store, "a"), await joined(store, "b")
    await a.claim(3)
    await b.view()

    await a.raise_epoch(3, 41)
    b.zookeeper.disconnect()
    with pytest.raises(ZooKeeperUnavailable):
        await b.view()
    b.zookeeper.reconnect()

    assert (await b.view()).claims == {3: ClaimNode(member="a", epoch=42)}


@pytest.mark.parametrize("slow", ["lists", "claim", "node"])
async def test_a_slow_answer_does_not_undo_a_later_write(store: ZnodeStore, slow: str) -> None:
    """The view shows a stream that this member has just won, whatever an older read returns."""
    names = Names()
    a, b = await joined(store, "a"), await joined(store, "b")
    epoch = await b.claim(3)
    assert epoch is not None
    if slow == "node":
        await b.release(3, epoch, None, None)
    await a.view()
    if slow == "claim":
        await b.raise_epoch(3, 5)
    elif slow == "node":
        await b.claim(3)
        await b.release(3, 2, None, None)
    else:
        await b.claim(4)

    path = {"lists": names.claims("default"), "claim": names.claim("default", 3)}.get(
        slow, names.stream("default", 3)
    )
    answer = a.zookeeper.slow[path] = asyncio.Event()
    async with asyncio.TaskGroup() as tasks, asyncio.timeout(5):
        viewing = tasks.create_task(a.view())
        while path in a.zookeeper.slow:  # noqa: ASYNC110  polled with a deadline
            await asyncio.sleep(0)
        if slow == "claim":
            await b.release(3, 6, None, "a")
        stream = 7 if slow == "lists" else 3
        won = await a.claim(stream)
        answer.set()
    view = viewing.result()

    assert won is not None
    assert view.claims[stream] == ClaimNode(member="a", epoch=won)
    assert stream not in view.nodes
    assert (await a.view()).claims[stream] == view.claims[stream]


async def test_members_that_are_gone_leave_no_watch(store: ZnodeStore) -> None:
    """Ids of members may be new at every start, so watches on them would add up forever."""
    names = Names()
    a = await joined(store, "a")
    for number in range(5):
        other = await joined(store, f"m{number}")
        await a.view()
        assert other.session_id is not None
        store.expire(other.session_id)
        if number % 2:
            await a.view()  # else it is gone before its changed node is read
    await a.view()

    watched = {path for path in store.watches if path.startswith(names.members("default") + "/")}
    assert watched == {names.member("default", "a")}


async def test_a_member_that_goes_between_two_reads_leaves_no_watch(store: ZnodeStore) -> None:
    """The list still names it, and its node is missing."""
    names = Names()
    a, b = await joined(store, "a"), await joined(store, "b")
    answer = a.zookeeper.slow[names.members("default")] = asyncio.Event()
    async with asyncio.TaskGroup() as tasks, asyncio.timeout(5):
        viewing = tasks.create_task(a.view())
        while names.members("default") in a.zookeeper.slow:  # noqa: ASYNC110  polled with a deadline
            await asyncio.sleep(0)
        await b.leave()
        answer.set()

    assert viewing.result().members.keys() == {"a"}
    await a.view()
    assert names.member("default", "b") not in store.watches


async def test_the_claim_of_a_member_that_has_just_joined_counts(store: ZnodeStore) -> None:
    """It is seen before the list shows its holder, so the holder's node is read: it joined first."""
    a, c = await joined(store, "a"), await joined(store, "c")
    await a.claim(3)
    await c.view()
    late = c.zookeeper.slow[Names().members("default")] = asyncio.Event()
    await joined(store, "d")

    viewing = asyncio.create_task(c.view())
    while c.zookeeper.slow:  # noqa: ASYNC110  until the old list is on its way
        await asyncio.sleep(0)
    await a.release(3, 1, 5, None)
    b = await joined(store, "b")
    await b.claim(3)
    late.set()
    view = await viewing

    assert view.claims == {3: ClaimNode(member="b", epoch=2)}


async def test_where_owners_are_not_fenced_no_node_ends_no_claim(store: ZnodeStore) -> None:
    """The weaker deliveries wait for the end of the ZooKeeper session."""
    a, b = [InMemoryCoordinator(store, name, count=COUNT, is_fenced=False) for name in "ab"]
    for one in (a, b):
        await one.ensure_group(GroupSettings())
        await one.join(node(one))
    await a.claim(3)

    await b.end_process("a", node(a))
    views = await a.view(), await b.view()

    assert [view.claims for view in views] == [{3: ClaimNode(member="a", epoch=1)}] * 2
    assert await b.claim(3) is None
    assert not a.is_suspected
