"""The bounds of the hint store, and its behaviour before its member has joined.

The rules of copies, deltas and bundles are in tests/scenarios/handover.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from services.consumer.core import slices
from services.consumer.core.commits.turn import StreamLimits
from services.consumer.core.handover.rules import (
    BundleRequest,
    Completion,
    HandoverLimits,
    Offer,
    completion_of,
    offer_of,
)
from services.consumer.core.handover.sent import SentCopy, copying, taking_delta
from services.consumer.core.slices import at_once
from services.consumer.handover.hints import HintStore
from shared.errors import BundleRejected, HandoverRefused, NotFound
from shared.service.signing import digest_of
from tests.logs import SETTINGS, commit_of, fragment, owner_of
from tests.unit.consumer.core.test_bundle import state_of
from tests.unit.consumer.core.test_handover_rules import SITUATION

STREAM = 3


class HintWorld:
    """A recipient's hint store, and a donor that runs stream 3 in epoch 7."""

    def __init__(self, **limits: Any) -> None:
        self.now_s = 0.0
        self.has_joined = True
        self.hint_store = HintStore(
            settings=SETTINGS,
            stream_limits=StreamLimits(),
            limits=HandoverLimits(**limits),
            now_s=lambda: self.now_s,
            situation=lambda: (
                replace(SITUATION, promised=self.hint_store.promised) if self.has_joined else None
            ),
        )
        self.donor = owner_of(fragment(0, "k", 100), fragment(1, "other"))
        self.donor.commit()
        self.donor.stream.stream = STREAM

    def read(self, *keys: str) -> None:
        """The donor folds one more fragment for each key."""
        at = self.donor.stream.position
        self.donor.stream.fold([fragment(at + n, key) for n, key in enumerate(keys)], 0.0)

    def copy(self, stream: int = STREAM) -> tuple[Offer, bytes, SentCopy]:
        """A first copy of the donor's stream as it stands, labelled as stream `stream`."""
        self.donor.stream.stream = stream
        body, base = at_once(copying(self.donor.stream))
        offer = offer_of(base, epoch=7, donor="donor", recipient="recipient", why="a reason")
        self.donor.stream.stream = STREAM
        return offer, body, base

    def delta(self, offer: Offer, base: SentCopy) -> tuple[Completion, bytes]:
        """The delta from a copy to the donor's stream as it stands."""
        body = at_once(taking_delta(self.donor.stream, base))
        return completion_of(offer, digest_of(body), copy_ms=1.0, stopped_at_ms=5), body


def test_a_member_that_has_not_joined_refuses_everything() -> None:
    """Without a view there is nothing to check a message against."""
    world = HintWorld()
    world.has_joined = False
    offer, copy, base = world.copy()
    request = BundleRequest(group="g", stream=STREAM, epoch=1, seq=1, member="donor", recipient="recipient")

    for call in (
        lambda: at_once(world.hint_store.receiving_copy(offer, copy)),
        lambda: at_once(world.hint_store.receiving_delta(*world.delta(offer, base))),
        lambda: at_once(world.hint_store.giving(request)),
    ):
        with pytest.raises(HandoverRefused, match="not joined"):
            call()


def test_an_unreadable_body_is_rejected_even_with_the_right_digest() -> None:
    """The store keeps nothing of it."""
    world = HintWorld()
    offer, _, base = world.copy()
    garbage = replace(base, digest=digest_of(b"garbage"))

    with pytest.raises(BundleRejected):
        at_once(
            world.hint_store.receiving_copy(
                offer_of(garbage, epoch=7, donor="donor", recipient="recipient", why=offer.why), b"garbage"
            )
        )

    assert world.hint_store.promised == set()


def test_bodies_are_bounded() -> None:
    """Each on its own and all held ones together; a copy that is being replaced does not count."""
    world = HintWorld(max_body_bytes=350, max_held_bytes=450)
    first, copy, base = world.copy()
    assert 225 < len(copy) <= 350
    at_once(world.hint_store.receiving_copy(first, copy))
    at_once(world.hint_store.receiving_copy(first, copy))

    with pytest.raises(HandoverRefused):
        at_once(world.hint_store.receiving_copy(*world.copy(stream=2)[:2]))
    world.read(*(f"key number {n}" for n in range(9)))
    with pytest.raises(BundleRejected):
        at_once(world.hint_store.receiving_copy(*world.copy()[:2]))
    with pytest.raises(BundleRejected):
        at_once(world.hint_store.receiving_delta(*world.delta(first, base)))

    assert world.hint_store.promised == {STREAM}


