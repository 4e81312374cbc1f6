"""What every coordinator guarantees, run against ZooKeeper (integration) and the in-memory store (unit).

A test module subclasses `CoordinatorContract` and provides the fixture `open_coordinator`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest

from services.consumer.adapters.zookeeper.coordinator import ZooKeeperCoordinator
from shared.errors import InvalidInput, ZooKeeperUnavailable
from shared.model.cluster import UNREADABLE_PAUSE, ClaimNode, MemberNode, PauseNode, StreamNode, View
from shared.model.group import GroupSettings
from shared.model.start import GroupStart
from shared.zookeeper.group_chain import read_chain

COUNT = 13
OpenCoordinator = Callable[[str], Awaitable[ZooKeeperCoordinator]]


async def viewed(
    coordinator: ZooKeeperCoordinator, condition: Callable[[View], bool], timeout_s: float = 10.0
) -> View:
    """The first view that meets the condition; looks again whenever `changed` is set."""
    async with asyncio.timeout(timeout_s):
        while not condition(view := await coordinator.view()):
            await coordinator.changed.wait()
    return view


def node(coordinator: ZooKeeperCoordinator) -> MemberNode:
    return MemberNode(address=f"http://{coordinator.member}")


class CoordinatorContract:
    """The guarantees; `open_coordinator(member)` returns a member that has joined one group of 13 streams."""

    async def test_the_first_members_settings_become_the_groups(
        self, open_coordinator: OpenCoordinator
    ) -> None:
        """A member with other settings is rejected, and the error names every difference."""
        a = await open_coordinator("a")

        await a.ensure_group(GroupSettings())
        with pytest.raises(InvalidInput, match=r"gap_ms: 1 / 1800000, delivery: at_most_once / exactly_once"):
            await a.ensure_group(GroupSettings(gap_ms=1, delivery="at_most_once"))

    async def test_a_member_agrees_with_a_group_that_control_made_where_it_sets_something(
        self, open_coordinator: OpenCoordinator
    ) -> None:
        """In a group with a start, defaults give way to the group's settings; other values are refused."""
        a = await open_coordinator("a")
        znodes, names = a._zookeeper, a._names
        mine = await a.ensure_group(GroupSettings())
        made = GroupSettings(gap_ms=7)
        start = GroupStart(follows="first", offsets={n: n for n in range(13)})
        await znodes.set(names.group(a.group), made.encode())
        await znodes.create(names.start(a.group), start.encode())

        assert mine == GroupSettings()
        assert await a.ensure_group(GroupSettings()) == made
        assert await a.ensure_group(made) == made
        assert await read_chain(znodes, names, a.group) == [start]
        with pytest.raises(InvalidInput, match="gap_ms: 8 / 7"):
            await a.ensure_group(GroupSettings(gap_ms=8))
        # ZooKeeper was reset: a member that has been there before brings the start back
        await znodes.delete(names.start(a.group))
        await a.ensure_group(made, start)
        assert await read_chain(znodes, names, a.group) == [start]

    async def test_a_group_comes_back_with_its_start_or_not_at_all(
        self, open_coordinator: OpenCoordinator, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """ZooKeeper was reset, and is lost again halfway. A member that found the group without its start
        would begin where the logs do."""
        a = await open_coordinator("a")
        znodes, names = a._zookeeper, a._names
        start = GroupStart(follows="first", offsets={n: n for n in range(13)})

        create = znodes.create

        async def fail(path: str, *given: Any, **named: Any) -> bool:
            if path.startswith(names.group("second")):
                raise ZooKeeperUnavailable("it is away")
            return await create(path, *given, **named)

        monkeypatch.setattr(a, "group", "second")
        monkeypatch.setattr(znodes, "create", fail)
        with pytest.raises(ZooKeeperUnavailable):
            await a.ensure_group(GroupSettings(), start)

        assert await znodes.get(names.group("second")) is not None
        assert await read_chain(znodes, names, "second") == [start]

    async def test_members_see_each_other_join_change_and_leave(
        self, open_coordinator: OpenCoordinator
    ) -> None:
        """Every change to a member's node is in the other members' next view, and its claims end with it."""
        a, b = await open_coordinator("a"), await open_coordinator("b")
        await b.claim(3)

        await viewed(a, lambda view: view.members.keys() == {"a", "b"})
        await b.join(MemberNode(address="http://b", state="draining"))
        view = await viewed(a, lambda view: view.members["b"].state == "draining")
        await b.leave()
        after = await viewed(a, lambda view: "b" not in view.members and not view.claims)

        assert view.members["b"].address == "http://b"
        assert after.members == {"a": node(a)}
        assert await a.claim(3) == 2

    async def test_a_pause_is_in_the_next_view(self, open_coordinator: OpenCoordinator) -> None:
        """Members notice that the group is paused and resumed; an unreadable pause pauses all the same."""
        a, b = await open_coordinator("a"), await open_coordinator("b")
        path, znodes = a._names.pause(a.group), a._zookeeper
        before = await b.view()
        await znodes.create(path, b'{"who":"ann","since":7,"reason":"a bad deploy"}')
        paused = await viewed(b, lambda view: view.pause is not None)
        await znodes.set(path, b"[")
        torn = await viewed(b, lambda view: view.pause == UNREADABLE_PAUSE)
        await znodes.delete(path)
        resumed = await viewed(b, lambda view: view.pause is None)

        assert before.pause is resumed.pause is None
        assert paused.pause == PauseNode(who="ann", since=7, reason="a bad deploy")
        assert torn.pins == {}

    async def test_pins_are_in_the_next_view(self, open_coordinator: OpenCoordinator) -> None:
        """Members notice when pins are created, written and deleted; unreadable pins count as no pins."""
        a, b = await open_coordinator("a"), await open_coordinator("b")
        path, znodes = a._names.pins(a.group), a._zookeeper
        before = await b.view()

        await znodes.create(path, b'{"3": "a"}')
        made = await viewed(b, lambda view: bool(view.pins))
        await znodes.set(path, b'{"3": "b", "4": "b"}')
        written = await viewed(b, lambda view: len(view.pins) == 2)
        await znodes.set(path, b'{"3": ')
        torn = await viewed(b, lambda view: not view.pins)
        await znodes.set(path, b'{"5": "a"}')
        await viewed(b, lambda view: bool(view.pins))
        await znodes.delete(path)
        await viewed(b, lambda view: not view.pins)

        assert before.pins == torn.pins == {}
        assert made.pins == {3: "a"}
        assert written.pins == {3: "b", 4: "b"}

    async def test_a_claim_raises_the_epoch_and_all_members_see_it(
        self, open_coordinator: OpenCoordinator
    ) -> None:
        """One member wins the stream; the other one's attempt returns None and changes nothing."""
        a, b = await open_coordinator("a"), await open_coordinator("b")

        first, second = await a.claim(3), await b.claim(3)
        view = await viewed(b, lambda view: 3 in view.claims)

        assert (first, second) == (1, None)
        assert view.claims == {3: ClaimNode(member="a", epoch=1)}
        assert (await a.view()).claims == view.claims
        assert await b.read_claim(3) == ClaimNode(member="a", epoch=1)

    async def test_claiming_a_held_stream_again_returns_the_same_epoch(
        self, open_coordinator: OpenCoordinator
    ) -> None:
        """So a member can repeat a claim whose answer was lost."""
        a = await open_coordinator("a")

        assert [await a.claim(3), await a.claim(3), await a.adopt(3)] == [1, 1, 1]

    async def test_a_release_stores_seq_and_target_and_the_next_claim_clears_them(
        self, open_coordinator: OpenCoordinator
    ) -> None:
        """The node of an unowned stream names its last owner, its final seq and its target."""
        a, b = await open_coordinator("a"), await open_coordinator("b")
        epoch = await a.claim(3)
        assert epoch == 1
        await viewed(b, lambda view: 3 in view.claims)

        assert await a.release(3, epoch, 17, "b")
        view = await viewed(b, lambda view: 3 not in view.claims)
        again = await b.claim(3)
        assert again == 2
        assert await b.release(3, again, None, None)
        last = await viewed(a, lambda view: view.node(3).epoch == 2)

        assert view.node(3) == StreamNode(epoch=1, owner="a", address="http://a", seq=17, target="b")
        assert last.node(3) == StreamNode(epoch=2, owner="b", address="http://b")

    async def test_a_lease_covers_the_claims_that_are_held(self, open_coordinator: OpenCoordinator) -> None:
        """By stream and epoch; never one of another member, of another epoch, or one that was released."""
        a, b = await open_coordinator("a"), await open_coordinator("b")
        await a.claim(3)

        held = a.lease_of(3, 1)
        others = [a.lease_of(3, 2), a.lease_of(4, 1), b.lease_of(3, 1)]
        await a.raise_epoch(3, 6)
        raised = a.lease_of(3, 1), a.lease_of(3, 7)
        await a.release(3, 7, None, None)

        assert held is not None
        assert held.is_alive(a.now_s())
        assert others == [None] * 3
        assert raised[0] is None
        assert raised[1] is not None
        assert a.lease_of(3, 7) is None

    async def test_a_release_of_another_epoch_is_refused(self, open_coordinator: OpenCoordinator) -> None:
        """A release applies only to the claim of its epoch, and only once."""
        a, b = await open_coordinator("a"), await open_coordinator("b")
        await a.claim(3)

        assert not await a.release(3, 2, None, None)
        assert not await b.release(3, 1, None, None)
        assert await a.release(3, 1, None, None)
        assert not await a.release(3, 1, None, None)

    async def test_the_holder_raises_its_epoch_above_that_of_a_head(
        self, open_coordinator: OpenCoordinator
    ) -> None:
        """Only the holder may raise it; the claim then has the new epoch and is released with it."""
        a, b = await open_coordinator("a"), await open_coordinator("b")
        await a.claim(3)
        await viewed(b, lambda view: 3 in view.claims)

        assert await b.raise_epoch(3, 41) is None
        assert await a.raise_epoch(3, 41) == 42

        await viewed(b, lambda view: view.claims[3].epoch == 42)
        assert (await a.view()).claims[3] == ClaimNode(member="a", epoch=42)
        assert await a.release(3, 42, 0, None)
        assert await b.claim(3) == 43

    async def test_the_streams_of_an_ended_process_are_claimed_in_its_stead(
        self, open_coordinator: OpenCoordinator
    ) -> None:
        """Without its node its claims count for nothing, although its ZooKeeper session still holds them; the
        suspect sees that it is one, and can no longer release what another member has claimed.
        """
        a, b, c = [await open_coordinator(name) for name in "abc"]
        await a.view()  # later claims of its own it need not watch
        await a.claim(3)
        await a.claim(4)
        await viewed(b, lambda view: len(view.claims) == 2)
        before = await b.claim(3)

        ended = await b.end_process("a", node(a))
        again = await c.end_process("a", node(a))
        await viewed(a, lambda view: a.is_suspected)
        views = [
            await viewed(one, lambda view: not view.claims and "a" not in view.members) for one in (b, c)
        ]
        won = await b.claim(3)
        seen = await viewed(c, lambda view: 3 in view.claims)
        mine = await viewed(a, lambda view: view.claims.get(3) != ClaimNode(member="a", epoch=1))

        assert (before, ended, again, won) == (None, True, False, 2)
        assert [view.node(3) for view in views] == [StreamNode(epoch=1, owner="a", address="http://a")] * 2
        assert seen.claims == {3: ClaimNode(member="b", epoch=2)}
        assert a.is_suspected
        assert mine.claims[3] == ClaimNode(member="b", epoch=2)
        assert not await a.release(3, 1, 5, None)
        assert await a.adopt(3) is None

    async def test_a_suspect_that_joins_again_keeps_what_nobody_has_claimed(
        self, open_coordinator: OpenCoordinator
    ) -> None:
        """In the same ZooKeeper session and the same epoch; nobody else may claim it any more."""
        a, b = await open_coordinator("a"), await open_coordinator("b")
        await a.claim(3)
        await viewed(b, lambda view: 3 in view.claims)

        await b.end_process("a", node(a))
        await viewed(a, lambda view: a.is_suspected)
        await viewed(b, lambda view: 3 not in view.claims)
        await a.join(node(a))
        view = await viewed(b, lambda view: 3 in view.claims)

        assert not a.is_suspected
        assert view.claims == {3: ClaimNode(member="a", epoch=1)}
        assert (await b.claim(3), await a.adopt(3)) == (None, 1)

    async def test_what_an_earlier_process_of_a_member_has_left_is_free_for_all(
        self, open_coordinator: OpenCoordinator
    ) -> None:
        """A claim counts while its holder has a node in the same ZooKeeper session. A process that restarts
        replaces the node; what it does not claim again, others need not leave to it.
        """
        earlier, b = await open_coordinator("a"), await open_coordinator("b")
        for stream in (3, 4):
            await earlier.claim(stream)
        await viewed(b, lambda view: len(view.claims) == 2)

        a = await open_coordinator("a")
        view = await viewed(b, lambda view: not view.claims)
        won = await asyncio.gather(b.claim(3), a.claim(4))
        views = [await viewed(one, lambda view: len(view.claims) == 2) for one in (a, b)]

        assert list(view.members) == ["a", "b"]
        assert view.node(3) == StreamNode(epoch=1, owner="a", address="http://a")
        assert list(won) == [2, 2]
        assert [view.claims for view in views] == [
            {3: ClaimNode(member="b", epoch=2), 4: ClaimNode(member="a", epoch=2)}
        ] * 2
        assert [await earlier.release(n, 1, 5, None) for n in (3, 4)] == [False, False]

    async def test_only_the_process_that_was_watched_is_ended(
        self, open_coordinator: OpenCoordinator
    ) -> None:
        """A successor has another start; one that drains is the same process."""
        a, b = await open_coordinator("a"), await open_coordinator("b")
        watched = msgspec.structs.replace(node(a), since=1)

        await a.join(msgspec.structs.replace(watched, since=2))
        successor = await b.end_process("a", watched)
        await a.join(msgspec.structs.replace(watched, state="draining"))
        draining = await b.end_process("a", watched)

        assert (successor, draining) == (False, True)

    async def test_all_views_agree_in_the_end(self, open_coordinator: OpenCoordinator) -> None:
        """Members race for all streams: each stream has one winner, and all views show it."""
        members = [await open_coordinator(name) for name in "abcde"]

        epochs = await asyncio.gather(*(m.claim(n) for n in range(COUNT) for m in members))
        views = [await viewed(m, lambda view: len(view.claims) == COUNT) for m in members]

        assert sorted(epoch or 0 for epoch in epochs) == [0] * 4 * COUNT + [1] * COUNT
        assert all(view.claims == views[0].claims for view in views)
