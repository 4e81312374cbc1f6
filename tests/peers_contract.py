"""What all `Peers` promise, run against HTTP on real sockets and against the in-memory twin.

A test module subclasses `PeersContract` and gives the fixture `pair`: two members, their hint stores, and the
peers of each. The donor is `a`, which owns stream 1 in epoch 7; the recipient is `b`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec
import pytest

from services.consumer.core.commits.checkpoint import Checkpoint
from services.consumer.core.commits.stream import Stream, StreamLimits
from services.consumer.core.handover.bundle import SentCopy, take_copy, take_delta
from services.consumer.core.handover.rules import (
    BundleRequest,
    Completion,
    HandoverLimits,
    Offer,
    Situation,
    completion_of,
    offer_of,
)
from services.consumer.handover.hints import HintStore
from services.consumer.ports import Peers
from shared.errors import HandoverRefused, PeerUnavailable
from shared.model.cluster import ClaimNode, MemberNode, View
from shared.model.group import GroupSettings
from shared.model.head import Head
from tests.logs import commit_of
from tests.reference import Rec

EPOCH = 7
STREAM = 1
MAX_BODY_BYTES = 64 * 1024 * 1024


@dataclass(slots=True)
class End:
    """One member: its hint store, and what it checks offers against, which a test may change."""

    situation: Situation | None
    hint_store: HintStore

    @property
    def holds(self) -> tuple[set[int], bool]:
        """All that a message can have changed here."""
        return set(self.hint_store.promised), self.hint_store.expects


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """Donor and recipient; `peers`: the donor's, `back`: the recipient's; `address_of`: a member's."""

    donor: End
    recipient: End
    peers: Peers
    back: Peers
    address_of: Callable[[str], str]


@dataclass(slots=True)
class Donation:
    """A stream that the donor hands over; it reads on with `emit`."""

    stream: Stream = field(default_factory=lambda: new_core())
    base: SentCopy | None = None
    offer: Offer | None = None
    offset: int = 0

    def emit(self, key: str, data: str = "") -> None:
        """One more fragment."""
        value = msgspec.json.encode({"key": key, "data": data})
        self.stream.fold([Rec(self.offset, 1_000 + self.offset, key.encode(), value)], 0.0)
        self.offset += 1

    def commit(self) -> None:
        """Nothing is left uncommitted."""
        if not self.stream.has_changes:
            return
        commit = commit_of(self.stream)
        self.stream.committed(commit, list(range(len(commit.records))), 0.0)

    def copy(self) -> tuple[Offer, bytes]:
        """The first copy as of now."""
        body, self.base = take_copy(self.stream)
        self.offer = offer_of(self.base, epoch=EPOCH, donor="a", why="test")
        return self.offer, body

    def delta(self) -> tuple[Completion, bytes]:
        """What has changed since, after the last commit."""
        assert self.base is not None
        assert self.offer is not None
        self.commit()
        body = take_delta(self.stream, self.base)
        completion = completion_of(self.base, body, self.offer, copy_ms=1.5, stopped_at_ms=1_700_000_000_000)
        return completion, body


def new_core() -> Stream:
    """Stream 1 in epoch 7, from its beginning."""
    return Stream(
        group="default",
        stream=STREAM,
        epoch=EPOCH,
        settings=GroupSettings(),
        limits=StreamLimits(),
        checkpoint=Checkpoint(head=Head(epoch=EPOCH, seq=0, position=0, safe_offset=0)),
        now_s=0.0,
    )


def situation_of(member: str) -> Situation:
    """As it is when `a` hands stream 1 to `b`: both registered and active, as planned."""
    return Situation(
        group="default",
        member=member,
        view=View(
            count=4,
            members={name: MemberNode(address=f"http://{name}") for name in ("a", "b")},
            claims={STREAM: ClaimNode(member="a", epoch=EPOCH)},
        ),
        planned={STREAM: "b"},
        quota=2,
        promised=(),
        lease_ms=4000,
    )


