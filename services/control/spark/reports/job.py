"""The job `reports`: what analysts ask about the sessions, as Delta tables.

A run adds the sessions that are new since the last one to the state (`state.py`: sums and sketches for each
quarter of an hour). From the state it computes the range and the periods into which they fall, and it keeps
the published rows of the other periods (`kept.py`). So a run costs what is new and what spans the range, not
the history. docs/lake.md defines every figure.
"""

from __future__ import annotations

import datetime

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from services.control.spark.reports.kept import Note, PublishedReport, kept_rows, plan_id
from services.control.spark.reports.periods import Range
from services.control.spark.reports.plan import (
    LATEST_MS,
    QUARTER_MS,
    ItemRules,
    ReportPlan,
    parse_plan,
    zone_named,
)
from services.control.spark.reports.publishing import Publisher, local_text, shown
from services.control.spark.reports.report import TABLES, computed
from services.control.spark.reports.sessions import SessionsTable
from services.control.spark.reports.state import State
from services.control.spark.reports.upkeep import bring_up, compact
from services.control.spark.run.lock import CheckLock, unlocked
from services.control.spark.run.request import Result, RunRequest
from services.control.spark.session.settings import SMALL, for_size, settings
from shared.errors import InvalidInput

NEWEST_DAYS = 31
"""A report without bounds covers the newest days that have sessions. Clients choose times, so one session in
the far future must not push all others out of the report."""
SORT_AFTER = "spark.sql.objectHashAggregate.sortBased.fallbackThreshold"
MOST_SKETCHES = "4096"
"""How many quarters of an hour a task sketches side by side, in up to 12 KB each, before it sorts its rows:
with Spark's 128, those of two days already."""
WRITING = {
    "spark.sql.maxConcurrentOutputFileWriters": "16",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.databricks.delta.writeChecksumFile.enabled": "false",
}
"""A task writes the files of several partitions side by side; else Spark sorts all rows by their partition
first, and those of the state are in order of time. Spark's own type of timestamps in files has no least and
greatest value, so it could not skip what lies outside a range. A checksum of each commit would spare readers
a short log, and Hadoop starts ten processes to write one into a local folder."""
NO_STATISTICS = {"spark.databricks.delta.stats.collect": "false"}
"""A report is one file or few, so nothing is skipped by statistics, and collecting them takes a third of the
write's time."""

SMALL_BYTES = 512 << 10
"""A state up to this size makes a report small, also of a large table `sessions`."""


def reports(spark: SparkSession, request: RunRequest, check_lock: CheckLock = unlocked) -> Result:
    """Brings the state up to date and publishes the report. Returns its newest and top rows.

    Raises InvalidInput for its parameters, NotFound while the lake has no table.
    """
    plan = parse_plan(request.parameters)
    check_rules(spark, plan.rules)
    sessions = SessionsTable(spark, request.table("sessions"), request.group)
    state = State(spark, request.table("reports", "_partials"), request.group, check_lock)
    tables = {name: request.table("reports", name) for name in TABLES}
    with settings(spark, {SORT_AFTER: MOST_SKETCHES} | WRITING | for_size(sessions.size)):
        state.prepare()
        upkeep = bring_up(state, sessions, plan)
        of_tables = NO_STATISTICS | (SMALL if state.size() <= SMALL_BYTES else {})
        with settings(spark, of_tables):
            within = range_of(plan, state.rows("quarters"))
            published = PublishedReport(spark, tables, request.group, plan.report)
            kept = kept_rows(published, plan, state, upkeep.lineage, within)
            with computed(state, plan, within, kept) as report:
                # computes the report, so it precedes the tables, which are written side by side
                result = shown(report, plan.zone, plan.periods)
                note = Note(
                    plan=plan_id(plan),
                    lineage=upkeep.lineage,
                    version=sessions.version,
                    start_ms=within.start_ms,
                )
                Publisher(spark, tables, request.group, plan, note, check_lock).publish(report.tables())
        compact(state, upkeep.batches)
    return {
        "group": request.group,
        "report": plan.report,
        "sessions_version": sessions.version,
        "counted": upkeep.counted,
        "why": upkeep.why,
        "zone": plan.zone,
        "from": local_text(within.start_ms, plan.zone),
        "to": local_text(within.end_ms, plan.zone),
        "item_paths": list(plan.paths),
        "item_rules": plan.rules.text,
        "tables": tables,
    } | result


def range_of(plan: ReportPlan, quarters: DataFrame) -> Range:
    """What the report covers: the plan's bounds, or those of the sessions."""
    start_ms, end_ms = plan.start_ms, plan.end_ms
    if start_ms is not None and end_ms is not None:
        return Range(start_ms=start_ms, end_ms=end_ms, zone=plan.zone, widest=(start_ms, end_ms))
    quarters = quarters.where(f.col("start") < f.timestamp_millis(f.lit(LATEST_MS)))
    day = f.to_date(f.from_utc_timestamp("start", plan.zone)).alias("day")
    edges = [f.unix_millis(f.min("start")).alias("first"), f.unix_millis(f.max("start")).alias("last")]
    if start_ms is None and end_ms is None:
        days = quarters.groupBy(day).agg(*edges).orderBy(f.desc("day")).limit(NEWEST_DAYS).collect()
        found = [(_midnight(row.day, plan.zone), row.last) for row in days]
    else:
        found = [(row.first, row.last) for row in quarters.agg(*edges).collect() if row.first is not None]
    widest_end_ms = LATEST_MS if end_ms is None else end_ms
    if start_ms is None:
        start_ms = min([first for first, _ in found], default=0)
    if end_ms is None:
        end_ms = max([last + QUARTER_MS for _, last in found], default=start_ms)
    has_earlier = plan.start_ms is not None or len(found) == NEWEST_DAYS
    return Range(
        start_ms=min(start_ms, end_ms),
        end_ms=max(start_ms, end_ms),
        zone=plan.zone,
        widest=(start_ms if has_earlier else min(start_ms, 0), widest_end_ms),
    )


def check_rules(spark: SparkSession, rules: ItemRules) -> None:
    """Raises InvalidInput for a pattern that Java, unlike Python, refuses."""
    for pattern, replacement in rules.pairs:
        try:
            spark._jvm.java.util.regex.Pattern.compile(pattern).matcher("").replaceAll(replacement)
        except Exception as error:
            raise InvalidInput(f"item_rules: Java refuses {pattern}=>{replacement}: {error}") from None


def _midnight(day: datetime.date, zone: str) -> int:
    start = datetime.datetime.combine(day, datetime.time(), zone_named(zone))
    return round(start.timestamp() * 1000)
