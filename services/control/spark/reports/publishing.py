"""The tables that people open: `reports/periods`, `items`, `transitions`, `retention` and `keys`.

Each is published by one commit, which replaces the rows of this report of this group.
"""

from __future__ import annotations

import datetime
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from services.control.spark.delta import Overtaken, raise_if_overtaken, retry_overtaken
from services.control.spark.lake.table import NO_VECTORS, LakeTable
from services.control.spark.reports.counting import REASONS
from services.control.spark.reports.figures import MEASURED, PAIR, PERCENTILES, top_of
from services.control.spark.reports.kept import Note, application_of
from services.control.spark.reports.periods import RANGE
from services.control.spark.reports.plan import MOST_TOP, ReportPlan, zone_named
from services.control.spark.reports.report import Report
from services.control.spark.run.lock import CheckLock
from services.control.spark.run.request import Result

SHOWN_PERIODS = 31
"""Most hours, days and weeks in the result, newest first; the tables have all of them."""
SHOWN_OF_PERIOD = (
    *("sessions", "fragments", "bounce_rate"),
    *(f"{name}_p{p}" for name in MEASURED for p in PERCENTILES),
    *(f"ended_{reason}" for reason in REASONS),
    *("keys_new", "keys_returning"),
)
SHOWN_OF_ITEM = ("path", "item", "count", "sessions", "place")
SHOWN_OF_PAIR = ("path", "item", "next", "count", "place")
SHOWN_OF_RETENTION = ("days_later", "keys", "returned", "share")
SHOWN_RETENTION = 50
SHOWN_KEYS = 10
POSITIONS = {"any": "items", "entry": "entries", "exit": "exits", PAIR: "transitions"}
"""Value of the column `position` → name of its rows in the result."""
TABLE_OPTIONS = NO_VECTORS | {"delta.checkpointInterval": "100"}
"""Of a new table: its log is short to read, and a checkpoint costs as much as a commit."""
PARTITIONS = ("group", "report")
AT_ONCE = 3
"""How many tables are written side by side: much of a small commit is waiting."""


class Publisher:
    """Writes the tables of one report. `tables`: their paths by name. `note`: what the report is made of."""

    def __init__(
        self,
        spark: SparkSession,
        tables: Mapping[str, str],
        group: str,
        plan: ReportPlan,
        note: Note,
        check_lock: CheckLock,
    ) -> None:
        self._spark = spark
        self._tables = tables
        self._group = group
        self._plan = plan
        self._note = note
        self._check_lock = check_lock

    def __repr__(self) -> str:
        return f"<Publisher of report {self._plan.report} of group {self._group}>"

    def publish(self, rows: Mapping[str, DataFrame]) -> None:
        """Replaces the report's rows in each table."""
        with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="publish") as threads:
            for done in [threads.submit(self._publish, name, rows[name]) for name in rows]:
                done.result()

    def _publish(self, name: str, rows: DataFrame) -> None:
        told = [
            f.lit(self._group).alias("group"),
            f.lit(self._plan.report).alias("report"),
            f.lit(self._note.version).cast("bigint").alias("sessions_version"),
        ]
        columns = [f.col(column) for column in rows.columns if column != "period_start"]
        if "period_start" in rows.columns:
            start = f.col("period_start")
            local = f.date_format(f.from_utc_timestamp(start, self._plan.zone), "yyyy-MM-dd HH:mm")
            told += [f.lit(self._plan.zone).alias("zone"), start.alias("start"), local.alias("local_start")]
        published = rows.select(*told, *columns)
        # other reports and groups have the same tables
        retry_overtaken(lambda: self._replace(self._tables[name], published))

    def _replace(self, path: str, rows: DataFrame) -> None:
        """Raises Overtaken."""
        table = LakeTable(self._spark, path)
        application = application_of(self._group, self._plan.report)
        note = self._note.text(application)
        if not _can_hold(table, rows):
            self._make(table, rows, application, note)
            return
        if missing := table.missing(dict(rows.dtypes)):
            self._check_lock()
            table.add_columns(missing)
        transaction = table.begin(application)
        transaction.write(rows)
        transaction.remove({"group": self._group, "report": self._plan.report})
        self._check_lock()
        transaction.commit(note, time.time_ns())

    def _make(self, table: LakeTable, rows: DataFrame, application: str, note: str) -> None:
        """Makes the table of these rows. Raises Overtaken.

        Delta skips the write if a run that began it later has published the report meanwhile.

        One that cannot hold them is of another version of Baton. The next run of each other report adds its
        rows to the new one.
        """
        is_other = table.exists()
        writer = rows.write.format("delta").partitionBy(*PARTITIONS).options(**TABLE_OPTIONS)
        # appends to a table that another group has made meanwhile
        writer = writer.mode("overwrite" if is_other else "append").option("overwriteSchema", is_other)
        writer = writer.options(txnAppId=application, txnVersion=time.time_ns())
        self._check_lock()
        try:
            writer.option("userMetadata", note).save(table.path)
        except Exception as error:
            raise_if_overtaken(error)
            if table.exists() != is_other:
                raise Overtaken("another writer has made the table") from None
            raise


