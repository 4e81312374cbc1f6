"""What is wrong now, ranked, in sentences with what to do about it.

Pure. `problems_in` finds what is wrong in what control knows of one group; `ProblemLog` remembers since when,
and holds back what is usually over in a moment. `texts.py` has the words. Used by `live/view/problems.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, get_args

import msgspec
from msgspec import Meta

from services.control.core.found import HotKey
from services.control.core.lake.freshness import FreshnessRow
from services.control.core.problems import texts
from services.control.core.queues import QueueRow
from services.control.core.report.rows import MemberRow, ProducerRow, StreamRow
from services.control.core.runs.last_runs import LastAudit
from services.control.core.runs.run import Run

Severity = Literal["bad", "warn"]
Kind = Literal[
    "source-unread",
    "audit-unsound",
    "no-members",
    "log-unread",
    "stream-rewind",
    "stream-cut",
    "stream-retrying",
    "stream-stop",
    "stream-stall",
    "unowned",
    "retention-near",
    "lake-lost",
    "lake-behind",
    "group-paused",
    "member-silent",
    "hot-key",
    "stream-behind",
    "refusals",
    "queues-silent",
    "dead-letters",
    "queue-old",
    "run-failed",
    "audit-empty",
    "member-draining",
    "no-producers",
    "producer-silent",
]
"""The worst first."""
RANK: Mapping[Kind, int] = {kind: rank for rank, kind in enumerate(get_args(Kind))}
GRACE_MS: Mapping[Kind, int] = {
    "no-members": 5_000,
    "log-unread": 5_000,
    "unowned": 5_000,
    "member-silent": 5_000,
    "no-producers": 5_000,
    "producer-silent": 5_000,
    "member-draining": 120_000,
}
"""How long something lasts before it is a problem: handovers, elections, restarts and drains are none."""
OLD_S = 3_600.0
"""An item that is ready for longer than this is a problem: nobody works on its queue, or too few."""
MOST_REASONS = 3
"""Reasons that are reported one by one; with more, the streams are one problem without a reason."""
LEAST_HELD = 1_000
"""Records that a log must hold before its retention is judged by offsets: a few say nothing."""
NEAR = 0.1
"""Retention is near when less than this part of the log lies before the safe offset."""


class ProblemRow(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that is wrong, and what it is about; null and an empty list: it is not about such a thing."""

    kind: Kind
    severity: Severity
    what: Annotated[str, Meta(description="one sentence or two")]
    todo: Annotated[str, Meta(description="what to do, with the command")]
    since: Annotated[int, Meta(description="ms UTC; when control saw it first, or when the run ended")] = 0
    streams: Annotated[list[int], Meta(description="all that it concerns")] = []
    member: str | None = None
    producer: str | None = None
    reason: Annotated[str | None, Meta(description="of a refusal, or of a stream's failure")] = None
    run: str | None = None
    queue: str | None = None
    key: Annotated[str | None, Meta(description="a hot key")] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What control knows of one group. `rows` and `members` are empty while the cluster has not been read.

    `unread`: when each source that cannot be read was read last, ms UTC, by what is wrong; None: never.
    `is_read`: whether it has; `has_offsets`: whether Kafka has, too. `first`: the first offset of each
    stream's log. `cut`: by stream, the offsets that retention took too early. `hot`: of streams that fall
    behind. `failed`: the last run of each job whose last run failed. `queues`: all queues, which belong to no
    group.
    """

    unread: Mapping[str, int | None] = field(default_factory=dict)
    is_read: bool = True
    has_offsets: bool = True
    is_paused: bool = False
    rows: Sequence[StreamRow] = ()
    first: Mapping[int, int] = field(default_factory=dict)
    cut: Mapping[int, int] = field(default_factory=dict)
    hot: Mapping[int, HotKey] = field(default_factory=dict)
    members: Sequence[MemberRow] = ()
    producers: Sequence[ProducerRow] = ()
    lake: FreshnessRow | None = None
    last_audit: LastAudit | None = None
    failed: Sequence[Run] = ()
    queues: Sequence[QueueRow] = ()


def problems_in(facts: Facts) -> list[ProblemRow]:
    """All that is wrong, in no order, without its time."""
    found = [_problem("source-unread", texts.source(*source)) for source in facts.unread.items()]
    found += [*_of_the_jobs(facts), *_of_the_queues(facts.queues)]
    if facts.is_read:
        found += [*_of_the_group(facts), *_of_the_streams(facts), *_of_the_processes(facts)]
    return found


def _problem(kind: Kind, text: texts.Text, severity: Severity = "bad", **about: Any) -> ProblemRow:
    what, todo = text
    return ProblemRow(kind=kind, severity=severity, what=what, todo=todo, **about)


def _of_the_group(facts: Facts) -> Iterable[ProblemRow]:
    if facts.is_paused:
        yield _problem("group-paused", texts.PAUSED, "warn")
    if not facts.members:
        yield _problem("no-members", texts.NO_MEMBERS)
    elif all(member.state == "draining" for member in facts.members):
        yield _problem("no-members", texts.ALL_DRAINING)
    elif unowned := [row.stream for row in facts.rows if row.owner is None]:
        yield _problem("unowned", texts.unowned(len(unowned)), streams=unowned)


def _of_the_streams(facts: Facts) -> Iterable[ProblemRow]:
    if facts.has_offsets:
        yield from _about("log-unread", [row for row in facts.rows if row.end is None])
    owned = [row for row in facts.rows if row.owner is not None]
    retrying = [row for row in owned if row.state == "retrying"]
    yield from _by_reason("stream-retrying", retrying)
    yield from _by_reason("stream-rewind", [row for row in owned if row.status == "REWIND"])
    others = [] if facts.is_paused else [row for row in owned if row.state != "retrying"]
    yield from _about("stream-stop", [row for row in others if row.status == "STOP"])
    yield from _about("stream-stall", [row for row in others if row.status == "STALL"])
    behind = [row for row in others if row.status == "WARN"]
    yield from _about("stream-behind", [row for row in behind if row.stream not in facts.hot], "warn")
    for row in behind:
        if hot := facts.hot.get(row.stream):
            text = texts.hot_key(row.stream, hot.key, hot.share)
            yield _problem("hot-key", text, "warn", streams=[row.stream], key=hot.key)
    yield from _about("stream-cut", [row for row in facts.rows if facts.cut.get(row.stream)], cut=facts.cut)
    near = [row for row in facts.rows if _is_retention_near(row, facts.first.get(row.stream, 0))]
    yield from _about("retention-near", near)


def _by_reason(kind: Kind, rows: Sequence[StreamRow]) -> Iterable[ProblemRow]:
    """One problem for each reason, or a single one if there are too many reasons to read."""
    reasons = dict.fromkeys(row.why for row in rows)
    if len(reasons) > MOST_REASONS:
        return _about(kind, rows)
    return (
        problem
        for why in reasons
        for problem in _about(kind, [row for row in rows if row.why == why], why=why)
    )


def _about(
    kind: Kind,
    rows: Sequence[StreamRow],
    severity: Severity = "bad",
    *,
    why: str = "",
    cut: Mapping[int, int] | None = None,
) -> Iterable[ProblemRow]:
    """One problem about all the streams, those with the most lag first; none without streams."""
    if rows:
        rows = sorted(rows, key=lambda row: (-(row.lag or 0), row.stream))
        streams = [row.stream for row in rows]
        records = sum((row.lag or 0) if cut is None else cut[row.stream] for row in rows)
        text = texts.of_streams(kind, streams, records, rows[0].owner, why)
        yield _problem(kind, text, severity, streams=streams, reason=why or None)


def _is_retention_near(row: StreamRow, first: int) -> bool:
    # a log that begins at 0 has not met retention yet
    if row.end is None or row.safe_offset is None or first == 0 or row.end - first < LEAST_HELD:
        return False
    return row.safe_offset - first < NEAR * (row.end - first)


def _of_the_processes(facts: Facts) -> Iterable[ProblemRow]:
    for member in facts.members:
        if not member.answers:
            text = texts.silent_member(member.id, len(member.streams))
            yield _problem("member-silent", text, "warn", member=member.id)
        elif member.state == "draining":
            text = texts.draining_member(member.id, len(member.streams))
            yield _problem("member-draining", text, "warn", member=member.id)
    if not facts.producers:
        yield _problem("no-producers", texts.NO_PRODUCERS, "warn")
    for producer in facts.producers:
        if not producer.answers:
            text = texts.silent_producer(producer.id)
            yield _problem("producer-silent", text, "warn", producer=producer.id)
        for reason, per_s in (producer.refused_per_s or {}).items():
            text = texts.refusals(producer.id, reason, per_s)
            yield _problem("refusals", text, "warn", producer=producer.id, reason=reason)


def _of_the_queues(rows: Sequence[QueueRow]) -> Iterable[ProblemRow]:
    if any(row.depth is None for row in rows):
        yield _problem("queues-silent", texts.SILENT_QUEUES, "warn")
    for row in rows:
        if row.dead:
            yield _problem("dead-letters", texts.dead_letters(row.queue, row.dead), "warn", queue=row.queue)
        if row.ready and (row.oldest_age_s or 0.0) > OLD_S:
            text = texts.old_items(row.queue, row.ready, row.oldest_age_s or 0.0)
            yield _problem("queue-old", text, "warn", queue=row.queue)


def _of_the_jobs(facts: Facts) -> Iterable[ProblemRow]:
    lake, audit = facts.lake, facts.last_audit
    if lake is not None and lake.lost_records:
        yield _problem("lake-lost", texts.lake_lost(lake.lost_records))
    if lake is not None and lake.loss_in_s is not None and lake.loss_in_s < lake.behind_s:
        # more than half of the time for which Kafka keeps it is over; bad: three quarters
        severity: Severity = "bad" if lake.loss_in_s * 3 < lake.behind_s else "warn"
        yield _problem("lake-behind", texts.lake_behind(lake.behind_s, lake.loss_in_s), severity)
    if audit is not None and audit.is_sound is False:
        text = texts.unsound(audit.run, audit.differences)
        yield _problem("audit-unsound", text, run=audit.run, since=audit.at)
    if audit is not None and audit.is_sound is None:
        yield _problem("audit-empty", texts.NOTHING_JUDGED, "warn", run=audit.run, since=audit.at)
    for run in facts.failed:
        text = texts.failed_run(run.job, run.id, run.error.message if run.error else "")
        yield _problem("run-failed", text, "warn", run=run.id, since=run.ended_at or 0)


def _identity(one: ProblemRow) -> tuple[str | None, ...]:
    """What makes it the same problem although its numbers change."""
    about = one.what if one.kind == "source-unread" else None
    return (one.kind, one.member, one.producer, one.reason, one.run, one.queue, one.key, about)


class ProblemLog:
    """Since when each problem of a group exists."""

    def __init__(self) -> None:
        self._since: dict[tuple[str | None, ...], int] = {}

    def __repr__(self) -> str:
        return f"<ProblemLog of {len(self._since)} problems>"

    def observe(self, found: Iterable[ProblemRow], now_ms: int) -> list[ProblemRow]:
        """The problems with their times, the worst first, without those that may be over in a moment."""
        known = {_identity(problem): problem for problem in found}
        self._since = {
            identity: problem.since or self._since.get(identity, now_ms)
            for identity, problem in known.items()
        }
        dated = [
            msgspec.structs.replace(problem, since=self._since[identity])
            for identity, problem in known.items()
        ]
        lasting = [one for one in dated if now_ms - one.since >= GRACE_MS.get(one.kind, 0)]
        return sorted(lasting, key=_order)


def _order(problem: ProblemRow) -> tuple[bool, int, int, int]:
    return problem.severity != "bad", RANK[problem.kind], -len(problem.streams), problem.since
