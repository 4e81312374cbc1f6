"""The desk: what comes late, twice, or wrong changes nothing; what is given is exactly what was asked for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from services.consumer.core.commits.stream import StreamLimits
from services.consumer.core.handover.bundle import SentCopy, take_copy, take_delta
from services.consumer.core.handover.rules import Completion, HandoverLimits, Offer, BundleRequest
from services.consumer.handover.hints import HintStore
from shared.errors import BatonError, BundleRejected, HandoverRefused, NotFound, Unauthorized
from shared.service.signing import digest_of
from tests.logs import SETTINGS, Owner, commit_of, fragment, owner_of
from tests.unit.consumer.test_bundle import state_of
from tests.unit.consumer.test_handover_rules import SITUATION

STREAM, EPOCH = 3, 7


class DeskWorld:
    """A recipient's desk, and a donor that runs stream 3 in epoch 7."""

    def __init__(self, **limits: Any) -> None:
        self.now_s = 0.0
        self.here = SITUATION
        self.expected = 0
        self.hint_store = HintStore(
            settings=SETTINGS,
            stream_limits=StreamLimits(),
            limits=HandoverLimits(**limits),
            now_s=lambda: self.now_s,
            situation=lambda: replace(self.here, promised=self.hint_store.promised),
            on_expected=self.expect,
        )
        self.donor = owner_of(fragment(0, "k", 100), fragment(1, "other"))
        self.donor.commit()

    def expect(self, completion: Completion) -> None:
        self.expected += 1

    def read(self, *keys: str) -> None:
        """The donor reads on."""
        at = self.donor.stream.position
        self.donor.stream.fold([fragment(at + n, key) for n, key in enumerate(keys)], 0.0)

    def offer(self, stream: int = STREAM, **changes: Any) -> tuple[Offer, bytes, SentCopy]:
        """A first copy of the donor's stream as it stands."""
        body, sent = take_copy(self.donor.stream)
        offer = Offer(
            group="g",
            stream=stream,
            epoch=EPOCH,
            donor="donor",
            position=sent.position,
            digest=sent.digest,
            sessions=2,
            bytes=100,
            why="a reason",
        )
        return msgspec.structs.replace(offer, **changes), body, sent

    def completion(self, sent: SentCopy, **changes: Any) -> tuple[Completion, bytes]:
        """The delta on a copy, of the donor's stream as it stands, all of it committed."""
        stream = self.donor.stream
        if stream.has_changes:
            self.donor.commit()
        body = take_delta(stream, sent)
        completion = Completion(
            group="g",
            stream=STREAM,
            epoch=EPOCH,
            donor="donor",
            head_epoch=stream.head.epoch,
            seq=stream.head.seq,
            base_position=sent.position,
            base_digest=sent.digest,
            position=stream.position,
            digest=digest_of(body),
            why="a reason",
            copy_ms=1.0,
            stopped_at_ms=5,
        )
        return msgspec.structs.replace(completion, **changes), body

    def hand_over(self) -> tuple[tuple[Offer, bytes], tuple[Completion, bytes]]:
        """Copy, then delta; the messages."""
        offer, copy, sent = self.offer()
        self.hint_store.receive_copy(offer, copy)
        self.read("k", "new")
        completion, delta = self.completion(sent)
        self.hint_store.receive_delta(completion, delta)
        return (offer, copy), (completion, delta)

    def held(self) -> str:
        """What the desk holds, in its own words."""
        return repr(self.hint_store)

    def arrives(self) -> bool:
        """Whether the desk gives one hint for the stream, and it is the donor's stream as it stopped."""
        hints = self.hint_store.take(STREAM)
        return [state_of(hint.state) for hint in hints] == [state_of(self.donor.stream)]


def test_copy_and_delta_make_a_hint() -> None:
    """The release is expected from then on; the hint is taken once, and is then gone from the desk."""
    world = DeskWorld()

    _, (completion, _) = world.hand_over()

    assert world.hint_store.expects
    assert (world.expected, world.hint_store.promised) == (1, {STREAM})
    (hint,) = world.hint_store.take(STREAM)
    assert state_of(hint.state) == state_of(world.donor.stream)
    assert hint.completion == completion
    assert world.hint_store.take(STREAM) == []
    assert not world.hint_store.expects


def test_a_copy_that_comes_twice_is_held_once() -> None:
    """A retry on its way: the delta still finds what it extends."""
    world = DeskWorld()
    offer, copy, sent = world.offer()

    world.hint_store.receive_copy(offer, copy)
    world.hint_store.receive_copy(offer, copy)

    world.hint_store.receive_delta(*world.completion(sent))
    assert world.arrives()


def test_a_delta_that_comes_twice_is_accepted_twice() -> None:
    """The donor did not hear the first answer; the second says the same."""
    world = DeskWorld()
    _, (completion, delta) = world.hand_over()

    world.hint_store.receive_delta(completion, delta)

    assert world.expected == 1
    assert world.arrives()


