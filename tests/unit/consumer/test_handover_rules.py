"""When a hint is valid, and what a recipient refuses: each reason alone, with its error."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from services.consumer.core.handover.rules import (
    HandoverLimits,
    Offer,
    Situation,
    check_offer,
    check_sender,
    is_valid,
)
from shared.errors import BatonError, HandoverRefused, NotFound, Unauthorized
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
    group="g", stream=3, epoch=7, donor="donor", position=5, digest="d", sessions=1, bytes=2, why="a reason"
)


def view_with(**members: Any) -> View:
    """The view with other members."""
    return replace(VIEW, members=dict(VIEW.members) | members)


def claimed_by_me(*streams: int) -> View:
    """The view with streams that this member has already."""
    return replace(VIEW, claims=dict(VIEW.claims) | dict.fromkeys(streams, ClaimNode(member="me", epoch=3)))


def test_an_expected_offer_is_accepted() -> None:
    """The plan gives it the stream, the donor owns it, the lease is long: nothing is raised."""
    check_offer(SITUATION, OFFER, LIMITS)


REFUSED: dict[str, tuple[type[BatonError], dict[str, Any], dict[str, Any]]] = {
    "another group": (NotFound, {}, {"group": "other"}),
    "no such stream": (NotFound, {}, {"stream": 4}),
    "a negative stream": (NotFound, {}, {"stream": -1}),
    "a sender that is not registered": (Unauthorized, {}, {"donor": "stranger"}),
    "an epoch that is over": (HandoverRefused, {}, {"epoch": 6}),
    "an epoch to come": (HandoverRefused, {}, {"epoch": 8}),
    "the claim of another": (HandoverRefused, {"view": claimed_by_me(3)}, {}),
    "a stream without an owner": (HandoverRefused, {"view": replace(VIEW, claims={})}, {}),
    "it drains": (
        HandoverRefused,
        {"view": view_with(me=MemberNode(address="", state="draining"))},
        {},
    ),
    "it is still joining": (
        HandoverRefused,
        {"view": view_with(me=MemberNode(address="", state="joining"))},
        {},
    ),
    "it is not in the group": (
        HandoverRefused,
        {"view": replace(VIEW, members={"donor": VIEW.members["donor"]})},
        {},
    ),
    "its lease is short": (HandoverRefused, {"lease_ms": LIMITS.min_lease_ms - 1}, {}),
    "it holds its share": (HandoverRefused, {"view": claimed_by_me(1, 2)}, {"stream": 0}),
    "it has promised its share": (HandoverRefused, {"promised": (1, 2)}, {"stream": 0}),
    "it holds and has promised its share": (
        HandoverRefused,
        {"view": claimed_by_me(1), "promised": (2,)},
        {"stream": 0},
    ),
}


@pytest.mark.parametrize(("error", "situation", "offer"), REFUSED.values(), ids=REFUSED.keys())
def test_an_unexpected_offer_is_refused(
    error: type[BatonError], situation: dict[str, Any], offer: dict[str, Any]
) -> None:
    """Each reason alone is enough, and has the error that tells the donor what to do."""
    with pytest.raises(error) as raised:
        check_offer(replace(SITUATION, **situation), msgspec.structs.replace(OFFER, **offer), LIMITS)

    assert type(raised.value) is error


ACCEPTED: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "planned, though others have not left yet": ({"view": claimed_by_me(0, 1)}, {"stream": 3}),
    "not planned, with room": ({}, {"stream": 0}),
    "promised already: a repeat": ({"promised": (0, 1)}, {"stream": 0}),
    "a lease that just suffices": ({"lease_ms": LIMITS.min_lease_ms}, {}),
    "a donor that drains": ({"view": view_with(donor=MemberNode(address="", state="draining"))}, {}),
}


@pytest.mark.parametrize(("situation", "offer"), ACCEPTED.values(), ids=ACCEPTED.keys())
def test_what_only_looks_like_a_reason_is_none(situation: dict[str, Any], offer: dict[str, Any]) -> None:
    """Plans differ for a moment while views do: who is asked has room, or is meant, and takes it."""
    check_offer(replace(SITUATION, **situation), msgspec.structs.replace(OFFER, **offer), LIMITS)


def test_only_registered_members_are_listened_to() -> None:
    """For every message alike: the group, the stream, the sender."""
    check_sender(SITUATION, "g", 0, "donor")
    for group, stream, sender, error in (
        ("h", 0, "donor", NotFound),
        ("g", 4, "donor", NotFound),
        ("g", 0, "stranger", Unauthorized),
    ):
        with pytest.raises(error):
            check_sender(SITUATION, group, stream, sender)


def test_memory_that_stands_on_the_stored_head_is_valid() -> None:
    """Also with changes that are not committed yet: they go into its next commit."""
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
def test_a_hint_is_invalid_when_the_stored_head_is_any_other(later: dict[str, Any]) -> None:
    """Somebody has committed since: whatever of the head differs, the log tells, not the hint."""
    owner = owner_of(fragment(0, "k"))
    owner.commit()
    stored = msgspec.structs.replace(owner.stream.head, **later)

    assert not is_valid(owner.stream, stored)


def test_memory_is_invalid_after_an_unknown_commit() -> None:
    """Whether it stands in the log or not: what was to be committed is no longer in the memory."""
    owner = owner_of(fragment(0, "k"))
    stored = owner.stream.head
    commit_of(owner.stream)

    assert not is_valid(owner.stream, stored)


def test_memory_in_the_midst_of_a_replay_is_invalid() -> None:
    """It has not caught up with the head that it was loaded from."""
    owner = owner_of(fragment(0, "k"), fragment(1, "k"))
    owner.commit()

    loaded = owner.load()

    assert loaded.assembler.is_replaying
    assert not is_valid(loaded, owner.stream.head)
    loaded.fold(owner.log, 0.0)
    assert is_valid(loaded, owner.stream.head)
