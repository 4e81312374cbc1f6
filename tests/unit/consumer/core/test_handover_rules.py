"""When a hint is valid, and the refusals that tests/scenarios/handover does not cover."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from services.consumer.core.handover.rules import (
    Completion,
    HandoverLimits,
    Offer,
    Situation,
    check_offer,
    completion_of,
    extends,
    is_valid,
    offer_of,
)
from services.consumer.core.handover.sent import copying
from services.consumer.core.slices import at_once
from shared.errors import BatonError, HandoverRefused, NotFound
from shared.model.cluster import ClaimNode, MemberNode, View
from shared.model.head import Counts
from tests.logs import commit_of, fragment, owner_of

LIMITS = HandoverLimits()
VIEW = View(
    count=4,
    members={"donor": MemberNode(address="http://donor"), "me": MemberNode(address="http://me")},
    claims={n: ClaimNode(member="donor", epoch=7) for n in range(4)},
)
SITUATION = Situation(
    group="g",
    member="me",
    view=VIEW,
    planned={0: "donor", 1: "donor", 2: "me", 3: "me"},
    quota=2,
    promised=(),
    lease_ms=4000,
)
OFFER = Offer(
    group="g",
    stream=3,
    epoch=7,
    donor="donor",
    recipient="me",
    digest="d",
    why="a reason",
    left=1,
    within_ms=0,
)


def view_with(**members: Any) -> View:
    """The view with these members added or replaced."""
    return replace(VIEW, members=dict(VIEW.members) | members)


def claimed_by_me(*streams: int) -> View:
    """The view in which this member already owns these streams."""
    return replace(VIEW, claims=dict(VIEW.claims) | dict.fromkeys(streams, ClaimNode(member="me", epoch=3)))


FULL = HandoverRefused("the share of me is full: it holds or has promised 2 streams")
REFUSED: dict[str, tuple[BatonError, dict[str, Any], dict[str, Any]]] = {
    "a negative stream": (NotFound("there is no stream -1"), {}, {"stream": -1}),
    "a future epoch": (
        HandoverRefused("epoch 8 of donor is stale: donor owns stream 3 in epoch 7"),
        {},
        {"epoch": 8},
    ),
    "another member's claim": (
        HandoverRefused("epoch 7 of donor is stale: me owns stream 3 in epoch 3"),
        {"view": claimed_by_me(3)},
        {},
    ),
    "a stream without an owner": (
        HandoverRefused("epoch 7 of donor is stale: it has no owner"),
        {"view": replace(VIEW, claims={})},
        {},
    ),
    "this member is not in the group": (
        HandoverRefused("me has not joined"),
        {"view": replace(VIEW, members={"donor": VIEW.members["donor"]})},
        {},
    ),
    "this member holds its share": (FULL, {"view": claimed_by_me(1, 2)}, {"stream": 0}),
    "this member has promised its share": (FULL, {"promised": (1, 2)}, {"stream": 0}),
    "this member's share is partly held, partly promised": (
        FULL,
        {"view": claimed_by_me(1), "promised": (2,)},
        {"stream": 0},
    ),
}


@pytest.mark.parametrize(("error", "situation", "offer"), REFUSED.values(), ids=REFUSED.keys())
def test_an_unexpected_offer_is_refused(
    error: BatonError, situation: dict[str, Any], offer: dict[str, Any]
) -> None:
    """Each reason alone suffices, and raises the error that the donor acts on."""
    with pytest.raises(type(error)) as raised:
        check_offer(replace(SITUATION, **situation), msgspec.structs.replace(OFFER, **offer), LIMITS)

    assert (type(raised.value), raised.value.detail) == (type(error), error.detail)


ACCEPTED: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "planned, though others have not left yet": ({"view": claimed_by_me(0, 1)}, {"stream": 3}),
    "not planned, with room": ({}, {"stream": 0}),
    "already promised: a repeat": ({"promised": (0, 1)}, {"stream": 0}),
    "a lease that just suffices": ({"lease_ms": LIMITS.min_lease_ms}, {}),
    "a donor that drains": ({"view": view_with(donor=MemberNode(address="", state="draining"))}, {}),
}


@pytest.mark.parametrize(("situation", "offer"), ACCEPTED.values(), ids=ACCEPTED.keys())
def test_an_offer_that_only_looks_wrong_is_accepted(situation: dict[str, Any], offer: dict[str, Any]) -> None:
    """Plans may differ as long as views do; it suffices that the recipient has room or its plan names it."""
    check_offer(replace(SITUATION, **situation), msgspec.structs.replace(OFFER, **offer), LIMITS)


def test_a_completion_repeats_what_was_offered() -> None:
    """Both ends, the epoch and the copy's digest; it adds its own, and how long the copy took."""
    base = at_once(copying(owner_of(fragment(0, "k")).stream))[1]

    offer = offer_of(base, epoch=7, donor="donor", recipient="me", why="a reason", left=3, within_ms=20_000)
    completion = completion_of(offer, "of the delta", copy_ms=1.26, stopped_at_ms=2)

    assert offer == Offer(
        group="g",
        stream=0,
        epoch=7,
        donor="donor",
        recipient="me",
        digest=base.digest,
        why="a reason",
        left=3,
        within_ms=20_000,
    )
    assert completion == Completion(
        group="g",
        stream=0,
        epoch=7,
        donor="donor",
        recipient="me",
        base_digest=base.digest,
        digest="of the delta",
        copy_ms=1.3,
        stopped_at_ms=2,
    )
    assert extends(completion, offer)


def test_memory_that_stands_on_the_stored_head_is_valid() -> None:
    """Even with uncommitted changes, which go into the next commit."""
    owner = owner_of(fragment(0, "k"))
    owner.commit()
    stored = owner.stream.head
    owner.stream.fold([fragment(1, "k")], 0.0)

    assert owner.stream.has_changes
    assert is_valid(owner.stream, stored)


@pytest.mark.parametrize(
    "later",
    [{"epoch": 2}, {"seq": 2}, {"position": 2}, {"safe_offset": 1}, {"counts": Counts(fragments=9)}],
    ids=lambda changes: next(iter(changes)),
)
def test_a_hint_is_invalid_if_the_stored_head_differs(later: dict[str, Any]) -> None:
    """Another owner has committed since: if any field of the head differs, the stream is replayed."""
    owner = owner_of(fragment(0, "k"))
    owner.commit()
    stored = msgspec.structs.replace(owner.stream.head, **later)

    assert not is_valid(owner.stream, stored)


def test_memory_is_invalid_after_an_unknown_commit() -> None:
    """Whether it took effect or not, memory no longer holds what the commit wrote."""
    owner = owner_of(fragment(0, "k"))
    stored = owner.stream.head
    commit_of(owner.stream)

    assert not is_valid(owner.stream, stored)


def test_memory_is_invalid_during_a_replay() -> None:
    """During a replay, memory has not caught up with the head that it was loaded from."""
    owner = owner_of(fragment(0, "k"), fragment(1, "k"))
    owner.commit()

    loaded = owner.load()

    assert loaded.assembler.is_replaying
    assert not is_valid(loaded, owner.stream.head)
    loaded.fold(owner.log, 0.0)
    assert is_valid(loaded, owner.stream.head)
