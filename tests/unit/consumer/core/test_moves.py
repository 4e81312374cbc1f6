"""Which of a member's streams leave: one that must stay holds up none behind it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from services.consumer.core.ownership.dampers import Dampers, OwnershipSettings
from services.consumer.core.ownership.decide import Drop, Effect, HandOver, Release, Running, decide
from shared.model.cluster import ClaimNode, MemberNode, StreamNode, View

ARRIVED = View(
    count=6,
    members={name: MemberNode(address=f"http://{name}") for name in ("me", "b", "c")},
    claims={n: ClaimNode(member="me", epoch=1) for n in range(6)},
)
"""`me` still owns all; the plan gives two streams each to `b` and `c`."""
BEFORE = replace(
    ARRIVED,
    claims={n: claim for n, claim in ARRIVED.claims.items() if n != 2},
    nodes={2: StreamNode(epoch=1, owner="x")},
)
"""`me` has not claimed stream 2 yet, which another member owned."""
READY = {n: Running(epoch=1) for n in range(6)}


def dampers(before: View = ARRIVED) -> Dampers:
    """The memory of `me`, after both views have been seen."""
    memory = Dampers("me", OwnershipSettings(moves_at_once=9))
    memory.observe(before, 0, 60_000)
    memory.observe(ARRIVED, 1_000, 61_000)
    return memory


def leaving(effects: list[Effect]) -> dict[int, str]:
    """The streams that are handed over or released, and how."""
    return {effect.stream: type(effect).__name__ for effect in effects}


def test_streams_in_excess_leave() -> None:
    """The plan is carried out when nothing stands against it."""
    assert leaving(decide(ARRIVED, READY, dampers())) == dict.fromkeys((2, 3, 4, 5), "HandOver")


def test_a_recipient_that_is_held_back_holds_up_no_other() -> None:
    """Streams for the silent member come first in the order, and those for the other still move."""
    memory = dampers()
    memory.note_failed_handover(2, "b", 1_000, silent=True)
    memory.failed_moves.forget((), 1_000)

    effects = decide(ARRIVED, READY, memory)

    assert {effect.target for effect in effects if isinstance(effect, HandOver)} == {"c"}
    assert len(effects) == 2


def test_a_stream_that_is_not_ready_holds_up_no_other() -> None:
    """A replay may take minutes."""
    running = READY | {2: Running(epoch=1, is_ready=False)}

    assert sorted(leaving(decide(ARRIVED, running, dampers()))) == [3, 4, 5]


def test_a_stream_that_rests_holds_up_no_other() -> None:
    """It came from another member a moment ago."""
    assert sorted(leaving(decide(ARRIVED, READY, dampers(BEFORE)))) == [3, 4, 5]


def test_a_member_without_a_share_gives_a_reason_too() -> None:
    """It owns streams, but has not announced itself as active yet."""
    members = dict(ARRIVED.members) | {"me": MemberNode(address="http://me", state="joining")}

    effects = decide(replace(ARRIVED, members=members), READY, dampers())

    assert {effect.why for effect in effects if isinstance(effect, HandOver)} == {"the share of me is 0 of 6"}


@pytest.mark.parametrize("state", ["active", "draining"])
def test_what_cannot_be_copied_is_released_and_the_rest_handed_over(state: str) -> None:
    """Also on the way out of the group, where all streams leave."""
    members = dict(ARRIVED.members) | {"me": MemberNode(address="http://me", state=state)}  # type: ignore[arg-type]
    memory = dampers()
    memory.failed_moves.note(3, 1_000, is_lasting=True)

    effects = decide(replace(ARRIVED, members=members), READY, memory)

    assert [effect.stream for effect in effects if isinstance(effect, Release)] == [3]
    assert len(effects) == (4 if state == "active" else 6)


def test_a_suspected_member_stops_everything_and_starts_nothing() -> None:
    """Others may claim whatever it holds, at any moment; it neither moves, adopts nor claims."""
    view = replace(ARRIVED, members={name: ARRIVED.members[name] for name in "bc"})
    running = {n: READY[n] for n in (0, 1, 2, 3)}  # 4 and 5 would be adopted

    effects = decide(view, running, dampers(), busy=[2], is_suspected=True)

    assert [type(effect) for effect in effects] == [Drop] * 3
    assert [effect.stream for effect in effects] == [0, 1, 3]


def test_copies_side_by_side_are_bounded_in_bytes() -> None:
    """Smaller streams go before one that has no room beside them; it goes when nothing else is under way."""
    memory = Dampers("me", OwnershipSettings(moves_at_once=9, move_bytes_at_once=100))
    memory.observe(ARRIVED, 0, 60_000)
    memory.observe(ARRIVED, 1_000, 61_000)
    running = READY | {n: Running(epoch=1, bytes=size) for n, size in {2: 60, 3: 200, 4: 30, 5: 20}.items()}

    assert sorted(leaving(decide(ARRIVED, running, memory))) == [2, 4]
    assert sorted(leaving(decide(ARRIVED, running, memory, busy={2}))) == [4]
    assert sorted(leaving(decide(ARRIVED, running, memory, busy={2, 4, 5}))) == []
    alone = {n: run for n, run in running.items() if n in (0, 1, 3)}
    assert 3 in leaving(decide(ARRIVED, alone, memory))


def test_an_effect_says_how_many_streams_its_target_still_gets() -> None:
    """By that the recipient knows whether turns of one stream suffice."""
    effects = [effect for effect in decide(ARRIVED, READY, dampers()) if isinstance(effect, HandOver)]
    found = sorted((effect.target, effect.left) for effect in effects)

    assert found == [("b", 1), ("b", 2), ("c", 1), ("c", 2)]
