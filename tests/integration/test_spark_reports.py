"""The reports on real Spark: any number of runs gives what plain Python computes from all sessions."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from cli.stack.lock import jar_folder
from services.control.spark.driver.run_lock import LockLost, unlocked
from services.control.spark.reports import batches, job
from services.control.spark.reports.counting import RANK_ERROR, K, count
from services.control.spark.reports.job import reports
from services.control.spark.reports.plan import parse_plan
from services.control.spark.reports.state import State
from services.control.spark.request import RunRequest
from shared.errors import InvalidInput, NotFound
from shared.model.group import GroupSettings
from tests.reports_reference import Reference, Row, Rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

COLUMNS = (
    "id STRING, `group` STRING, key STRING, reason STRING, stream BIGINT, epoch BIGINT, first_offset BIGINT, "
    "last_offset BIGINT, first_time BIGINT, last_time BIGINT, opened_at BIGINT, closed_at BIGINT, "
    "fragments BIGINT, bytes BIGINT, data ARRAY<STRING>, log BIGINT, day DATE"
)
SPRING = 1_774_652_400_000
"""2026-03-27T23:00:00Z: two days before the clocks of Europe are set forward."""
DAY = 86_400_000
MOST_JOBS = 12
"""Of a run over a small lake: to find the state's files, batches and days, to compute the report, to find the
heaviest keys, and one for each table."""
PATHS = ("$.data.path", "$.data.kind")


def sessions(seed: int, count: int, *, days: int = 10, group: str = "default") -> Rows:
    """Random sessions that begin within these days, with a few keys and items."""
    chance = random.Random(seed)
    rows = []
    for n in range(count):
        began = SPRING + chance.randrange(days * DAY)
        length = chance.choice((1, 1, 2, 3, 7))
        data = [
            json.dumps({"key": "k", "data": chance.choice(({"path": f"/p{chance.randrange(6)}?q=1"}, {}))})
            if chance.random() < 0.7
            else json.dumps({"key": "k", "data": {"kind": chance.choice("abc"), "path": "/user/12"}})
            for _ in range(length)
        ]
        row: Row = {"id": f"{seed}-{n}", "group": group, "key": f"k{chance.randrange(15)}", "data": data}
        row |= {"reason": chance.choice(("end", "gap", "limit")), "first_time": began, "fragments": length}
        row |= {"last_time": began + chance.randrange(2_000_000), "bytes": chance.randrange(1000)}
        rows.append(row)
    return rows


class Lake:
    """A table `sessions` to which the job `lake` would append."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self._spark = spark
        self.folder = folder
        self.sessions: Rows = []

    def append(self, rows: Rows) -> None:
        """Adds the sessions in one commit."""
        self.sessions += [row for row in rows if row["group"] == "default"]
        frame = (
            self._spark.createDataFrame(
                [{**dict.fromkeys(("stream", "epoch", "log"), 0), **row} for row in rows], COLUMNS
            )
            .drop("day")
            .selectExpr("*", "date(timestamp_millis(first_time)) AS day")
        )
        writer = frame.write.format("delta").mode("append").partitionBy("group", "day")
        writer.save(f"{self.folder}/sessions")

    def sql(self, statement: str) -> None:
        """Runs a statement in which {} is the table."""
        self._spark.sql(statement.format(f"delta.`{self.folder}/sessions`"))

    def request(self, **parameters: Any) -> RunRequest:
        return RunRequest(
            id="run",
            job="reports",
            parameters=parameters,
            kafka="127.0.0.1:1",
            lake=str(self.folder),
            jars=str(jar_folder("spark")),
            group_settings=GroupSettings(),
            streams=1,
        )

    def run(self, **parameters: Any) -> dict[str, Any]:
        """A run in a session of its own, as a driver does it."""
        return reports(self._spark.newSession(), self.request(**parameters))

    def table(self, name: str) -> Rows:
        """The rows of a report, with times as UTC."""
        frame = self._spark.read.format("delta").load(f"{self.folder}/reports/{name}")
        times = [column for column, kind in frame.dtypes if kind == "timestamp"]
        for column in times:
            frame = frame.selectExpr(f"* EXCEPT ({column})", f"unix_millis({column}) AS {column}")
        return [
            row.asDict() | {column: datetime.fromtimestamp(row[column] / 1000, UTC) for column in times}
            for row in frame.collect()
        ]

    def reference(self, result: dict[str, Any], top: int) -> Reference:
        """What plain Python makes of the sessions in the range that the run reports."""
        return Reference(
            self.sessions,
            zone=result["zone"],
            periods=[name for name in ("hour", "day", "week") if f"{name}s" in result],
            start=datetime.fromisoformat(result["from"]).astimezone(UTC),
            end=datetime.fromisoformat(result["to"]).astimezone(UTC),
            top=top,
        )