def test_a_copy_that_comes_late_does_not_undo_the_delta() -> None:
    """Neither the very same one, nor one of before it that was sent first and lost its way."""
    world = DeskWorld()
    earlier, earlier_copy, _ = world.offer()
    world.read("k")
    (offer, copy), _ = world.hand_over()

    world.hint_store.receive_copy(offer, copy)
    world.hint_store.receive_copy(earlier, earlier_copy)

    assert world.arrives()


def test_a_new_copy_replaces_what_was_handed() -> None:
    """The donor went on after a handover that failed: what it hands now is what counts."""
    world = DeskWorld()
    world.hand_over()
    world.read("k")

    world.hand_over()

    assert world.arrives()


def test_a_newer_copy_replaces_an_older_one() -> None:
    """Then a delta on the older one is refused."""
    world = DeskWorld()
    offer, copy, older = world.offer()
    world.hint_store.receive_copy(offer, copy)
    world.read("k")
    offer, copy, newer = world.offer()
    world.hint_store.receive_copy(offer, copy)

    with pytest.raises(HandoverRefused):
        world.hint_store.receive_delta(*world.completion(older))
    world.hint_store.receive_delta(*world.completion(newer))

    assert world.arrives()


WRONG_DELTAS: dict[str, tuple[type[BatonError], dict[str, Any]]] = {
    "another base": (HandoverRefused, {"base_digest": "x"}),
    "another base position": (HandoverRefused, {"base_position": 0}),
    "another donor": (Unauthorized, {"donor": "stranger"}),
    "a registered donor that does not own it": (HandoverRefused, {"donor": "me"}),
    "another epoch": (HandoverRefused, {"epoch": EPOCH - 1}),
    "another stream": (HandoverRefused, {"stream": 2}),
    "no such stream": (NotFound, {"stream": 9}),
    "another group": (NotFound, {"group": "other"}),
    "another digest": (HandoverRefused, {"digest": "x"}),
}


@pytest.mark.parametrize(("error", "changes"), WRONG_DELTAS.values(), ids=WRONG_DELTAS.keys())
def test_a_wrong_delta_has_no_effect(error: type[BatonError], changes: dict[str, Any]) -> None:
    """It is refused with its error, and the right one is still accepted."""
    world = DeskWorld()
    offer, copy, sent = world.offer()
    world.hint_store.receive_copy(offer, copy)
    completion, delta = world.completion(sent)
    before = world.held()

    with pytest.raises(error) as raised:
        world.hint_store.receive_delta(msgspec.structs.replace(completion, **changes), delta)

    assert type(raised.value) is error
    assert (world.held(), world.expected) == (before, 0)
    world.hint_store.receive_delta(completion, delta)
    assert world.arrives()


@pytest.mark.parametrize("changes", [{"seq": 9}, {"head_epoch": 9}, {"position": 9}], ids=str)
def test_a_delta_whose_head_is_another_makes_no_hint(changes: dict[str, Any]) -> None:
    """The copy is used up by then; the donor goes on, and begins anew."""
    world = DeskWorld()
    offer, copy, sent = world.offer()
    world.hint_store.receive_copy(offer, copy)
    completion, delta = world.completion(sent)

    with pytest.raises(HandoverRefused):
        world.hint_store.receive_delta(msgspec.structs.replace(completion, **changes), delta)

    assert (world.hint_store.take(STREAM), world.expected) == ([], 0)


WRONG_COPIES: dict[str, tuple[type[BatonError], dict[str, Any]]] = {
    "another donor": (Unauthorized, {"donor": "stranger"}),
    "another epoch": (HandoverRefused, {"epoch": 6}),
    "no such stream": (NotFound, {"stream": 4}),
    "another group": (NotFound, {"group": "other"}),
    "another digest": (HandoverRefused, {"digest": "x"}),
    "another position": (HandoverRefused, {"position": 1}),
}


@pytest.mark.parametrize(("error", "changes"), WRONG_COPIES.values(), ids=WRONG_COPIES.keys())
def test_a_wrong_copy_has_no_effect(error: type[BatonError], changes: dict[str, Any]) -> None:
    """Nothing is held or promised, and what was handed before stays."""
    world = DeskWorld()
    world.hand_over()
    before = world.held()
    world.read("k")
    offer, copy, _ = world.offer(**changes)

    with pytest.raises(error) as raised:
        world.hint_store.receive_copy(offer, copy)

    assert type(raised.value) is error
    assert world.held() == before


def test_who_has_not_joined_refuses_everything() -> None:
    """Without a view there is nothing to judge by."""
    world = DeskWorld()
    hint_store = HintStore(
        settings=SETTINGS,
        stream_limits=StreamLimits(),
        limits=HandoverLimits(),
        now_s=lambda: 0.0,
        situation=lambda: None,
    )
    offer, copy, sent = world.offer()
    completion, delta = world.completion(sent)

    for call in (
        lambda: hint_store.receive_copy(offer, copy),
        lambda: hint_store.receive_delta(completion, delta),
        lambda: hint_store.give(wanted(world.donor)),
    ):
        with pytest.raises(HandoverRefused):
            call()


