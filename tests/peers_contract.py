"""What all `Peers` promise, run against HTTP on real sockets and against the ones in memory.

A test module subclasses `PeersContract` and gives the fixture `handed`: two members, the desks of both, and
the way from each to the other. Donor is `a`, which owns stream 1 in epoch 7; recipient is `b`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec
import pytest

from services.consumer.core.commits.checkpoint import Checkpoint
from services.consumer.core.commits.stream import Stream, StreamLimits
from services.consumer.core.handover.bundle import SentCopy, take_copy, take_delta
from services.consumer.core.handover.rules import Completion, HandoverLimits, Offer, Situation, Wanted
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
    """One member: its desk, and how it stands, which a test may change."""

    situation: Situation | None
    hint_store: HintStore

    @property
    def holds(self) -> tuple[set[int], bool]:
        """All that a message can have changed here."""
        return set(self.hint_store.promised), self.hint_store.expects


@dataclass(frozen=True, slots=True, kw_only=True)
class Handed:
    """Donor and recipient; `peers`: the donor's way, `back`: the recipient's; `address_of` a member."""

    donor: End
    recipient: End
    peers: Peers
    back: Peers
    address_of: Callable[[str], str]


@dataclass(slots=True)
class Donation:
    """A stream of the donor on its way: `stream` goes on by `say` until it is completed."""

    stream: Stream = field(default_factory=lambda: new_core())
    base: SentCopy | None = None
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
        state = self.stream.assembler
        offer = Offer(
            group="default",
            stream=STREAM,
            epoch=EPOCH,
            donor="a",
            position=self.base.position,
            digest=self.base.digest,
            sessions=len(state.open),
            bytes=state.state_bytes,
            why="test",
        )
        return offer, body

    def delta(self) -> tuple[Completion, bytes]:
        """What has changed since, after the last commit."""
        assert self.base is not None
        self.commit()
        body, head = take_delta(self.stream, self.base), self.stream.head
        completion = Completion(
            group="default",
            stream=STREAM,
            epoch=EPOCH,
            donor="a",
            head_epoch=head.epoch,
            seq=head.seq,
            base_position=self.base.position,
            base_digest=self.base.digest,
            position=head.position,
            digest=digest_of(body),
            why="test",
            copy_ms=1.5,
            stopped_at_ms=1_700_000_000_000,
        )
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
    """A member with an empty desk."""
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

    async def test_a_stream_goes_over_in_two_messages(self, handed: Handed) -> None:
        """What the recipient then has is what the donor had: every session, and the head."""
        donation = Donation()
        for n in range(20):
            donation.emit(f"k{n % 7}", "x" * n)
        to_b = handed.address_of("b")

        await handed.peers.offer(to_b, *donation.copy())
        held = handed.recipient.holds
        donation.emit("k1", "later")
        donation.emit("new")
        await handed.peers.complete(to_b, *donation.delta())

        assert held == ({STREAM}, False)
        assert handed.recipient.holds == ({STREAM}, True)
        (hint,) = handed.recipient.hint_store.take(STREAM)
        assert hint.state.head == donation.stream.head
        assert take_delta(hint.state, None) == take_delta(donation.stream, None)
        assert hint.completion is not None
        assert (hint.completion.why, hint.completion.copy_ms) == ("test", 1.5)

    async def test_what_was_stopped_with_can_be_fetched(self, handed: Handed) -> None:
        """Whole, byte by byte, by the one head that it stands on."""
        donation = Donation()
        donation.emit("k", "x" * 100_000)
        donation.commit()
        handed.donor.hint_store.keep(donation.stream)
        wanted = Wanted(group="default", stream=STREAM, epoch=EPOCH, seq=1, member="b")

        found = await handed.back.fetch(handed.address_of("a"), wanted)

        assert found == take_delta(donation.stream, None)
        with pytest.raises(HandoverRefused, match="no bundle of stream 1 with epoch 7, seq 2"):
            await handed.back.fetch(handed.address_of("a"), msgspec.structs.replace(wanted, seq=2))

    async def test_a_message_that_comes_twice_is_one(self, handed: Handed) -> None:
        """A donor that got no answer may send again."""
        donation, to_b = Donation(), handed.address_of("b")
        donation.emit("k")
        copy = donation.copy()
        delta = donation.delta()

        for _ in range(2):
            await handed.peers.offer(to_b, *copy)
        for _ in range(2):
            await handed.peers.complete(to_b, *delta)
        await handed.peers.offer(to_b, *copy)

        assert handed.recipient.holds == ({STREAM}, True)

    async def test_a_refusal_comes_with_its_reason_and_changes_nothing(self, handed: Handed) -> None:
        """The donor logs it, and asks somebody else."""
        donation = Donation()
        donation.emit("k")
        offer, body = donation.copy()
        wrong = msgspec.structs.replace(offer, stream=99)

        with pytest.raises(HandoverRefused, match="there is no stream 99"):
            await handed.peers.offer(handed.address_of("b"), wrong, body)

        assert handed.recipient.holds == (set(), False)

    async def test_a_delta_without_its_copy_is_refused(self, handed: Handed) -> None:
        """It extends nothing."""
        donation = Donation()
        donation.emit("k")
        donation.copy()

        with pytest.raises(HandoverRefused, match="no copy is held here"):
            await handed.peers.complete(handed.address_of("b"), *donation.delta())

        assert handed.recipient.holds == (set(), False)

    async def test_a_member_that_has_not_joined_is_not_available(self, handed: Handed) -> None:
        """Whether it refuses or does not answer: it takes nothing."""
        donation = Donation()
        handed.recipient.situation = None

        with pytest.raises((HandoverRefused, PeerUnavailable)):
            await handed.peers.offer(handed.address_of("b"), *donation.copy())

        handed.recipient.situation = situation_of("b")
        assert handed.recipient.holds == (set(), False)

    async def test_nobody_at_the_address_is_unavailable(self, handed: Handed) -> None:
        """Like a member that has just died."""
        donation = Donation()

        with pytest.raises(PeerUnavailable):
            await handed.peers.offer(handed.address_of("nobody"), *donation.copy())
