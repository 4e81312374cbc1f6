"""The rows that control answers with, and the only description of their JSON: schemas are derived from them.

Pure values. `report.py` fills them, `services/control/live/view/cluster_view.py` encodes them.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from services.control.core.events.ownership_history import HandoverRow, OwnerRow
from services.control.core.report.burrow import Status
from services.control.core.report.observed import Move, Rates, StreamState
from shared.model.cluster import PauseNode, StreamNode
from shared.model.group import GroupSettings
from shared.model.head import Counts

OWNERS = "null while its owner does not say"
SILENT = "null while the member does not answer"
UNREAD = "null while no leader of its log answers"
UNBEGUN = f"before the first commit, {UNREAD}"


class CountsRow(Counts, frozen=True, kw_only=True, omit_defaults=False):
    """Totals from the first record up to the committed position, zeros included."""


class StreamTotals(CountsRow, frozen=True, kw_only=True):
    """Sums over all streams of the group, whatever the page."""

    streams: int
    lag: Annotated[int | None, Meta(description="null while that of a stream is not known")]
    open_sessions: Annotated[
        int | None, Meta(description="null while a stream has no owner, or its owner does not say")
    ]
    rate: Annotated[
        float | None, Meta(description="records appended per second; null while one of a stream is unknown")
    ]
    lag_ms: Annotated[int | None, Meta(description="the longest; null: unknown of some stream that lags")]


class StreamRow(msgspec.Struct, frozen=True, kw_only=True):
    """One stream of a group."""

    stream: int
    owner: Annotated[str | None, Meta(description="the member that has claimed it")]
    epoch: int
    state: StreamState
    position: Annotated[
        int | None, Meta(description=f"committed: every record before it is accounted for; {UNBEGUN}")
    ]
    end: Annotated[int | None, Meta(description=f"offset of the next record that will be written; {UNREAD}")]
    lag: Annotated[int | None, Meta(description=f"records between position and end; {UNREAD}")]
    lag_ms: Annotated[
        int | None,
        Meta(description="how long the record at position has waited; 0 without lag, null: unknown"),
    ]
    rate: Annotated[float | None, Meta(description="records that were appended per second; null: unknown")]
    read_rate: Annotated[
        float | None, Meta(description="records that were accounted for per second; null: unknown")
    ]
    safe_offset: Annotated[int | None, Meta(description=f"where a replay would begin; {UNBEGUN}")]
    open_sessions: Annotated[int | None, Meta(description=OWNERS)]
    state_bytes: Annotated[int | None, Meta(description=f"memory of the open sessions' fragments; {OWNERS}")]
    status: Annotated[
        Status | None, Meta(description=f"how lag and commits move, in Burrow's words; {UNREAD}")
    ]
    failures: Annotated[
        int | None, Meta(description=f"how often in a row it failed without progress; {OWNERS}")
    ]
    why: Annotated[str, Meta(description="why it failed last or is in `rewind`; empty if it works")]
    pinned_to: Annotated[str | None, Meta(description="the member that an operator pinned it to")]
    last_handover: HandoverRow | None
    counts: CountsRow


class StreamDetail(StreamRow, frozen=True, kw_only=True):
    """One stream of a group, with all that is known of it."""

    group: str
    topic: str
    first: Annotated[
        int | None, Meta(description="first offset that is still in the log; null: not read yet")
    ]
    last: Annotated[
        int | None, Meta(description=f"offset of the last record; `first` - 1 if there is none; {UNREAD}")
    ]
    seq: Annotated[int | None, Meta(description="number of the last commit")]
    address: Annotated[str | None, Meta(description="the owner's")]
    node: Annotated[StreamNode, Meta(description="its node in ZooKeeper: the present or last owner")]
    read_position: Annotated[int | None, Meta(description="next offset that the owner will read")]
    covered: Annotated[
        int | None, Meta(description=f"keys whose closed sessions a replay would skip; {OWNERS}")
    ]
    cut: Annotated[
        int | None,
        Meta(description=f"offsets that retention took before they were accounted for; {OWNERS}"),
    ]
    last_why: Annotated[
        str | None, Meta(description=f"why it failed last since its owner has it, or empty; {OWNERS}")
    ]
    owners: Annotated[list[OwnerRow], Meta(description="newest first, at most 10")]


class MemberRow(msgspec.Struct, frozen=True, kw_only=True):
    """One member of a group."""

    id: str
    group: str
    address: str
    pid: int
    state: str
    since: Annotated[int, Meta(description="ms UTC")]
    streams: Annotated[list[int], Meta(description="the streams that it has claimed")]
    rates: Annotated[Rates | None, Meta(description=f"what it reads and closes; {SILENT}")]
    paused: Annotated[bool | None, Meta(description=f"reads nothing, as its group is paused; {SILENT}")]
    lease_ms: Annotated[float | None, Meta(description=f"what remains of its lease; {SILENT}")]
    lease_length_ms: Annotated[
        float | None, Meta(description=f"its whole lease, right after ZooKeeper has answered; {SILENT}")
    ]
    zookeeper_session: str | None
    answers: Annotated[bool, Meta(description="whether it answered the last request for its status")]


class ProducerRow(msgspec.Struct, frozen=True, kw_only=True):
    """One producer as it registered itself, and what it reports."""

    id: str
    address: str
    pid: int
    since: Annotated[int, Meta(description="ms UTC")]
    accepted_per_s: Annotated[float | None, Meta(description="fragments; null: unknown")]
    refused_per_s: Annotated[
        dict[str, float] | None,
        Meta(description="rejected fragments by reason, refused requests by problem; null: unknown"),
    ]
    answers: Annotated[bool, Meta(description="whether it answered the last request for its counts")]


class GroupRow(msgspec.Struct, frozen=True, kw_only=True):
    """One group."""

    name: str
    settings: Annotated[GroupSettings | None, Meta(description="fixed for the group's life")]
    members: Annotated[list[str], Meta(description="ids, sorted")]
    streams: Annotated[int, Meta(description="number of streams")]
    lag: Annotated[int | None, Meta(description="null while that of a stream is not known")]
    paused: Annotated[PauseNode | None, Meta(description="who paused it, when and why; null: it is not")]
    follows: Annotated[str | None, Meta(description="the group that it follows")]
    aliases: Annotated[list[str], Meta(description="its other names, sorted")]


class PlanRow(msgspec.Struct, frozen=True, kw_only=True):
    """What would move in a group, as one of its members computed it."""

    group: str
    computed_by: Annotated[str | None, Meta(description="null if no active member answers")]
    moves: list[Move]
    quota: Annotated[dict[str, int], Meta(description="member → how many streams it should own")]
    pins: Annotated[dict[int, str], Meta(description="stream → the member that it is pinned to")]
