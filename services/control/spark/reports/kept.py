"""The rows of the last published report that still hold, so that a run computes only the others.

A row changes when a session comes to its period, or when a key that was new in it turns out to have begun
earlier. Each commit of a report says in its note which plan it followed and which sessions it knew. If that
does not fit, or if anybody else has changed the rows, nothing is kept and all is computed.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Mapping, Sequence
from urllib.parse import unquote

import msgspec
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

from services.control.spark.delta import (
    NO_TABLE,
    Partition,
    delta_log,
    newest_snapshot,
    partition_of,
    quoted,
)
from services.control.spark.reports.figures import PAIR
from services.control.spark.reports.periods import RANGE, Range, Touched
from services.control.spark.reports.plan import ReportPlan
from services.control.spark.reports.state import State

KEPT = ("periods", "items", "transitions", "retention")
"""The tables whose rows are kept; `keys` has a row for each key of the range and is computed."""
DEFINITIONS = 2
"""Raise it when a figure changes its meaning or a table its columns, so that no earlier row is kept."""
SMALL_BYTES = 512 << 10
"""A state up to this size is computed whole, because a search for what has changed takes longer."""
MOST_TOUCHED = 2_000
"""Periods; if more have changed, all are computed."""


class Note(msgspec.Struct, frozen=True, kw_only=True):
    """What a published report was made of.

    `plan`: its `plan_id`. `lineage` and `version`: of the state, and of the sessions that it had counted.
    `start_ms`: the beginning of its range.
    """

    plan: str
    lineage: str
    version: int
    start_ms: int

    def text(self, application: str) -> str:
        """The note of a commit by the application."""
        return f"{application} {msgspec.json.encode(self).decode()}"


def plan_id(plan: ReportPlan) -> str:
    """Names the plan and the definitions of its figures."""
    text = b"%d %s" % (DEFINITIONS, msgspec.json.encode(plan))
    return hashlib.blake2b(text, digest_size=12).hexdigest()


def application_of(group: str, report: str) -> str:
    """The report's name in the logs of its tables."""
    return f"baton.reports.{group}.{report}"


def parse_note(text: str | None) -> Note | None:
    """The note of a commit; None if it says nothing, as those of earlier versions of Baton.

    >>> parse_note('baton.reports.g.r {"plan":"p","lineage":"l","version":3,"start_ms":0}').version
    3
    >>> parse_note("baton.reports.g.r")
    """
    try:
        return msgspec.json.decode((text or "").partition(" ")[2], type=Note)
    except msgspec.DecodeError:
        return None


class PublishedReport:
    """A report as its last run has published it. `tables`: their paths by name."""

    def __init__(self, spark: SparkSession, tables: Mapping[str, str], group: str, report: str) -> None:
        self._spark = spark
        self._tables = tables
        self._of_report = {"group": group, "report": report}
        self._application = application_of(group, report)

    def __repr__(self) -> str:
        return f"<PublishedReport {self._application}>"

    def note(self) -> Note | None:
        """What that run knew, or None if its rows are not all there or others have changed them."""
        notes = {partition.note for partition, _ in self._found.values()}
        return parse_note(notes.pop()) if len(notes) == 1 else None

    def rows(self, name: str) -> DataFrame:
        """Its rows in the table. Read as plain Parquet, as the state is."""
        partition, columns = self._found[name]
        if not partition.files:
            return self._spark.range(0).selectExpr(
                *(f"CAST(NULL AS {kind}) AS {column}" for column, kind in columns)
            )
        paths = [f"{self._tables[name]}/{unquote(str(file.path()))}" for file in partition.files]
        return self._spark.read.schema(", ".join(map(" ".join, columns))).parquet(*paths)

    @functools.cached_property
    def _found(self) -> dict[str, tuple[Partition, list[tuple[str, str]]]]:
        return {name: self._find(self._tables[name]) for name in KEPT}

    def _find(self, path: str) -> tuple[Partition, list[tuple[str, str]]]:
        log = delta_log(self._spark, path)
        snapshot = newest_snapshot(self._spark, log)
        if snapshot.version() == NO_TABLE:
            return Partition([], None), []
        partition = partition_of(self._spark, log, snapshot, self._of_report, self._application)
        fields = snapshot.schema().fields()
        return partition, [(f"`{field.name()}`", str(field.dataType().sql())) for field in fields]