def same(found: Rows, expected: Rows, report: str = "default") -> None:
    """The rows of the report are the expected ones, in any order; shares may differ in the last digit."""
    of_report = [row for row in found if row["report"] == report]
    assert len(of_report) == len(expected)
    columns = expected[0].keys() if expected else ()

    def rounded(rows: Iterable[Row]) -> list[str]:
        return sorted(
            repr([round(row[c], 9) if isinstance(row[c], float) else row[c] for c in columns]) for row in rows
        )

    assert rounded(of_report) == rounded(expected)


def same_as_python(
    lake: Lake,
    result: dict[str, Any],
    rewrite: Callable[[str], str] = str,
    *,
    top: int,
    report: str = "default",
) -> None:
    """Every table holds what plain Python computes."""
    reference = lake.reference(result, top)
    same(lake.table("periods"), reference.periods(), report)
    same(lake.table("retention"), reference.retention(), report)
    same(lake.table("keys"), reference.keys(), report)
    paths = result["item_paths"]
    same(lake.table("items"), [row for p in paths for row in reference.items(p, rewrite)], report)
    same(lake.table("transitions"), [row for p in paths for row in reference.transitions(p, rewrite)], report)


def test_many_runs_give_what_plain_python_computes(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Runs after each of several appends, and one over all, in several zones, periods and ranges.

    A later run reads none of the files that an earlier one has counted. Batches are merged on the way, the
    table is compacted, another group's sessions are left out, and a new path is counted over all sessions.
    The last run plans as for a large state.
    """
    monkeypatch.setattr(batches, "FAN", 2)
    lake = Lake(spark, tmp_path)
    lake.append(sessions(1, 120, days=45) + sessions(9, 20, group="other"))
    first = lake.run(top=3)
    same_as_python(lake, first, top=3)
    lake.append(sessions(2, 60))
    lake.sql("OPTIMIZE {}")
    counted = set((tmp_path / "sessions").rglob("*.parquet")) - _files_added_by(tmp_path, 1)
    for path in counted:
        path.rename(path.with_suffix(".away"))
    second = lake.run(zone="Europe/Berlin", period="hour,day,week", top=4)
    for path in counted:
        path.with_suffix(".away").rename(path)
    same_as_python(lake, second, top=4)
    lake.append(sessions(3, 60))
    rules = {"cut_query": "yes", "item_rules": "/user/[0-9]+=>/user/N ^(/p)[0-2]$=>$1low"}
    monkeypatch.setattr(job, "SMALL_BYTES", 0)
    bounds = {"from": "2026-03-28", "to": "2026-04-03T12:15:00+05:45"}
    third = lake.run(
        report="nepal", zone="Asia/Kathmandu", period="day", item_paths=",".join(PATHS), **rules, **bounds
    )

    def rewrite(item: str) -> str:
        return re.sub("^(/p)[0-2]$", r"\1low", re.sub("/user/[0-9]+", "/user/N", item.partition("?")[0]))

    same_as_python(lake, third, rewrite, top=20, report="nepal")
    assert [run["counted"] for run in (first, second, third)] == ["all", "new", "new"]
    assert third["from"] == "2026-03-28T00:00:00+05:45"
    assert first["total"][0]["sessions"] == sum(day["sessions"] for day in first["days"])
    assert len(first["days"]) == 31
    assert max(len(found) for found in _state(spark, lake).batches().values()) <= 2


def _files_added_by(folder: Path, version: int) -> set[Path]:
    log = (folder / "sessions" / "_delta_log" / f"{version:020d}.json").read_text()
    actions = map(json.loads, log.splitlines())
    return {folder / "sessions" / one["add"]["path"] for one in actions if "add" in one}


def _state(spark: SparkSession, lake: Lake) -> State:
    return State(spark, f"{lake.folder}/reports/_partials", "default", unlocked)


def test_what_was_counted_and_has_changed_is_counted_again(spark: SparkSession, tmp_path: Path) -> None:
    """After rows are deleted, and when the table is another one. Tables of an earlier Baton are replaced.

    A session at the end of the year 9999, the last time that clients may send, is in no report.
    """
    spark.range(3).selectExpr("id AS sessions", "'default' AS `group`").write.format("delta").save(
        f"{tmp_path}/reports/periods"
    )
    lake = Lake(spark, tmp_path)
    far = {"id": "far", "first_time": 253_402_300_799_000, "last_time": 253_402_300_799_999}
    lake.append([*sessions(1, 30), sessions(4, 1)[0] | far])
    taken_over = lake.run()
    same_as_python(lake, taken_over, top=20)

    lake.sql("DELETE FROM {} WHERE key = 'k3'")
    lake.sessions = [one for one in lake.sessions if one["key"] != "k3"]
    deleted = lake.run()
    same_as_python(lake, deleted, top=20)
    (tmp_path / "sessions").rename(tmp_path / "old")
    lake.sessions = []
    lake.append(sessions(5, 20))
    other = lake.run()

    same_as_python(lake, other, top=20)
    assert [run["counted"] for run in (taken_over, deleted, other)] == ["all"] * 3
    assert (taken_over["why"], deleted["why"]) == (None, "version 1 of the table has deleted or changed rows")
    assert other["why"] == "the table `sessions` was made again"


def test_a_run_that_ends_between_two_commits_leaves_nothing_to_repair(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Whichever commit it was: the next run counts what is missing once. A repeated batch adds nothing.

    Jobs make up the time of a small run, so a run that finds nothing new starts few of them.
    """
    lake = Lake(spark, tmp_path)
    lake.append(sessions(1, 20))
    lake.run()
    lake.append(sessions(2, 20))
    outcomes = []
    for last in (0, 1):
        checks = iter(range(10))

        def check_lock(last: int = last, checks: Any = checks) -> None:
            if next(checks) >= last:
                raise LockLost

        with pytest.raises(LockLost):
            reports(spark.newSession(), lake.request(), check_lock)
        outcomes.append(len(_state(spark, lake).batches()["visits"]))
    jobs = spark.sparkContext._jsc.sc().dagScheduler().numTotalJobs
    before = jobs()
    final = lake.run()
    started = jobs() - before

    same_as_python(lake, final, top=20)
    assert started <= MOST_JOBS
    assert (outcomes, final["counted"]) == ([1, 2], "nothing")
    state = _state(spark, lake)
    newest = state.batches()["visits"][-1]
    again = {"visits": spark.createDataFrame([], "start TIMESTAMP, key STRING, sessions BIGINT")}
    later = msgspec.structs.replace(newest, since=newest.version, version=newest.version + 1)
    for _ in range(2):
        state.append(again, {"visits": later})
    assert state.batches()["visits"][-2:] == [newest, later]


def test_percentiles_of_many_sessions_are_within_their_rank_error(spark: SparkSession) -> None:
    """Sketches of quarters, merged over 20,000 sessions. Twice the error: it holds in 99 of 100 cases."""
    durations = random.Random(7).sample(range(10**9), 20_000)
    rows: list[Any] = [
        ("k", "gap", n * 50_000, n * 50_000 + took, 1, 1, []) for n, took in enumerate(durations)
    ]
    frame = spark.createDataFrame(
        rows,
        "key STRING, reason STRING, first_time BIGINT, last_time BIGINT, fragments BIGINT, bytes BIGINT, "
        "data ARRAY<STRING>",
    )
    quarters: DataFrame = count(frame, "quarters", "", parse_plan({}).rules)
    values = quarters.selectExpr(f"kll_merge_agg_bigint(duration_sketch, {K}) AS sketch").selectExpr(
        *(f"kll_sketch_get_quantile_bigint(sketch, {p / 100}D) AS p{p}" for p in (50, 90, 99))
    )

    for percent, value in zip((50, 90, 99), values.first(), strict=True):
        rank = sum(one <= value for one in durations) / len(durations)
        assert abs(rank - percent / 100) <= 2 * RANK_ERROR


def test_reports_need_a_lake_and_sound_parameters(spark: SparkSession, tmp_path: Path) -> None:
    """Without the table, the error says which job to run first; a pattern that Java refuses is a fault."""
    lake = Lake(spark, tmp_path)

    with pytest.raises(NotFound, match="run the job `lake` first"):
        lake.run()
    with pytest.raises(InvalidInput, match="item_rules: Java refuses"):
        lake.run(item_rules="(?P<x>a)=>b")