def _can_hold(table: LakeTable, rows: DataFrame) -> bool:
    """Whether the table can hold the rows, perhaps with further columns."""
    held = table.columns()
    return (
        bool(held)
        and table.partitions() == PARTITIONS
        and all(held.get(name, kind) == kind for name, kind in rows.dtypes)
    )


def shown(report: Report, zone: str, periods: Sequence[str]) -> Result:
    """What the run prints of the tables: the newest periods, and what is on top of the range."""
    result: Result = {"total": []} | {f"{period}s": [] for period in periods}
    result |= {name: [] for name in (*POSITIONS.values(), "retention")}
    for row in _newest(report.rows):
        if row["kind"] == "lists":
            columns = SHOWN_OF_PAIR if row["position"] == PAIR else SHOWN_OF_ITEM
            result[POSITIONS[row["position"]]].append({name: row[name] for name in columns})
        elif row["kind"] == "retention":
            first_day = {"first_day": row["first_day"].isoformat()}
            result["retention"].append(first_day | {name: row[name] for name in SHOWN_OF_RETENTION})
        else:
            values = {name: row[name] for name in SHOWN_OF_PERIOD}
            if row["period"] == RANGE:
                result["total"].append(values)
            else:
                start = {"start": local_text(row["start_ms"], zone)}
                result[f"{row['period']}s"].insert(0, start | values)
    heaviest = report.keys.drop("first_start").orderBy(f.desc("fragments"), "key").limit(SHOWN_KEYS)
    result["keys"] = [one.asDict() for one in heaviest.collect()]
    return result


def _newest(rows: DataFrame) -> list[dict[str, Any]]:
    """The newest rows of each period and of retention, newest first, and the lists of the range."""
    # not a timestamp, which would come as a time of this machine's zone
    start_ms = f.unix_millis("period_start").alias("start_ms")
    timed = rows.where(f"kind != 'lists' OR period = '{RANGE}'").select("*", start_ms).drop("period_start")
    order = [f.desc("start_ms"), f.desc("first_day"), f.col("days_later"), f.col("place")]
    kind = f.col("kind")
    most = f.when(kind == "periods", SHOWN_PERIODS).when(kind == "retention", SHOWN_RETENTION)
    newest = top_of(timed, ["kind", "period", "path", "position"], order, MOST_TOP)
    found = newest.where(f.col("place") <= most.otherwise(MOST_TOP)).collect()
    return sorted(
        (row.asDict() for row in found),
        key=lambda row: (row["path"] or "", row["position"] or "", row["place"]),
    )


def local_text(at_ms: int, zone: str) -> str:
    """The time on the zone's wall clock, with its offset.

    >>> local_text(1774745999000, "Europe/Berlin"), local_text(0, "UTC")
    ('2026-03-29T01:59:59+01:00', '1970-01-01T00:00:00Z')
    """
    at = datetime.datetime.fromtimestamp(at_ms / 1000, zone_named(zone))
    return at.isoformat().replace("+00:00", "Z")
