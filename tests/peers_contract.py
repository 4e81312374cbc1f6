"""What all `Peers` guarantee, run against HTTP on real sockets and against the in-memory twin.

A test module subclasses `PeersContract` and provides the fixture `pair`: two members, their hint stores, and
the peers of each. The donor is `a`, which owns stream 1 in epoch 7; the recipient is `b`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec
import pytest

from services.consumer.core.commits.checkpoint import Checkpoint
from services.consumer.core.commits.stream import Stream
from services.consumer.core.commits.turn import StreamLimits
from services.consumer.core.handover.rules import (
    BundleRequest,
    Completion,
    HandoverLimits,
    Offer,
    Situation,
    completion_of,
    offer_of,
)
from services.consumer.core.handover.sent import SentCopy, copying, taking_delta
from services.consumer.core.slices import at_once
from services.consumer.handover.hints import HintStore
from services.consumer.ports import Peers
from shared.errors import HandoverRefused, PeerUnavailable
from shared.model.cluster import ClaimNode, MemberNode, View
from shared.model.group import GroupSettings
from shared.model.head import Head
from shared.service.signing import digest_of
from tests.logs import commit_of
from tests.reference import Rec

EPOCH = 7
STREAM = 1
MAX_BODY_BYTES = 64 * 1024 * 1024


@dataclass(slots=True)
class End:
    """One member: its hint store, and the situation that it checks offers against; a test may change it."""

    situation: Situation | None
    hint_store: HintStore

    @property
    def holds(self) -> tuple[set[int], bool]:
        """All that a message can change here: the promised streams, and whether one is expected."""
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
    """A stream that the donor hands over; `emit` appends to it."""

    stream: Stream = field(default_factory=lambda: new_stream())
    base: SentCopy | None = None
    offer: Offer | None = None
    offset: int = 0

    def emit(self, key: str, data: str = "") -> None:
        """Folds one more fragment."""
        value = msgspec.json.encode({"key": key, "data": data})
        self.stream.fold([Rec(self.offset, 1_000 + self.offset, key.encode(), value)], 0.0)
        self.offset += 1

    def commit(self) -> None:
        """Commits all changes, if there are any."""
        if not self.stream.has_changes:
            return
        commit = commit_of(self.stream)
        self.stream.committed(commit, list(range(len(commit.records))), 0.0)

    def copy(self) -> tuple[Offer, bytes]:
        """Takes the first copy, as of now."""
        body, self.base = at_once(copying(self.stream))
        self.offer = offer_of(self.base, epoch=EPOCH, donor="a", recipient="b", why="test")
        return self.offer, body

    def delta(self) -> tuple[Completion, bytes]:
        """Commits, then returns what has changed since the copy."""
        assert self.base is not None
        assert self.offer is not None
        self.commit()
        body = at_once(taking_delta(self.stream, self.base))
        completion = completion_of(self.offer, digest_of(body), copy_ms=1.5, stopped_at_ms=1_700_000_000_000)
        return completion, body


def new_stream() -> Stream:
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
    """The situation when `a` hands stream 1 to `b`: both registered and active, and the plan names `b`."""
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
    """The guarantees."""

    async def test_two_messages_hand_over_a_stream(self, pair: Pair) -> None:
        """The recipient then has what the donor had: every session, and the head."""
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
        assert at_once(taking_delta(hint.state, None)) == at_once(taking_delta(donation.stream, None))
        assert hint.completion is not None
        assert (hint.why, hint.completion.copy_ms) == ("test", 1.5)

    async def test_a_stopped_stream_can_be_fetched(self, pair: Pair) -> None:
        """Whole and byte for byte, but only under the head that it stopped at."""
        donation = Donation()
        donation.emit("k", "x" * 100_000)
        donation.commit()
        pair.donor.hint_store.keep(donation.stream)
        request = BundleRequest(group="default", stream=STREAM, epoch=EPOCH, seq=1, member="b", recipient="a")

        found = await pair.back.fetch(pair.address_of("a"), request)

        assert found == at_once(taking_delta(donation.stream, None))
        with pytest.raises(HandoverRefused, match="no bundle of stream 1 with epoch 7, seq 2"):
            await pair.back.fetch(pair.address_of("a"), msgspec.structs.replace(request, seq=2))

    async def test_a_repeated_message_changes_nothing(self, pair: Pair) -> None:
        """A donor that gets no answer may send again."""
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

    async def test_a_refusal_gives_its_reason_and_changes_nothing(self, pair: Pair) -> None:
        """The donor logs the reason and tries another member."""
        donation = Donation()
        donation.emit("k")
        offer, body = donation.copy()
        wrong = msgspec.structs.replace(offer, stream=99)

        with pytest.raises(HandoverRefused, match="there is no stream 99"):
            await pair.peers.offer(pair.address_of("b"), wrong, body)

        assert pair.recipient.holds == (set(), False)

    async def test_a_delta_without_its_copy_is_refused(self, pair: Pair) -> None:
        """Without the copy there is nothing to extend."""
        donation = Donation()
        donation.emit("k")
        donation.copy()

        with pytest.raises(HandoverRefused, match="no copy of stream 1 is held here"):
            await pair.peers.complete(pair.address_of("b"), *donation.delta())

        assert pair.recipient.holds == (set(), False)

    async def test_a_member_that_has_not_joined_keeps_nothing(self, pair: Pair) -> None:
        """It may refuse or not answer, but in both cases it keeps nothing."""
        donation = Donation()
        pair.recipient.situation = None

        with pytest.raises((HandoverRefused, PeerUnavailable)):
            await pair.peers.offer(pair.address_of("b"), *donation.copy())

        pair.recipient.situation = situation_of("b")
        assert pair.recipient.holds == (set(), False)

    async def test_an_address_without_a_member_is_unavailable(self, pair: Pair) -> None:
        """Like a member that has just died."""
        donation = Donation()

        with pytest.raises(PeerUnavailable):
            await pair.peers.offer(pair.address_of("nobody"), *donation.copy())