class Kept(msgspec.Struct, frozen=True, kw_only=True):
    """The rows of a published report that still hold.

    `touched`: the periods that do not. `is_later`: whether the range begins later than the published one.
    """

    published: PublishedReport
    touched: Touched
    within: Range
    is_later: bool

    def periods(self) -> DataFrame:
        """Rows of `periods`, with the beginning of the period as `period_start`."""
        return self._in_periods("periods")

    def lists(self) -> DataFrame:
        """Rows of `items` and `transitions`, likewise."""
        pairs = self._in_periods("transitions").withColumn("position", f.lit(PAIR))
        return self._in_periods("items").unionByName(pairs, allowMissingColumns=True)

    def retention(self) -> DataFrame | None:
        """`first_day`, `days_later` and `returned`; None if no row holds for sure."""
        if self.touched.is_moved:
            return None
        day = f"to_utc_timestamp(timestamp(date_add(first_day, days_later)), {quoted(self.within.zone)})"
        rows = self.published.rows("retention").where(~self.touched.has("'day'", day))
        if self.is_later:
            rows = rows.where(f.col("first_day") >= f.to_date(self.within.local(self._start())))
        return rows.select("first_day", "days_later", "returned")

    def _in_periods(self, name: str) -> DataFrame:
        rows = self.published.rows(name).withColumnRenamed("start", "period_start")
        rows = rows.where(f.col("period") != RANGE).where(~self.touched.has())
        return rows.where(f.col("period_start") >= self._start()) if self.is_later else rows

    def _start(self) -> Column:
        return f.timestamp_millis(f.lit(self.within.start_ms))


def kept_rows(
    published: PublishedReport, plan: ReportPlan, state: State, lineage: str, within: Range
) -> Kept | None:
    """The published rows that hold for this plan and range, or None if all is computed."""
    note = published.note() if state.size() > SMALL_BYTES else None
    if note is None or (note.plan, note.lineage) != (plan_id(plan), lineage):
        return None
    touched = _touched(state, note, within, plan.periods)
    if touched is None:
        return None
    is_later = within.start_ms > note.start_ms
    return Kept(published=published, touched=touched, within=within, is_later=is_later)


def _touched(state: State, note: Note, within: Range, periods: Sequence[str]) -> Touched | None:
    """The periods to which sessions have come since, or in which a key was new and is not any more."""
    is_since = f.col("version") > note.version
    news = state.rows("quarters").where(is_since).select("start", f.lit(False).alias("is_moved"))
    firsts = (
        state.rows("keys")
        .groupBy("key")
        .agg(f.min("start").alias("first"), f.min(f.when(~is_since, f.col("start"))).alias("start"))
    )
    moved = firsts.where("first < start").select("start", f.lit(True).alias("is_moved"))
    # a period that the beginning of the range cuts, now or before
    edge = news.sparkSession.range(int(within.start_ms != note.start_ms)).select(
        f.timestamp_millis(f.lit(within.start_ms)).alias("start"), f.lit(False).alias("is_moved")
    )
    changes = within.of(news.unionAll(moved).unionAll(edge))
    found = (
        # retention needs days
        within.in_periods(changes, tuple(dict.fromkeys((*periods, "day"))))
        .groupBy("period", f.unix_millis("period_start").alias("start_ms"))
        .agg(f.max("is_moved").alias("is_moved"))
        .limit(MOST_TOUCHED + 1)
        .collect()
    )
    if len(found) > MOST_TOUCHED:
        return None
    return Touched(
        starts=frozenset((row.period, row.start_ms) for row in found),
        is_moved=any(row.is_moved for row in found),
    )
