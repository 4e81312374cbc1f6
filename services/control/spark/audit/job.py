"""The job `audit`: recomputes all sessions from their fragments, and compares them with those delivered.

Reads the heads first, then the delivered sessions, then the fragments, each up to its end at that moment. So
everything below a head's position is visible. One Spark job does the rest: it reads each topic once, sorts
the rows of table, sessions topic and log by key, and judges them in one pass (`judging.py`).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from services.control.spark.audit.facts import Given
from services.control.spark.audit.judging import (
    LOG_READ,
    MOST_EXAMPLES,
    TOPIC_READ,
    VERDICT_SCHEMA,
    Ground,
    judge_rows,
)
from services.control.spark.audit.lake_table import OpenTable, open_table, table_rows, wrong_days
from services.control.spark.audit.lake_verdict import LakeFacts
from services.control.spark.audit.outcome import NEVER, verdict_of
from services.control.spark.audit.part import Part, read_part
from services.control.spark.audit.report_sums import JudgedReports, judge_reports
from services.control.spark.audit.routing import NotAStreamTable, read_owners
from services.control.spark.audit.seam import Seam, read_seam
from services.control.spark.audit.sources import (
    Source,
    delivered_rows,
    fragment_rows,
    fragments_topics,
    sessions_topic,
)
from services.control.spark.audit.trusted import trusted
from services.control.spark.audit.verdict import Finding
from services.control.spark.run.lock import CheckLock, unlocked
from services.control.spark.run.request import Result, RunRequest
from shared.errors import KafkaUnavailable
from shared.kafka.admin.committed import KafkaGroup
from shared.kafka.admin.heads import read_heads
from shared.kafka.connect.cluster import Cluster
from shared.model.head import Head

ATTEMPTS = 4
"""How often an audit tries: if retention has removed what it was reading, it starts over, further ahead."""
AHEAD = 2
"""How far ahead, in multiples of what retention has removed meanwhile, or of the attempt before."""
RECORDS_PER_JUDGE = 250_000
"""Records of the log; with the sessions delivered of them, their rows take some 50 MB."""
MOST_JUDGES = 40
"""A long log gets no more than these: each has a copy of all markers."""
UNDER_WAY_RECORDS = 100_000
"""`silent_to` is a few batches of 2,000 records below the position at most, also where owners die amid parts:
what silence has ended goes before what follows in the log. If it is further below, it is not believed."""
FINDINGS = ("missing", "overdue", *NEVER)
COUNTED = ("judged", "delivered", "expected", "duplicates", "not_judged", "under_way", "open")
EXAMPLE = ("kind", "id", "stream", "key", "detail")
TOPIC = "the sessions topic"
IN_THE_LAKE = ("lake_judged", "lake_not_judged")


class _Sources(NamedTuple):
    """Everything that the audit reads, with offsets and version fixed beforehand."""

    heads: Mapping[int, Head]
    table: OpenTable
    topic: Source
    logs: Source
    seam: Seam


def audit(spark: SparkSession, request: RunRequest, check_lock: CheckLock = unlocked) -> Result:
    """The verdict, the numbers of differences, and the sums behind them (docs/protocol.md).

    Raises NotFound if the topics do not exist, InvalidInput, KafkaUnavailable.
    """
    part = read_part(request.parameters, request.streams, time.time_ns() // 1_000_000)
    owners, why_not_routing = _owners(request)
    sources, verdicts, has_lost = _read(spark, request, part, owners)
    logs, topic = sources.logs, sources.topic
    cut = sum(sources.seam.is_cut(stream, start) for stream, start in logs.starts.items())
    skipped = logs.skipped + topic.skipped
    overtaken = (
        f"retention removed some during the run, so it did not read the next {skipped} offsets either, to "
        "stay ahead"
    )
    is_chosen = part.since is not None
    found: list[Finding] = []
    reports = JudgedReports([], [], 0)
    if part.is_whole:
        reports = judge_reports(spark, request)
        found = [*wrong_days(sources.table), *reports.findings]
    result = _result(request, part, verdicts, found)
    under_way = (
        f"their owners were delivering {result['under_way']} of them in parts, or an earlier version of "
        "Baton committed the position"
    )
    left_out = [
        *_left_out("routing", why_not_routing),
        *_left_out("lake", sources.table.why),
        *_cuts(cut, len(logs.start), "the log of a stream", is_chosen=is_chosen or logs.skipped > 0),
        *_cuts(
            sum(map(bool, topic.start.values())),
            len(topic.start),
            TOPIC,
            is_chosen=is_chosen or topic.skipped > 0,
        ),
        *_left_out("the oldest records", overtaken if has_lost else ""),
        *_left_out("sessions that silence has ended", under_way if result["under_way"] else ""),
    ]
    left_out += [row for why in reports.left_out for row in _left_out("a report", why)]
    return result | {
        "left_out": left_out,
        "trusted": trusted(
            is_whole=part.is_whole,
            has_table=sources.table.rows is not None,
            sums=sources.table.sums,
            has_reports=reports.reports > 0,
        ),
        "cut_streams": cut,
    }


def _read(
    spark: SparkSession, request: RunRequest, part: Part, owners: Sequence[int]
) -> tuple[_Sources, list[Any], bool]:
    """What was read, the verdicts on it, and whether an earlier attempt has lost records to retention."""
    of_topic = of_logs = 0
    for attempt in range(ATTEMPTS):
        whole = _open_sources(spark, request, part)
        sources = whole._replace(topic=whole.topic.ahead(of_topic), logs=whole.logs.ahead(of_logs))
        verdicts = _judge(spark, request, part, sources, owners)
        lost = [one.lost(spark, request, verdicts) for one in (sources.topic, sources.logs)]
        if not any(lost):
            return sources, verdicts, attempt > 0
        # a lost margin was too small
        of_topic, of_logs = (
            AHEAD * max(removed, before) if removed else before
            for removed, before in zip(lost, (of_topic, of_logs), strict=True)
        )
    raise KafkaUnavailable(
        "retention removes records faster than the audit reads them: judge less, with `since`"
    )


def _open_sources(spark: SparkSession, request: RunRequest, part: Part) -> _Sources:
    heads = asyncio.run(_heads(request, part))
    table = open_table(spark, request)
    topic = sessions_topic(spark, request, part)
    seam = read_seam(spark, request, [stream for stream, head in heads.items() if head.log])
    return _Sources(heads, table, topic, fragments_topics(spark, request, part, seam), seam)


async def _heads(request: RunRequest, part: Part) -> Mapping[int, Head]:
    async with Cluster(request.kafka) as cluster:
        kafka_group = KafkaGroup(cluster, request.names.kafka_group(request.group))
        return (await read_heads(kafka_group, request.names, part.streams)).all()


def _owners(request: RunRequest) -> tuple[list[int], str]:
    """The stream of each slot, or why it is not known."""
    if not request.stream_table:
        return [], "control has read no stream table"
    try:
        return list(read_owners(request.stream_table)), ""
    except NotAStreamTable as error:
        return [], str(error)


def _judge(
    spark: SparkSession, request: RunRequest, part: Part, sources: _Sources, owners: Sequence[int]
) -> list[Any]:
    """Sums, examples and what was read (VERDICT_SCHEMA)."""
    lake = None
    if sources.table.rows is not None:
        topic = sources.topic
        lake = LakeFacts(start=topic.starts, end=topic.ends, position=sources.table.position)
    given = _given(sources)
    ground = Ground(
        group=request.group,
        settings=request.group_settings,
        given=given,
        topic_is_whole=not any(sources.topic.start.values()),
        owners=owners,
        lake=lake,
    )
    shared_ground = spark.sparkContext.broadcast(ground)

    def judge(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return judge_rows(batches, shared_ground.value)

    judges = _judges(spark, sources.logs)
    with_sums = sources.table.rows is not None
    places = {stream: one.places for stream, one in given.items()}
    rows = fragment_rows(spark, request, part, sources.logs, judges, sources.seam, places).union(
        delivered_rows(spark, request, part, sources.topic, judges, with_sums=with_sums)
    )
    if sources.table.rows is not None:
        # a session may have several copies, and its row may name one that retention has removed
        lowest = min(sources.topic.start.values(), default=0)
        from_offset = 0 if ground.settings.delivery == "at_least_once" else lowest
        rows = rows.union(table_rows(sources.table.rows, part, from_offset))
    # the low bits of a hash determine the stream, so the higher ones choose the judge
    of_key = f.shiftright("hash", 12) % judges
    number = f.when(f.col("hash") < 0, -1 - f.col("hash")).otherwise(of_key).cast("int")
    in_order = rows.repartitionById(judges, number).sortWithinPartitions(
        "hash", "key", "stream", "offset", "rank"
    )
    try:
        found: list[Any] = in_order.mapInArrow(judge, VERDICT_SCHEMA).collect()
        return found
    finally:
        shared_ground.unpersist()


def _given(sources: _Sources) -> dict[int, Given]:
    given = {}
    for stream, begins in sources.logs.starts.items():
        head = sources.heads.get(stream)
        start = begins if sources.seam.is_cut(stream, begins) else 0
        given[stream] = Given(start=start)
        if head is not None:
            head_w = head.w if head.safe_offset >= start else None
            given[stream] = Given(
                position=head.position,
                log=head.log,
                start=start,
                head_w=head_w,
                silent_to=_silent_to(head),
            )
    return given


def _silent_to(head: Head) -> int:
    """Where all that silence had ended must be delivered; 0 if the head is of a version that did not say.

    >>> said = [0, 7, 499_000, 500_000]
    >>> [_silent_to(Head(epoch=1, seq=1, position=500_000, safe_offset=0, silent_to=one)) for one in said]
    [0, 400000, 499000, 500000]
    """
    return head.silent_to and max(head.silent_to, head.position - UNDER_WAY_RECORDS)


def _judges(spark: SparkSession, logs: Source) -> int:
    """How many tasks judge: so many that each can sort its rows in memory."""
    width = 2 * spark.sparkContext.defaultParallelism
    least: int = max(width, int(spark.conf.get("spark.sql.shuffle.partitions")))
    return max(least, min(logs.records // RECORDS_PER_JUDGE, MOST_JUDGES))


def _left_out(what: str, why: str) -> list[dict[str, str]]:
    return [{"what": what, "why": why}] if why else []


def _cuts(cut: int, count: int, what: str, *, is_chosen: bool) -> list[dict[str, str]]:
    """That the run did not read the beginning of so many partitions, in words."""
    if not cut:
        return []
    if is_chosen:
        return _left_out(what, f"{cut} of {count} partitions are read from an offset above 0")
    return _left_out(what, f"retention has removed the beginning of {cut} of {count} partitions")


def _result(
    request: RunRequest, part: Part, verdicts: Sequence[Any], found: Sequence[Finding]
) -> dict[str, Any]:
    sums: dict[str, int] = {}
    examples = [{name: getattr(one, name) for name in EXAMPLE} for one in found]
    for finding in found:
        sums[finding.kind] = sums.get(finding.kind, 0) + finding.n
    for one in verdicts:
        if one.id is not None:
            examples.append({name: one[name] for name in EXAMPLE})
        elif one.kind not in (LOG_READ, TOPIC_READ):
            sums[one.kind] = sums.get(one.kind, 0) + one.n
    examples.sort(key=lambda one: (FINDINGS.index(one["kind"]), one["stream"], one["key"], one["id"]))
    numbers = {name: sums.get(name, 0) for name in (*FINDINGS, *COUNTED, *IN_THE_LAKE)}
    delivery = request.group_settings.delivery
    return {
        "verdict": verdict_of(numbers, delivery),
        "part": part.words,
        "delivery": delivery,
        **numbers,
        "examples": examples[:MOST_EXAMPLES],
        "fragments": sums.get("fragments", 0),
        "bytes": sums.get("bytes", 0),
        "markers": sums.get("marker", 0),
        "ticks": sums.get("tick", 0),
        "unreadable": sums.get("unreadable", 0),
    }
