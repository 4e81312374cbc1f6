"""The rows that control answers with: what each list of its HTTP face holds, as it is encoded.

Pure values. `core/report.py` fills them; `models.py` documents the same fields, and a test compares both.
"""

from __future__ import annotations

import msgspec

from services.control.core.burrow import Status
from services.control.core.observed import Move, Rates, StreamState
from services.control.core.ownership_history import HandoverRow, OwnerRow
from shared.model.group import GroupSettings


class StreamRow(msgspec.Struct, frozen=True, kw_only=True):
    """One stream of a group; `position` and `counts` are those of the committed head."""

    stream: int
    owner: str | None
    epoch: int
    state: StreamState
    position: int
    end: int
    lag: int
    safe_offset: int
    open_sessions: int
    state_bytes: int
    status: Status
    last_handover: HandoverRow | None = None
    counts: dict[str, int]


class StreamNodeRow(msgspec.Struct, frozen=True, kw_only=True):
    """The stream's node in ZooKeeper: its last owner (or present one) and its target."""

    epoch: int
    owner: str
    address: str
    seq: int | None
    target: str | None


class StreamDetail(StreamRow, frozen=True, kw_only=True):
    """One stream of a group with what `GET /streams/{n}` adds.

    `first`, `last`: first offset still in the log and that of its last record (`first - 1` if empty).
    `read_position`, `covered`, `cut`: what the owner says of its memory. `owners`: the last, newest first.
    """

    group: str
    topic: str
    first: int
    last: int
    seq: int | None
    address: str | None
    node: StreamNodeRow
    read_position: int | None
    covered: int
    cut: int
    pinned_to: str | None
    owners: list[OwnerRow]


class MemberRow(msgspec.Struct, frozen=True, kw_only=True):
    """One member; `streams` are those that it has claimed, `answers` whether it told its status just now."""

    id: str
    group: str
    address: str
    pid: int
    state: str
    since: int
    streams: list[int]
    rates: Rates
    lease_ms: float | None
    zookeeper_session: str | None
    answers: bool


class ProducerRow(msgspec.Struct, frozen=True, kw_only=True):
    """One producer as it registered itself."""

    id: str
    address: str
    pid: int
    since: int


class GroupRow(msgspec.Struct, frozen=True, kw_only=True):
    """One group; `streams` is their number, `members` the members' ids."""

    name: str
    settings: GroupSettings | None
    members: list[str]
    streams: int
    lag: int


class PlanRow(msgspec.Struct, frozen=True, kw_only=True):
    """What would move in a group, as `computed_by` (a member, None without any) computed it.

    `pins` are those that stand in ZooKeeper.
    """

    group: str
    computed_by: str | None
    moves: list[Move]
    quota: dict[str, int]
    pins: dict[int, str]
