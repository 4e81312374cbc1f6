"""The data of the znodes, and the view: a group as one member (or control) sees it.

Pure. The coordinator adapters read and write the znodes; `shared/model/balance.py` computes the plan from a
view; control shows it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Literal

import msgspec

MemberState = Literal["joining", "active", "draining"]
_NUMBER = re.compile(r"0|[1-9][0-9]{0,8}")
Natural = Annotated[int, msgspec.Meta(ge=0, le=2**62)]
"""Bounded, so that what was read can be counted up and encoded: msgspec does not encode 2**64."""


class MemberNode(msgspec.Struct, frozen=True, kw_only=True):
    """Data of `members/<id>`; what changes often is only in the member's own `/status`.

    `address` is the base URL of the member's HTTP interface; `since` is in ms since the epoch. `weight` and
    `zone` are reserved: nothing reads them yet.
    """

    address: str
    state: MemberState = "active"
    pid: Natural = 0
    since: Natural = 0
    weight: float = 1.0
    zone: str = ""


class ClaimNode(msgspec.Struct, frozen=True, kw_only=True):
    """Data of `claims/<n>`: who owns the stream in which epoch."""

    member: str
    epoch: Natural


UNREADABLE_CLAIM = ClaimNode(member="n/a", epoch=0)
"""Stands for a claim that exists and cannot be read: some member owns the stream, so no other may claim it.
No member can have this id, because ids have no slash."""


class StreamNode(msgspec.Struct, frozen=True, kw_only=True):
    """Data of `streams/<n>`: the last (or present) owner, and its `address`.

    It outlives claims, so that epochs never repeat. `epoch` 0 and `owner` "" until the stream is first owned.
    An orderly release writes `target` (the member that should claim next) and `seq` (of the owner's last
    commit), and the next claim clears them.
    """

    epoch: Natural = 0
    owner: str = ""
    address: str = ""
    seq: Natural | None = None
    target: str | None = None


class ProducerNode(msgspec.Struct, frozen=True, kw_only=True):
    """Data of `producers/<id>`; `private_address`: the base URL of its private port, "" without one."""

    address: str
    private_address: str = ""
    pid: Natural = 0
    since: Natural = 0


class PauseNode(msgspec.Struct, frozen=True, kw_only=True):
    """Data of `pause`, which stands while the group is paused: who paused it, when (ms UTC), and why."""

    who: str = ""
    since: Natural = 0
    reason: str = ""


UNREADABLE_PAUSE = PauseNode(reason="its znode cannot be read")
"""Stands for a pause that exists and cannot be read: the znode alone pauses the group."""


def is_member_id(name: str) -> bool:
    """Whether a claim's member can have a znode; a damaged claim may name anything.

    >>> is_member_id("consumer-0"), is_member_id("n/a"), is_member_id(""), is_member_id("..")
    (True, False, False, False)
    """
    return name.isprintable() and "/" not in name and name not in ("", ".", "..")


def parse_pins(data: bytes) -> dict[int, str]:
    """Data of `pins`: stream → member; no data, no pins. Raises what msgspec does for anything else.

    >>> parse_pins(b'{"7": "consumer-1"}'), parse_pins(b"")
    ({7: 'consumer-1'}, {})
    """
    return msgspec.json.decode(data, type=dict[Natural, str]) if data else {}


def stream_numbers(names: Iterable[str], count: int) -> set[int]:
    """The streams that the children of `claims` or `streams` are named after; other names are left out.

    >>> stream_numbers(["7", "07", "12", "odd"], 12)
    {7}
    """
    # matched first: `int` raises for thousands of digits, and accepts "07" and other scripts
    return {n for name in names if _NUMBER.fullmatch(name) and (n := int(name)) < count}


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """One group at one moment, with `count` streams numbered 0 … count - 1."""

    count: int
    members: Mapping[str, MemberNode] = field(default_factory=dict)
    claims: Mapping[int, ClaimNode] = field(default_factory=dict)
    nodes: Mapping[int, StreamNode] = field(default_factory=dict)
    pins: Mapping[int, str] = field(default_factory=dict)
    """Stream → the member that an operator has pinned it to, present or not."""
    pause: PauseNode | None = None
    """Set while an operator has paused the group: its members read nothing."""

    def node(self, stream: int) -> StreamNode:
        """The stream's node, or that of a stream that was never owned."""
        return self.nodes.get(stream, _NEVER_OWNED)

    def streams_of(self, member: str) -> list[int]:
        """The streams that the member has claimed, ascending."""
        return sorted(n for n, claim in self.claims.items() if claim.member == member)


_NEVER_OWNED = StreamNode()
