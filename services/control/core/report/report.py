"""What control answers, joined from its three sources: rows of streams, members and groups, and their totals.

Pure. ZooKeeper says who owns what, Kafka says how far each stream is, and each owner says what it holds in
memory. `services/control/live/view/cluster_view.py` calls this once per refresh and serves the result.
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import msgspec

from services.control.core.groups.following import aliases_of
from services.control.core.report.burrow import Sample
from services.control.core.report.lag_history import UNKNOWN, Trend
from services.control.core.report.observed import Group, MemberStatus, Observed, StreamState, StreamStatus
from services.control.core.report.rows import (
    CountsRow,
    GroupRow,
    MemberRow,
    PlanRow,
    ProducerRow,
    StreamDetail,
    StreamRow,
    StreamTotals,
)
from shared.model.cluster import View
from shared.model.head import Counts, Head
from shared.model.names import DEFAULT_GROUP

Number = TypeVar("Number", int, float)
MOST_COUNTS = 10_000
"""Rows of counts that are remembered: more than the streams of all groups in most clusters."""
_NO_COUNTS = CountsRow()
_NO_GROUP = Group(settings=None, view=View(count=0))


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """Everything that control serves; streams and plans by group."""

    streams: Mapping[str, Sequence[StreamRow]]
    members: Sequence[MemberRow]
    producers: Sequence[ProducerRow]
    groups: Sequence[GroupRow]
    plans: Mapping[str, PlanRow]


def group_names(observed: Observed) -> list[str]:
    """The groups to report on, sorted. Includes `default`, so a fresh stack shows its streams at once."""
    return sorted({DEFAULT_GROUP, *observed.cluster.groups})


def samples_for(observed: Observed, group: str, at_ms: int) -> list[tuple[int, Sample]]:
    """Each stream's sample for the group's lag history; none for a stream of which that is unknown."""
    heads = observed.offsets.heads.get(group, {})
    samples = []
    for stream in range(observed.cluster.count):
        end = observed.offsets.end.get(stream)
        if end is None:
            continue
        head = heads.get(stream)
        position = head.position if head else observed.begin(group, stream)
        if position is None:
            continue
        commit = (head.epoch, head.seq) if head else (0, 0)
        samples.append((stream, Sample(at_ms=at_ms, position=position, end=end, commit=commit)))
    return samples


def report_on(observed: Observed, trends: Mapping[str, Mapping[int, Trend]]) -> Report:
    """The report; `trends` by group and stream (a stream without one is OK)."""
    streams = {}
    for group in group_names(observed):
        known, of_group = _known(observed, group), trends.get(group, {})
        streams[group] = [
            _stream_row(observed, known, stream, of_group.get(stream, UNKNOWN))
            for stream in range(observed.cluster.count)
        ]
    return Report(
        streams=streams,
        members=_member_rows(observed),
        producers=_producer_rows(observed),
        groups=[
            GroupRow(
                name=name,
                settings=group.settings,
                members=sorted(group.view.members),
                streams=observed.cluster.count,
                lag=sum_of(row.lag for row in streams[name]),
                paused=group.view.pause,
                follows=group.start.follows if group.start is not None else None,
                aliases=aliases_of(name, observed.cluster.aliases),
            )
            for name, group in sorted(observed.cluster.groups.items())
        ],
        plans={group: _plan_row(observed, group) for group in streams},
    )


def totals_of(rows: Sequence[StreamRow]) -> StreamTotals:
    """The sums over the rows; `streams` is the number of rows."""
    counts = {name: sum(getattr(row.counts, name) for row in rows) for name in CountsRow.__struct_fields__}
    return StreamTotals(
        **counts,
        streams=len(rows),
        lag=sum_of(row.lag for row in rows),
        open_sessions=sum_of(row.open_sessions for row in rows),
        rate=sum_of(row.rate for row in rows),
        lag_ms=longest_lag_ms(rows),
    )


def sum_of(numbers: Iterable[Number | None]) -> Number | None:
    """The sum; None if one of the numbers is not known, because the rest would look like all.

    >>> sum_of([7, 9]), sum_of([7, None]), sum_of([])
    (16, None, 0)
    """
    total: Number = 0
    for number in numbers:
        if number is None:
            return None
        total += number
    return total


def longest_lag_ms(rows: Sequence[StreamRow]) -> int | None:
    """The longest lag in time; None if that of a stream that lags is not known."""
    lags_ms = [row.lag_ms for row in rows if row.lag_ms is not None]
    is_known = lags_ms and all(row.lag_ms is not None for row in rows if row.lag != 0)
    return max(lags_ms) if is_known else None


def stream_detail(observed: Observed, group: str, row: StreamRow, topic: str) -> StreamDetail:
    """The row with everything else that is known of its stream; `topic` is the stream's topic."""
    known = _known(observed, group)
    head, reported = known.heads.get(row.stream), known.fresh(row.stream)
    owner = known.view.members.get(row.owner) if row.owner else None
    return StreamDetail(
        **{name: getattr(row, name) for name in StreamRow.__struct_fields__},
        group=group,
        topic=topic,
        first=observed.offsets.first.get(row.stream),
        last=None if row.end is None else row.end - 1,
        seq=head.seq if head else None,
        address=owner.address if owner else None,
        node=known.view.node(row.stream),
        read_position=reported.position if reported and reported.position >= 0 else None,
        covered=reported.covered if reported else None,
        cut=reported.cut if reported else None,
        last_why=reported.last_why if reported else None,
        owners=observed.ownership_history.owners(group, row.stream),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Known:
    """One group: its view, by stream the heads and what the owners last reported, and who is silent."""

    group: str
    view: View
    heads: Mapping[int, Head]
    reported: Mapping[int, StreamStatus]
    silent: Collection[tuple[str, str]]

    def fresh(self, stream: int) -> StreamStatus | None:
        """What the stream's owner reports, unless it has fallen silent."""
        claim = self.view.claims.get(stream)
        is_silent = claim is None or (self.group, claim.member) in self.silent
        return None if is_silent else self.reported.get(stream)


def _known(observed: Observed, group: str) -> _Known:
    view = observed.cluster.groups.get(group, _NO_GROUP).view
    reported = owner_statuses(view, group, observed.answers.statuses)
    return _Known(
        group=group,
        view=view,
        heads=observed.offsets.heads.get(group, {}),
        reported=reported,
        silent=observed.answers.silent,
    )


def owner_statuses(
    view: View, group: str, statuses: Mapping[tuple[str, str], MemberStatus]
) -> dict[int, StreamStatus]:
    """What the owners report on their streams; reports of another epoch are dropped.

    Statuses and claims are read at different moments, so a status may still speak for an earlier claim.
    """
    reported = {}
    for member in view.members:
        status = statuses.get((group, member))
        for stream in status.streams if status else ():
            claim = view.claims.get(stream.stream)
            if claim and (claim.member, claim.epoch) == (member, stream.epoch):
                reported[stream.stream] = stream
    return reported


def _stream_row(observed: Observed, known: _Known, stream: int, trend: Trend) -> StreamRow:
    claim, node = known.view.claims.get(stream), known.view.node(stream)
    head, reported = known.heads.get(stream), known.reported.get(stream)
    fresh = known.fresh(stream)
    begin = None if head else observed.begin(known.group, stream)
    position, safe_offset = (head.position, head.safe_offset) if head else (begin, begin)
    end = observed.offsets.end.get(stream)
    # a claimed stream without a report of its epoch is opening: its owner has not answered since the claim
    state: StreamState = "unowned" if claim is None else reported.state if reported else "opening"
    return StreamRow(
        stream=stream,
        owner=claim.member if claim else None,
        epoch=claim.epoch if claim else node.epoch,
        state=state,
        position=position,
        end=end,
        # head and end are read one after the other, and a lost log ends below the position
        lag=None if end is None or position is None else max(0, end - position),
        lag_ms=trend.lag_ms,
        rate=trend.rate,
        read_rate=trend.read_rate,
        safe_offset=safe_offset,
        open_sessions=fresh.open_sessions if fresh else None,
        state_bytes=fresh.state_bytes if fresh else None,
        # the owner knows at once; the history needs a window to notice
        status="REWIND" if state == "rewind" else None if end is None else trend.status,
        failures=fresh.failures if fresh else None,
        why=reported.why if reported else "",
        pinned_to=known.view.pins.get(stream),
        last_handover=observed.ownership_history.handover(known.group, stream),
        counts=_counts_row(head.counts) if head else _NO_COUNTS,
    )


@functools.lru_cache(MOST_COUNTS)
def _counts_row(counts: Counts) -> CountsRow:
    """Remembered, because most streams have no new ones since the last report."""
    return CountsRow(**msgspec.structs.asdict(counts))


def _member_rows(observed: Observed) -> list[MemberRow]:
    rows = []
    for name, group in sorted(observed.cluster.groups.items()):
        streams_of: dict[str, list[int]] = {}
        for stream, claim in sorted(group.view.claims.items()):
            streams_of.setdefault(claim.member, []).append(stream)
        for member, node in sorted(group.view.members.items()):
            status = observed.answers.statuses.get((name, member))
            answers = status is not None and (name, member) not in observed.answers.silent
            fresh = status if answers else None
            rows.append(
                MemberRow(
                    id=member,
                    group=name,
                    address=node.address,
                    pid=node.pid,
                    # the member's own word is newer than its znode
                    state=status.state if status else node.state,
                    since=node.since,
                    streams=streams_of.get(member, []),
                    rates=fresh.rates if fresh else None,
                    paused=fresh.paused if fresh else None,
                    lease_ms=fresh.lease_ms if fresh else None,
                    lease_length_ms=fresh.lease_length_ms if fresh else None,
                    zookeeper_session=status.zookeeper_session if status else None,
                    answers=answers,
                )
            )
    return sorted(rows, key=lambda row: (row.id, row.group))


def _producer_rows(observed: Observed) -> list[ProducerRow]:
    rows = []
    for name, node in sorted(observed.cluster.producers.items()):
        rate = observed.producer_rates.get(name)
        refused = rate.refused_per_s if rate else None
        rows.append(
            ProducerRow(
                id=name,
                address=node.address,
                pid=node.pid,
                since=node.since,
                accepted_per_s=rate.accepted_per_s if rate else None,
                refused_per_s=None if refused is None else dict(refused),
                answers=rate is not None,
            )
        )
    return rows


def _plan_row(observed: Observed, group: str) -> PlanRow:
    pins = dict(observed.cluster.groups.get(group, _NO_GROUP).view.pins)
    if group not in observed.answers.plans:
        return PlanRow(group=group, computed_by=None, moves=[], quota={}, pins=pins)
    member, plan = observed.answers.plans[group]
    return PlanRow(group=group, computed_by=member, moves=plan.moves, quota=plan.quota, pins=pins)
