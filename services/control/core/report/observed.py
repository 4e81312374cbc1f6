"""What control observes: the cluster (ZooKeeper), offsets and heads (Kafka), statuses and plans (members).

Pure values. The adapters fill them, `report.py` joins them. A field that a status lacks takes its
default, so a newer control understands an older member.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import msgspec

from services.control.core.events.ownership_history import OwnershipHistory
from services.control.core.report.producer_rates import ProducerRate
from shared.model.cluster import ProducerNode, View
from shared.model.group import GroupSettings
from shared.model.head import Head
from shared.model.start import MAX_CHAIN, GroupStart

StreamState = Literal["unowned", "opening", "replaying", "running", "retrying", "stopping", "rewind"]


class Rates(msgspec.Struct, frozen=True, kw_only=True):
    """What a member has read and closed recently, per second."""

    fragments_per_s: float = 0.0
    bytes_per_s: float = 0.0
    sessions_per_s: float = 0.0


class StreamStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One stream as its owner reports it; `position` is the next offset to read, -1 while opening.

    `failures`: how often in a row it failed without progress; `why`: the last reason, also that of a rewind.
    `last_why`: the same, also after progress.
    """

    stream: int
    epoch: int
    state: StreamState
    position: int = -1
    open_sessions: int = 0
    state_bytes: int = 0
    covered: int = 0
    cut: int = 0
    failures: int = 0
    why: str = ""
    last_why: str = ""


class MemberStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A member's answer to `GET /status`; `lease_ms` is what remains of its lease.

    `lease_length_ms`: the whole lease; None while it has none, and from a member of an earlier version.
    `paused`: whether it reads nothing because its group is paused; None from a member that knows no pauses.
    """

    id: str
    group: str
    state: str = "active"
    since: int = 0
    lease_ms: float = 0.0
    lease_length_ms: float | None = None
    zookeeper_session: str | None = None
    paused: bool | None = None
    rates: Rates = Rates()
    streams: list[StreamStatus] = []


class Move(msgspec.Struct, frozen=True, kw_only=True):
    """A stream that the plan assigns to a new owner; null is no owner."""

    stream: int
    from_: str | None = msgspec.field(name="from", default=None)
    to: str | None = None
    why: str = ""


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """A member's answer to `GET /plan`: what would move, and how many streams each member should own."""

    moves: list[Move] = []
    quota: dict[str, int] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """One group in ZooKeeper; `settings` is None before its first member has written them.

    `start`: of a group that control made; None for one that begins where the log does.
    """

    settings: GroupSettings | None
    view: View
    start: GroupStart | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """Everything in ZooKeeper; `count` is the number of streams, 0 without a stream table.

    `stream_table`: the JSON of the last table that could be read, as it is stored. `aliases`: alias → group.
    """

    count: int = 0
    stream_table: str = ""
    groups: Mapping[str, Group] = field(default_factory=dict)
    producers: Mapping[str, ProducerNode] = field(default_factory=dict)
    aliases: Mapping[str, str] = field(default_factory=dict)

    def chain(self, group: str) -> list[GroupStart]:
        """The group's start, that of the group it follows, and so on; empty for a group without a start."""
        chain: list[GroupStart] = []
        found = self.groups.get(group)
        while found is not None and found.start is not None and len(chain) < MAX_CHAIN:
            chain.append(found.start)
            found = self.groups.get(found.start.follows or "")
        return chain


@dataclass(frozen=True, slots=True, kw_only=True)
class Offsets:
    """Everything in Kafka: by stream the first and the next offset, by group and stream the heads.

    `count`: how many streams were asked about. A log without a leader has no offsets.
    """

    count: int = 0
    first: Mapping[int, int] = field(default_factory=dict)
    end: Mapping[int, int] = field(default_factory=dict)
    heads: Mapping[str, Mapping[int, Head]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answers:
    """What the members report: statuses by group and member, plans by group with their author.

    A member that did not answer the last request is `silent`; its last status is kept.
    """

    statuses: Mapping[tuple[str, str], MemberStatus] = field(default_factory=dict)
    silent: frozenset[tuple[str, str]] = frozenset()
    plans: Mapping[str, tuple[str, Plan]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """Everything that control knows at one moment; `producer_rates`: of those that answer."""

    cluster: Cluster = Cluster()
    offsets: Offsets = Offsets()
    answers: Answers = Answers()
    producer_rates: Mapping[str, ProducerRate] = field(default_factory=dict)
    ownership_history: OwnershipHistory = field(default_factory=OwnershipHistory)

    def begin(self, group: str, stream: int) -> int | None:
        """Where the group begins to read a stream without a head; None if its log's begin is unknown."""
        found, first = self.cluster.groups.get(group), self.offsets.first.get(stream)
        if first is None or found is None or found.start is None:
            return first
        return max(first, found.start.offsets.get(stream) or 0)
