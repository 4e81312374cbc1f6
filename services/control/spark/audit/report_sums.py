"""Compares the sums of the published reports with the sessions that they count.

For each report, the sessions of its version of the table are summed anew by period, and each row of
`reports/periods` must have these sums. The audit does not know where a report ends (`to`), so the last period
of each kind may have less. The row of the range must be the sum of its periods, and of the rows of
`reports/keys`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from services.control.spark.audit.verdict import Finding
from services.control.spark.delta import NO_TABLE
from services.control.spark.lake.table import LakeTable
from services.control.spark.reports.periods import RANGE, Range
from services.control.spark.reports.plan import LATEST_MS, QUARTER_MS
from services.control.spark.run.request import RunRequest

NAMES: Final = ("report", "sessions_version", "zone", "period")
SUMS: Final = ("sessions", "fragments", "bytes", "bounces", "ended_end", "ended_gap", "ended_limit")
SUMS_OF_KEYS: Final = SUMS[:3]
Numbers = tuple[int, ...]


class Row(NamedTuple):
    """A row of `reports/periods`: its beginning (ms UTC) and the values of SUMS."""

    period: str
    start_ms: int
    sums: Numbers


class JudgedReports(NamedTuple):
    """`left_out`: why reports are not judged. `reports`: how many there are."""

    findings: list[Finding]
    left_out: list[str]
    reports: int


def judge_reports(spark: SparkSession, request: RunRequest) -> JudgedReports:
    """Judges each report of the group."""
    published = _rows(spark, request, "periods")
    if published is None:
        return JudgedReports([], [], 0)
    if not {*NAMES, "start", *SUMS} <= set(published.columns):
        return JudgedReports([], ["`reports/periods` has other columns; `baton run reports` adds them"], 0)
    start = f.unix_millis("start").alias("start_ms")
    rows = published.select(*NAMES, start, *SUMS).collect()
    by_report: dict[str, list[Any]] = {}
    for one in rows:
        by_report.setdefault(one.report or "", []).append(one)
    of_keys = _sums_of_keys(spark, request)
    findings, left_out = [], []
    for name, of_report in sorted(by_report.items()):
        is_named = all(None not in (*(one[at] for at in NAMES), one.start_ms) for one in of_report)
        if not is_named or RANGE not in {one.period for one in of_report}:
            detail = "a row lacks its name, or the range its row"
            findings.append(Finding("reports_different", name, -1, "", detail))
            continue
        version = max(one.sessions_version for one in of_report)
        # null in what somebody has altered
        found = [Row(one.period, one.start_ms, tuple(one[at] or 0 for at in SUMS)) for one in of_report]
        try:
            counted = _counted(spark, request, version, of_report[0].zone, found)
        except PySparkException as error:
            why = (str(error).splitlines() or [""])[0]
            left_out.append(f"version {version} of `sessions`, which report {name} counts, is gone: {why}")
            continue
        details = [*differences(found, counted), *_of_keys(found, of_keys.get((name, version)))]
        findings += [Finding("reports_different", name, -1, "", detail) for detail in details]
    return JudgedReports(findings, left_out, len(by_report))


def differences(published: Sequence[Row], counted: Mapping[tuple[str, int], Numbers]) -> Iterator[str]:
    """What is wrong with the rows of a report, in words. `counted`: what the sessions sum up to."""
    last = {row.period: row.start_ms for row in sorted(published, key=lambda row: row.start_ms)}
    totals: dict[str, Numbers] = {}
    nothing = (0,) * len(SUMS)
    for row in published:
        wanted = counted.get((row.period, row.start_ms), nothing)
        totals[row.period] = tuple(map(sum, zip(totals.get(row.period, nothing), row.sums, strict=True)))
        is_last = row.start_ms == last[row.period]
        if row.sums != wanted and not (is_last and all(map(int.__le__, row.sums, wanted))):
            yield f"{row.period} from {row.start_ms}: {_said(row.sums, wanted)}"
    missing = {at for at in counted if at[0] in last and at[0] != RANGE and at[1] < last[at[0]]}
    for period, start_ms in sorted(missing - {(row.period, row.start_ms) for row in published}):
        yield f"{period} from {start_ms}: no row, although it has sessions"
    of_range = totals.pop(RANGE, nothing)
    for period, total in totals.items():
        if total != of_range:
            yield f"the range, beside the sum of each {period}: {_said(of_range, total)}"


def _said(found: Numbers, wanted: Numbers) -> str:
    pairs = zip(SUMS, found, wanted, strict=False)
    return ", ".join(
        f"{name} {is_} instead of {should_be}" for name, is_, should_be in pairs if is_ != should_be
    )


def _of_keys(published: Sequence[Row], of_keys: Numbers | None) -> Iterator[str]:
    of_range = next((row.sums[: len(SUMS_OF_KEYS)] for row in published if row.period == RANGE), None)
    if of_keys is not None and of_range is not None and of_keys != of_range:
        yield f"the sum of all keys, beside the range: {_said(of_keys, of_range)}"


def _counted(
    spark: SparkSession, request: RunRequest, version: int, zone: str, published: Sequence[Row]
) -> dict[tuple[str, int], Numbers]:
    start_ms = min(row.start_ms for row in published if row.period == RANGE)
    within = Range(start_ms=start_ms, end_ms=LATEST_MS, zone=zone, widest=(start_ms, LATEST_MS))
    sessions = LakeTable(spark, request.table("sessions")).read(version)
    quarter = f.timestamp_millis(f.col("first_time") - f.pmod("first_time", f.lit(QUARTER_MS)))
    rows = within.of(sessions.where(f.col("group") == request.group).withColumn("start", quarter))
    sums = (
        within.in_periods(rows, tuple({row.period for row in published}))
        .groupBy("period", f.unix_millis("period_start").alias("start_ms"))
        .agg(
            f.count("*").alias("sessions"),
            f.sum("fragments").alias("fragments"),
            f.sum("bytes").alias("bytes"),
            f.count_if(f.col("fragments") == 1).alias("bounces"),
            *(f.count_if(f.col("reason") == one).alias(f"ended_{one}") for one in ("end", "gap", "limit")),
        )
    )
    return {(one.period, one.start_ms): tuple(one[at] for at in SUMS) for one in sums.collect()}


def _sums_of_keys(spark: SparkSession, request: RunRequest) -> dict[tuple[str, int], Numbers]:
    rows = _rows(spark, request, "keys")
    if rows is None or not {*NAMES[:2], *SUMS_OF_KEYS} <= set(rows.columns):
        return {}
    sums = rows.groupBy("report", "sessions_version").agg(*(f.sum(name).alias(name) for name in SUMS_OF_KEYS))
    return {
        (one.report, one.sessions_version): tuple(one[at] or 0 for at in SUMS_OF_KEYS)
        for one in sums.collect()
    }


def _rows(spark: SparkSession, request: RunRequest, name: str) -> DataFrame | None:
    table = LakeTable(spark, request.table("reports", name))
    version = table.version()
    return None if version == NO_TABLE else table.read(version).where(f.col("group") == request.group)