def test_unreadable_bodies_are_rejected_without_effect() -> None:
    """Though their digests are right."""
    world = DeskWorld()
    offer, _, _ = world.offer(digest=digest_of(b"garbage"))

    with pytest.raises(BundleRejected):
        world.hint_store.receive_copy(offer, b"garbage")

    assert world.hint_store.promised == set()


def test_bodies_are_bounded() -> None:
    """One that is too large alone, or beside the others that are held; what is replaced does not count."""
    world = DeskWorld(max_body_bytes=350, max_held_bytes=450)
    first, copy, sent = world.offer()
    assert 225 < len(copy) <= 350
    world.hint_store.receive_copy(first, copy)
    world.hint_store.receive_copy(first, copy)

    with pytest.raises(BundleRejected):
        world.hint_store.receive_copy(*world.offer(stream=2)[:2])
    world.read(*(f"key number {n}" for n in range(9)))
    with pytest.raises(BundleRejected):
        world.hint_store.receive_copy(*world.offer()[:2])
    with pytest.raises(BundleRejected):
        world.hint_store.receive_delta(*world.completion(sent))

    assert world.hint_store.promised == {STREAM}


def test_what_is_held_grows_old() -> None:
    """A copy, a hint and one's own memory are dropped after `hold_s`: whoever needs them then replays."""
    world = DeskWorld(hold_s=30.0)
    offer, copy, sent = world.offer()
    world.hint_store.receive_copy(offer, copy)
    world.now_s = 30.1
    with pytest.raises(HandoverRefused):
        world.hint_store.receive_delta(*world.completion(sent))
    world.hand_over()
    keep(world)

    world.now_s = 60.0
    held = world.held()
    world.now_s = 60.2

    assert held == "<HintStore 0 promised, 1 handed, 1 own>"
    assert world.hint_store.take(STREAM) == []
    assert world.held() == "<HintStore 0 promised, 0 handed, 0 own>"


def test_only_exactly_the_frozen_head_is_given() -> None:
    """Epoch and seq as asked for, to a registered member: the whole bundle; else there is none."""
    world = DeskWorld()
    keep(world)
    right = wanted(world.donor)

    given = world.hint_store.give(right)

    assert state_of(world.hint_store.open_fetched(STREAM, given)) == state_of(world.donor.stream)
    for error, changes in (
        (NotFound, {"seq": right.seq + 1}),
        (NotFound, {"epoch": right.epoch + 1}),
        (NotFound, {"stream": 2}),
        (NotFound, {"group": "other"}),
        (Unauthorized, {"member": "stranger"}),
    ):
        with pytest.raises(error):
            world.hint_store.give(msgspec.structs.replace(right, **changes))


def test_memory_is_given_with_what_was_not_committed() -> None:
    """Whoever asks for the head that it stands on makes that commit; the member keeps it for itself too."""
    world = DeskWorld()
    world.read("k")
    keep(world)

    given = world.hint_store.give(wanted(world.donor))

    found = world.hint_store.open_fetched(STREAM, given)
    assert found.has_changes
    assert state_of(found) == state_of(world.donor.stream)
    (own,) = world.hint_store.take(STREAM)
    assert own.state is world.donor.stream
    assert own.completion is None


def no_memory(world: DeskWorld) -> None:
    """A commit whose outcome is unknown."""
    world.read("k")
    commit_of(world.donor.stream)


def in_a_replay(world: DeskWorld) -> None:
    """A stream that was loaded and has not caught up."""
    world.donor.stream = world.donor.load()


@pytest.mark.parametrize("spoil", [no_memory, in_a_replay], ids=lambda spoil: spoil.__name__)
def test_what_is_no_memory_is_not_kept(spoil: Callable[[DeskWorld], None]) -> None:
    """And it takes the place of what was: that is older."""
    world = DeskWorld()
    keep(world)

    spoil(world)
    keep(world)

    assert world.hint_store.take(STREAM) == []


def test_what_was_handed_is_tried_before_ones_own_memory() -> None:
    """Both may be held: a stream that came back. The stored head judges either."""
    world = DeskWorld()
    keep(world)
    world.hand_over()

    hints = world.hint_store.take(STREAM)

    assert [hint.completion is not None for hint in hints] == [True, False]


def test_a_stream_that_another_has_claimed_is_not_waited_for() -> None:
    """What was handed of it is forgotten; one's own memory may still be asked for."""
    world = DeskWorld()
    world.hand_over()
    keep(world)

    world.hint_store.withdraw(STREAM)

    assert not world.hint_store.expects
    assert world.held() == "<HintStore 0 promised, 0 handed, 1 own>"


def keep(world: DeskWorld) -> None:
    """The desk remembers the donor's stream as its own member's."""
    world.donor.stream.stream = STREAM
    world.hint_store.keep(world.donor.stream)


def wanted(owner: Owner) -> BundleRequest:
    """What a recipient asks for that has read the head of the owner's stream."""
    head = owner.stream.head
    return BundleRequest(group="g", stream=STREAM, epoch=head.epoch, seq=head.seq, member="donor")
