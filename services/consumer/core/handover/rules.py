"""The rules of a handover: what is offered, what a recipient accepts, and when a hint may be used.

Pure. `handover/donor.py` and `handover/hints.py` carry them out, and `sent.py` defines what travels; the
steps are in docs/handover.md. Only the head in Kafka decides whether a hint is valid (`is_valid`). The view
of ZooKeeper may be stale, so these rules use it only to refuse early.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import msgspec

from services.consumer.core.commits.stream import Stream
from services.consumer.core.handover.sent import SentCopy
from shared.errors import HandoverRefused, NotFound, Unauthorized
from shared.model.cluster import View
from shared.model.head import Head


class Offer(msgspec.Struct, frozen=True, kw_only=True):
    """Goes with a first copy: who gives the stream to whom, why, and in which epoch of its claim.

    `digest`: SHA-256 of the body, in hex. `left`: how many streams, this one included, the donor has for the
    recipient; `within_ms`: how much time it has for them, 0 if it is in no hurry. Earlier versions omit both.
    """

    group: str
    stream: int
    epoch: int
    donor: str
    recipient: str
    digest: str
    why: str
    left: int = 1
    within_ms: int = 0


class Completion(msgspec.Struct, frozen=True, kw_only=True):
    """Goes with the delta, and says by the digest which copy it extends.

    `stopped_at_ms`: when the donor stopped reading, by its wall clock; `copy_ms`: how long the first copy
    took, up to the stream's turn.
    """

    group: str
    stream: int
    epoch: int
    donor: str
    recipient: str
    base_digest: str
    digest: str
    copy_ms: float
    stopped_at_ms: int


class BundleRequest(msgspec.Struct, frozen=True, kw_only=True):
    """`member` asks a former owner, the `recipient` of this message, for the bundle of exactly this head."""

    group: str
    stream: int
    epoch: int
    seq: int
    member: str
    recipient: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """The recipient at the moment an offer arrives.

    `planned`, `quota`: the owner of each stream by its plan, and its own share; `promised`: the streams whose
    copies it holds; `lease_ms`: how long it may act without another answer from ZooKeeper.
    """

    group: str
    member: str
    view: View
    planned: Mapping[int, str]
    quota: int
    promised: Collection[int]
    lease_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class HandoverLimits:
    """Bounds of what a member holds for others. `max_body_bytes`: of one bundle; `max_held_bytes`: of all."""

    max_body_bytes: int = 128 * 1024 * 1024
    max_held_bytes: int = 512 * 1024 * 1024
    min_lease_ms: int = 1000
    """With less than this left, the recipient may have to pause before it can claim the stream."""
    hold_s: float = 30.0
    """How long a hint is held, whether received or of this member's own, and a frozen bundle for others."""


def offer_of(
    base: SentCopy, *, epoch: int, donor: str, recipient: str, why: str, left: int = 1, within_ms: int = 0
) -> Offer:
    """The offer of a copy."""
    return Offer(
        group=base.stream.group,
        stream=base.stream.stream,
        epoch=epoch,
        donor=donor,
        recipient=recipient,
        digest=base.digest,
        why=why,
        left=left,
        within_ms=within_ms,
    )


def completion_of(offer: Offer, digest: str, *, copy_ms: float, stopped_at_ms: int) -> Completion:
    """What completes an offer: the delta with this digest, of the copied stream as it has stopped."""
    return Completion(
        group=offer.group,
        stream=offer.stream,
        epoch=offer.epoch,
        donor=offer.donor,
        recipient=offer.recipient,
        base_digest=offer.digest,
        digest=digest,
        copy_ms=round(copy_ms, 1),
        stopped_at_ms=stopped_at_ms,
    )


def extends(completion: Completion, offer: Offer) -> bool:
    """Whether the delta extends the copy that was offered."""
    return (completion.donor, completion.epoch, completion.base_digest) == (
        offer.donor,
        offer.epoch,
        offer.digest,
    )


def check_sender(situation: Situation, group: str, stream: int, sender: str) -> None:
    """Raises NotFound for an unknown group or stream, Unauthorized when no such member is registered."""
    if group != situation.group:
        raise NotFound(f"{situation.member} is not a member of group {group!r}")
    if not 0 <= stream < situation.view.count:
        raise NotFound(f"there is no stream {stream}")
    if sender not in situation.view.members:
        raise Unauthorized(f"{sender!r} is not a registered member of group {group!r}")


def check_offer(situation: Situation, offer: Offer, limits: HandoverLimits) -> None:
    """Raises what `check_sender` does, and HandoverRefused when this member cannot take the stream."""
    check_sender(situation, offer.group, offer.stream, offer.donor)
    check_claim(situation, offer.stream, offer.donor, offer.epoch)
    view, me = situation.view, situation.member
    node = view.members.get(me)
    if node is None or node.state != "active":
        raise HandoverRefused(f"{me} {f'is {node.state}' if node is not None else 'has not joined'}")
    if situation.lease_ms < limits.min_lease_ms:
        raise HandoverRefused(f"the lease of {me} ends in {situation.lease_ms} ms")
    # plans differ while views do: with room in its share, a member accepts what its plan gives to another
    # without this stream, so that a repeated offer does not count its own copy
    holds = {*view.streams_of(me), *situation.promised} - {offer.stream}
    if len(holds) >= situation.quota and situation.planned.get(offer.stream) != me:
        raise HandoverRefused(f"the share of {me} is full: it holds or has promised {len(holds)} streams")


def check_claim(situation: Situation, stream: int, donor: str, epoch: int) -> None:
    """Raises HandoverRefused unless the donor owns the stream in that epoch, by this member's view."""
    claim = situation.view.claims.get(stream)
    if claim is None or claim.member != donor or claim.epoch != epoch:
        now = f"{claim.member} owns stream {stream} in epoch {claim.epoch}" if claim else "it has no owner"
        raise HandoverRefused(f"epoch {epoch} of {donor} is stale: {now}")


def is_valid(hint: Stream, stored: Head) -> bool:
    """Whether a stream may continue from the hint: it stands on `stored`, the head read after fencing.

    Then no other owner has committed since, and folding the log again would give the same state.
    """
    return hint.is_memory and hint.head == stored
