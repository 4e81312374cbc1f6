"""Who offers what to whom, and what a recipient accepts: the rules of a handover (design section 7).

Pure. `member.py` and `hints.py` carry it out, `bundle.py` says what travels. Kafka's head is the only
judge of a hint: `is_valid`; what ZooKeeper says is information, which these rules use to refuse early.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import msgspec

from services.consumer.core.commits.stream import Stream
from shared.errors import HandoverRefused, NotFound, Unauthorized
from shared.model.cluster import StreamNode, View
from shared.model.head import Head


class Offer(msgspec.Struct, frozen=True, kw_only=True):
    """What comes with a first copy: the donor's id, its claim's epoch, the position of the copy.

    `digest`: SHA-256 of the body, in hex. `sessions`, `bytes`: how many are open, and their fragments' size.
    """

    group: str
    stream: int
    epoch: int
    donor: str
    position: int
    digest: str
    sessions: int
    bytes: int
    why: str


class Completion(msgspec.Struct, frozen=True, kw_only=True):
    """What comes with the delta: which copy it extends, and the final head (`epoch` is the claim's).

    `head_epoch`, `seq`: of the head, which an owner that committed nothing has from the one before it.
    `stopped_at_ms`: when the donor stopped reading, by its wall clock; `copy_ms`: how long the first copy
    took. `node_version`: the version of the stream's node in ZooKeeper after the release, -1: not known.
    """

    group: str
    stream: int
    epoch: int
    donor: str
    head_epoch: int
    seq: int
    base_position: int
    base_digest: str
    position: int
    digest: str
    why: str
    copy_ms: float
    stopped_at_ms: int
    node_version: int = -1


class BundleRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A bundle that a recipient asks for: the one of exactly this head."""

    group: str
    stream: int
    epoch: int
    seq: int
    member: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """A recipient as it stands when an offer comes.

    `planned`, `quota`: its plan's owner of each stream, and its own share; `promised`: streams whose
    copies it holds; `lease_ms`: how long it may act without another word from ZooKeeper.
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
    """With less than this left, the recipient may have to stop before it has begun."""
    hold_s: float = 30.0
    """How long a hint is held: one that was received, one's own, and a frozen bundle for others to fetch."""


def node_after_release(completion: Completion, recipient: str) -> StreamNode:
    """What the donor will leave at the stream's node, but for its address."""
    return StreamNode(epoch=completion.epoch, owner=completion.donor, seq=completion.seq, target=recipient)


def check_sender(situation: Situation, group: str, stream: int, sender: str) -> None:
    """Raises NotFound for an unknown group or stream, Unauthorized when no such member is registered."""
    if group != situation.group:
        raise NotFound(f"{situation.member} is no member of group {group!r}")
    if not 0 <= stream < situation.view.count:
        raise NotFound(f"there is no stream {stream}")
    if sender not in situation.view.members:
        raise Unauthorized(f"{sender!r} is no registered member of group {group!r}")


def check_offer(situation: Situation, offer: Offer, limits: HandoverLimits) -> None:
    """Raises what `check_sender` does, and HandoverRefused where this member does not take the stream."""
    check_sender(situation, offer.group, offer.stream, offer.donor)
    check_claim(situation, offer.stream, offer.donor, offer.epoch)
    view, me = situation.view, situation.member
    node = view.members.get(me)
    if node is None or node.state != "active":
        raise HandoverRefused(f"{me} is {node.state if node is not None else 'not joined'}")
    if situation.lease_ms < limits.min_lease_ms:
        raise HandoverRefused(f"the lease of {me} ends in {situation.lease_ms} ms")
    holds = {*view.streams_of(me), *situation.promised} - {offer.stream}
    if len(holds) >= situation.quota and situation.planned.get(offer.stream) != me:
        raise HandoverRefused(f"{me} holds or has promised {len(holds)} streams, its share")


def check_claim(situation: Situation, stream: int, donor: str, epoch: int) -> None:
    """Raises HandoverRefused unless the donor owns the stream in that epoch, as far as is known here."""
    claim = situation.view.claims.get(stream)
    if claim is None or claim.member != donor or claim.epoch != epoch:
        raise HandoverRefused(f"epoch {epoch} of {donor} is stale: stream {stream} is claimed by {claim}")


def is_valid(memory: Stream, stored: Head) -> bool:
    """Whether a stream may go on from memory: the stored head, read after fencing, is the one that the
    memory stands on. Nobody has committed since then, so folding the log again would give the same.
    """
    return memory.is_memory and memory.head == stored
