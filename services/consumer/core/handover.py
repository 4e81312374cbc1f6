"""Who offers what to whom, and what a recipient accepts: the rules of a handover (design section 7).

Pure. `member.py` and `handovers.py` carry it out, `bundle.py` says what travels. Kafka's head is the only
judge of a hint: `is_valid`; what ZooKeeper says is information, which these rules use to refuse early.
"""

from __future__ import annotations

import msgspec


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
    took.
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


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """A bundle that a recipient asks for: the one of exactly this head."""

    group: str
    stream: int
    epoch: int
    seq: int
    member: str