def new_end(member: str, max_body_bytes: int = MAX_BODY_BYTES) -> End:
    """A member with an empty hint store."""
    limits = HandoverLimits(max_body_bytes=max_body_bytes)
    hint_store = HintStore(
        settings=GroupSettings(),
        stream_limits=StreamLimits(),
        limits=limits,
        now_s=lambda: 0.0,
        situation=lambda: end.situation,
    )
    end = End(situation=situation_of(member), hint_store=hint_store)
    return end


class PeersContract:
    """The promises."""

    async def test_a_stream_goes_over_in_two_messages(self, pair: Pair) -> None:
        """What the recipient then has is what the donor had: every session, and the head."""
        donation = Donation()
        for n in range(20):
            donation.emit(f"k{n % 7}", "x" * n)
        to_b = pair.address_of("b")

        await pair.peers.offer(to_b, *donation.copy())
        held = pair.recipient.holds
        donation.emit("k1", "later")
        donation.emit("new")
        await pair.peers.complete(to_b, *donation.delta())

        assert held == ({STREAM}, False)
        assert pair.recipient.holds == ({STREAM}, True)
        (hint,) = pair.recipient.hint_store.take(STREAM)
        assert hint.state.head == donation.stream.head
        assert take_delta(hint.state, None) == take_delta(donation.stream, None)
        assert hint.completion is not None
        assert (hint.completion.why, hint.completion.copy_ms) == ("test", 1.5)

    async def test_what_was_stopped_with_can_be_fetched(self, pair: Pair) -> None:
        """Whole, byte by byte, by the one head that it stands on."""
        donation = Donation()
        donation.emit("k", "x" * 100_000)
        donation.commit()
        pair.donor.hint_store.keep(donation.stream)
        wanted = BundleRequest(group="default", stream=STREAM, epoch=EPOCH, seq=1, member="b")

        found = await pair.back.fetch(pair.address_of("a"), wanted)

        assert found == take_delta(donation.stream, None)
        with pytest.raises(HandoverRefused, match="no bundle of stream 1 with epoch 7, seq 2"):
            await pair.back.fetch(pair.address_of("a"), msgspec.structs.replace(wanted, seq=2))

    async def test_a_message_that_comes_twice_is_one(self, pair: Pair) -> None:
        """A donor that got no answer may send again."""
        donation, to_b = Donation(), pair.address_of("b")
        donation.emit("k")
        copy = donation.copy()
        delta = donation.delta()

        for _ in range(2):
            await pair.peers.offer(to_b, *copy)
        for _ in range(2):
            await pair.peers.complete(to_b, *delta)
        await pair.peers.offer(to_b, *copy)

        assert pair.recipient.holds == ({STREAM}, True)

    async def test_a_refusal_comes_with_its_reason_and_changes_nothing(self, pair: Pair) -> None:
        """The donor logs it, and asks somebody else."""
        donation = Donation()
        donation.emit("k")
        offer, body = donation.copy()
        wrong = msgspec.structs.replace(offer, stream=99)

        with pytest.raises(HandoverRefused, match="there is no stream 99"):
            await pair.peers.offer(pair.address_of("b"), wrong, body)

        assert pair.recipient.holds == (set(), False)

    async def test_a_delta_without_its_copy_is_refused(self, pair: Pair) -> None:
        """It extends nothing."""
        donation = Donation()
        donation.emit("k")
        donation.copy()

        with pytest.raises(HandoverRefused, match="no copy of stream 1 is held here"):
            await pair.peers.complete(pair.address_of("b"), *donation.delta())

        assert pair.recipient.holds == (set(), False)

    async def test_a_member_that_has_not_joined_is_not_available(self, pair: Pair) -> None:
        """Whether it refuses or does not answer: it takes nothing."""
        donation = Donation()
        pair.recipient.situation = None

        with pytest.raises((HandoverRefused, PeerUnavailable)):
            await pair.peers.offer(pair.address_of("b"), *donation.copy())

        pair.recipient.situation = situation_of("b")
        assert pair.recipient.holds == (set(), False)

    async def test_nobody_at_the_address_is_unavailable(self, pair: Pair) -> None:
        """Like a member that has just died."""
        donation = Donation()

        with pytest.raises(PeerUnavailable):
            await pair.peers.offer(pair.address_of("nobody"), *donation.copy())