def test_a_complete_hint_counts_its_copy_and_its_delta() -> None:
    """Until a worker takes the hint."""
    world = HintWorld(max_held_bytes=650)
    offer, copy, base = world.copy()
    at_once(world.hint_store.receiving_copy(offer, copy))
    completion, delta = world.delta(offer, base)
    assert len(copy) <= 650 - len(copy) < len(copy) + len(delta)
    at_once(world.hint_store.receiving_delta(completion, delta))

    with pytest.raises(HandoverRefused, match=f"beside the {len(copy) + len(delta)} that are held"):
        at_once(world.hint_store.receiving_copy(*world.copy(stream=2)[:2]))

    world.hint_store.take(STREAM)
    at_once(world.hint_store.receiving_copy(*world.copy(stream=2)[:2]))


def test_a_hint_equals_the_donors_stream_in_every_field() -> None:
    """Including uncommitted changes, whether it arrived as copy and delta or was fetched whole."""
    world = HintWorld()
    offer, copy, base = world.copy()
    at_once(world.hint_store.receiving_copy(offer, copy))
    world.read("k", "new")
    at_once(world.hint_store.receiving_delta(*world.delta(offer, base)))
    head = world.donor.stream.head

    (handed,) = world.hint_store.take(STREAM)
    world.hint_store.keep(world.donor.stream)
    request = BundleRequest(
        group="g", stream=STREAM, epoch=head.epoch, seq=head.seq, member="donor", recipient="recipient"
    )
    fetched = at_once(world.hint_store.opening_fetched(STREAM, at_once(world.hint_store.giving(request))))

    assert fetched.has_changes
    assert state_of(handed.state) == state_of(fetched) == state_of(world.donor.stream)
    assert [hint.state for hint in world.hint_store.take(STREAM)] == [world.donor.stream]


def in_a_commit(world: HintWorld) -> None:
    """A commit has begun whose outcome is unknown."""
    world.read("k")
    commit_of(world.donor.stream)


def in_a_replay(world: HintWorld) -> None:
    """The stream was loaded, and its replay has not caught up."""
    world.donor.stream = world.donor.load()
    world.donor.stream.stream = STREAM


@pytest.mark.parametrize("spoil", [in_a_commit, in_a_replay], ids=lambda spoil: spoil.__name__)
def test_a_stream_without_valid_memory_is_not_kept(spoil: Callable[[HintWorld], None]) -> None:
    """Older memory of that stream is dropped, too."""
    world = HintWorld()
    world.hint_store.keep(world.donor.stream)

    spoil(world)
    world.hint_store.keep(world.donor.stream)

    assert world.hint_store.take(STREAM) == []


def test_a_bundle_is_not_given_once_its_member_goes_on_with_the_stream(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Between two slices the member may claim the stream again, and change it."""
    monkeypatch.setattr(slices, "SLICE", 1)
    world = HintWorld()
    world.hint_store.keep(world.donor.stream)
    head = world.donor.stream.head
    request = BundleRequest(
        group="g", stream=STREAM, epoch=head.epoch, seq=head.seq, member="donor", recipient="recipient"
    )
    giving = world.hint_store.giving(request)

    next(giving)
    world.hint_store.take(STREAM)

    with pytest.raises(NotFound):
        at_once(giving)


def test_a_delta_counts_for_nothing_if_its_donor_has_lost_the_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    """Anything may have happened between two slices."""
    monkeypatch.setattr(slices, "SLICE", 1)
    world = HintWorld()
    offer, copy, base = world.copy()
    at_once(world.hint_store.receiving_copy(offer, copy))
    receiving = world.hint_store.receiving_delta(*world.delta(offer, base))

    next(receiving)
    world.has_joined = False

    with pytest.raises(HandoverRefused):
        at_once(receiving)
    assert not world.hint_store.expects
