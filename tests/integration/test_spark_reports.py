"""The reports on real Spark: any number of runs gives what plain Python computes from all sessions."""

from __future__ import annotations

import itertools
import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest
from pyspark.sql import functions as f

from services.control.spark.audit.report_sums import judge_reports
from services.control.spark.delta import delta_log, newest_snapshot
from services.control.spark.reports import batches, job
from services.control.spark.reports.commits import commit_name
from services.control.spark.reports.counting import RANK_ERROR, K, items_of, steps_part
from services.control.spark.reports.job import reports
from services.control.spark.reports.plan import ItemRules, parse_plan
from services.control.spark.run.lock import LockLost
from shared.errors import InvalidInput, NotFound
from tests.reports_lake import Lake, same_as_python, sessions
from tests.spark import LARGE
from tests.spark_plans import plans_of, shuffled

if TYPE_CHECKING:
    from pyspark.sql import Column, SparkSession

MOST_JOBS = 12
"""Of a run over a small lake: to find the state's files, batches and days, to compute the report, to find the
heaviest keys, and one for each table."""
COMMITS = 8
"""Of a run that finds new sessions and sums up batches: the batch, five tables, the blocks, the sum."""
PATHS = ("$.data.path", "$.data.kind")


def test_many_runs_give_what_plain_python_computes(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Runs after each of several appends, and one over all, in several zones, periods and ranges.

    A later run reads none of the files that an earlier one has counted. Batches are merged on the way, the
    table is compacted, another group's sessions are left out, and a new path is counted over all sessions.
    The last run plans as for a large state: it shuffles no arrays, and nothing into one task. The audit finds
    the sums of both reports right, and those that somebody has altered wrong.
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
    monkeypatch.setattr(job, "for_size", lambda _: LARGE)
    bounds = {"from": "2026-03-28", "to": "2026-04-03T12:15:00+05:45"}
    nepal = {"report": "nepal", "zone": "Asia/Kathmandu", "period": "day", "item_paths": ",".join(PATHS)}
    third, plans = plans_of(spark, lambda: lake.run(**nepal, **rules, **bounds))

    def rewrite(item: str) -> str:
        return re.sub("^(/p)[0-2]$", r"\1low", re.sub("/user/[0-9]+", "/user/N", item.partition("?")[0]))

    same_as_python(lake, third, rewrite, top=20, report="nepal")
    assert [run["counted"] for run in (first, second, third)] == ["all", "new", "new"]
    assert third["from"] == "2026-03-28T00:00:00+05:45"
    assert first["total"][0]["sessions"] == sum(day["sessions"] for day in first["days"])
    assert len(first["days"]) == 31
    batches_of = lake.state().batches()
    assert max(len(found) for found in batches_of.values()) <= 2
    # the next run of this report counts only what comes after
    parts = [steps_part(path, parse_plan(rules).rules) for path in PATHS]
    assert {batches_of[part][-1].version for part in parts} == {third["sessions_version"]}
    moved = [shuffle for plan in plans for shuffle in shuffled(plan)]
    assert moved
    assert not [columns for columns, how in moved if how.startswith("SinglePartition")]
    assert not [columns for columns, _ in moved if columns & {"data", "items"}]
    assert not [plan for plan in plans if "collect_list" in plan or "collect_set" in plan]

    honest = judge_reports(spark, lake.request())
    periods = f"delta.`{tmp_path}/reports/periods`"
    spark.sql(f"UPDATE {periods} SET sessions = sessions * 10 WHERE report = 'nepal' AND period = 'day'")
    altered = judge_reports(spark, lake.request())
    assert (honest.findings, honest.left_out, honest.reports) == ([], [], 2)
    assert {finding.id for finding in altered.findings} == {"nepal"}


def _files_added_by(folder: Path, version: int) -> set[Path]:
    log = (folder / "sessions" / "_delta_log" / f"{version:020d}.json").read_text()
    actions = map(json.loads, log.splitlines())
    return {folder / "sessions" / one["add"]["path"] for one in actions if "add" in one}


def test_what_was_counted_and_has_changed_is_counted_again(spark: SparkSession, tmp_path: Path) -> None:
    """After rows are deleted, and when the table is another one. Tables of an earlier Baton are replaced if
    they cannot hold the new rows. Else they get the columns that they lack, and keep all others, and rows.

    A session at the end of the year 9999, the last time that clients may send, is in no report.
    """
    spark.range(3).selectExpr("id AS sessions", "'default' AS `group`").write.format("delta").save(
        f"{tmp_path}/reports/periods"
    )
    keys = spark.createDataFrame(
        [("other", "march", "ann", "note")], "`group` STRING, report STRING, key STRING, mine STRING"
    )
    keys.write.format("delta").partitionBy("group", "report").save(f"{tmp_path}/reports/keys")
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
    held = lake.table("keys")
    assert [row["mine"] for row in held if row["report"] == "march"] == ["note"]
    assert {row["mine"] for row in held if row["report"] == "default"} == {None}


def test_a_log_that_was_cleaned_up_is_counted_again(spark: SparkSession, tmp_path: Path) -> None:
    """Delta removes commits before a checkpoint once they are old, also some that no run has read."""
    lake = Lake(spark, tmp_path)
    for seed in (1, 2, 3):
        lake.append(sessions(seed, 20))
        if seed == 1:
            lake.run()
    log = delta_log(spark, f"{tmp_path}/sessions")
    newest_snapshot(spark, log)  # of which the checkpoint is made
    log.checkpoint()
    for version in (0, 1):
        (tmp_path / "sessions" / commit_name(version)).unlink()

    cleaned = lake.run()

    same_as_python(lake, cleaned, top=20)
    assert cleaned["counted"] == "all"
    assert cleaned["why"] == "the log of the table no longer has all commits since the last run"
    assert cleaned["total"][0]["sessions"] == 60


def test_a_run_that_ends_between_two_commits_leaves_nothing_to_repair(
    spark: SparkSession, tmp_path: Path
) -> None:
    """After the batch, and with some tables published: the next run counts what is missing once.

    A repeated batch adds nothing. Jobs make up the time of a small run, so a run that finds nothing new
    starts few of them.
    """
    lake = Lake(spark, tmp_path)
    lake.append(sessions(1, 20))
    lake.run()
    lake.append(sessions(2, 20))
    outcomes = []
    for commits in (1, 3):
        _run_until(spark, lake, commits)
        outcomes.append(len(lake.state().batches()["visits"]))
    jobs = spark.sparkContext._jsc.sc().dagScheduler().numTotalJobs
    before = jobs()
    final = lake.run()
    started = jobs() - before

    same_as_python(lake, final, top=20)
    assert started <= MOST_JOBS
    assert (outcomes, final["counted"]) == ([2, 2], "nothing")
    state = lake.state()
    newest = state.batches()["visits"][-1]
    again = {"visits": spark.createDataFrame([], "start TIMESTAMP, key STRING, sessions BIGINT")}
    later = msgspec.structs.replace(newest, since=newest.version, version=newest.version + 1)
    for _ in range(2):
        state.append(again, {"visits": later})
    assert state.batches()["visits"][-2:] == [newest, later]


def _run_until(spark: SparkSession, lake: Lake, commits: int) -> None:
    """A run that has lost its lock after so many commits: of the batch, of each table, of what it sums up."""
    checks = itertools.count()

    def check_lock() -> None:
        if next(checks) >= commits:
            raise LockLost

    with pytest.raises(LockLost):
        reports(spark.newSession(), lake.request(), check_lock)


@pytest.mark.soak
@pytest.mark.parametrize("commits", range(COMMITS))
def test_a_run_that_ends_after_any_of_its_commits_leaves_nothing_to_repair(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, commits: int
) -> None:
    """Also if batches are summed up, and if it keeps published rows, as for a large state."""
    monkeypatch.setattr(batches, "FAN", 2)
    monkeypatch.setattr(job, "SMALL_BYTES", 0)
    monkeypatch.setattr(job, "for_size", lambda _: LARGE)
    lake = Lake(spark, tmp_path)
    for seed in (1, 2):
        lake.append(sessions(seed, 20))
        lake.run()
    lake.append(sessions(3, 20, days=3))
    _run_until(spark, lake, commits)
    lake.append(sessions(4, 20, days=3))

    same_as_python(lake, lake.run(), top=20)


def test_percentiles_of_many_sessions_are_within_their_rank_error(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Above 300 sessions, in a day and in the range. Twice the error: it holds in 99 of 100 cases."""
    lake = Lake(spark, tmp_path)
    lake.append(sessions(7, 5_000, days=10))
    lake.run(period="hour,day")
    rows = [row for row in lake.table("periods") if row["report"] == "default"]

    assert {(row["sessions"] > K, row["rank_error"]) for row in rows} == {(True, RANK_ERROR), (False, 0.0)}
    (whole,) = [row for row in rows if row["period"] == "range"]
    values = {
        "duration_ms": [one["last_time"] - one["first_time"] for one in lake.sessions],
        "length": [one["fragments"] for one in lake.sessions],
    }
    for name, of_sessions in values.items():
        for percent in (50, 90, 99):
            found = whole[f"{name}_p{percent}"]
            lowest, highest = (
                sum(one < found for one in of_sessions) / len(of_sessions),
                sum(one <= found for one in of_sessions) / len(of_sessions),
            )
            assert found in of_sessions
            assert lowest - 2 * RANK_ERROR <= percent / 100 <= highest + 2 * RANK_ERROR, (name, percent)


ITEMS = {
    '{"data":{"path":"/first","path":"/last"}}': "/last",
    '{"data":{"path":"/first"},"data":{"path":"/last"}}': "/last",
    '{"data":{"path":"/first"},"data":{}}': None,
    '{"data":{"path":"/first","path":null}}': None,
    '{"data":"text"}': None,
    '{"data":[{"path":"/in a list"}]}': None,
    '{"x":%s,"data":{"path":"/behind a long number"}}' % ("9" * 5000): "/behind a long number",
    '{"data":{"path":%s}}' % ("9" * 5000): "9" * 5000,
    '{"data":{"path":"%s"}}' % ("x" * 1_500_000): "x" * 1_500_000,
    '{"data":{"path":1e400}}': "1e400",
    '{"data":{"path":-1.5E+999}}': "-1.5E+999",
    '{"data":{"path":"Infinity"}}': "Infinity",
    '{"data":{"path":12}}': "12",
    '{"data":{"path":true}}': "true",
    '{"data":{"path":{"b":1}}}': '{"b":1}',
    '{"data":{"path":"\\u00e9"}}': "é",
}
"""Fragments, and what `$.data.path` finds in them."""
LISTS = {
    '{"list":[1,{"a":"x","a":"y"}]}': ("y", None, '{"a":"x","a":"y"}'),
    '{"list":[{"a":"x"},["z"]]}': (None, "z", '["z"]'),
    '{"list":[{},"text"]}': (None, None, "text"),
    '{"list":[]}': (None, None, None),
    '{"list":{"1":{"a":"x"}}}': (None, None, None),
}
"""Fragments, and what `$.list[1].a`, `$.list[1][0]` and `$.list[1]` find in them."""


def test_items_are_read_as_the_protocol_reads_fragments(spark: SparkSession) -> None:
    """Of a name that comes twice the last one counts; no length and no number hides an item."""
    rows = spark.createDataFrame([(text,) for text in ITEMS], "text string")
    paths = ("$.data.path", "$['data'].path", "$.list[1].a", "$[0].data.path")

    def first(path: str) -> Column:
        return items_of(f.array("text"), path, ItemRules())[0]

    found = rows.select("text", *map(first, paths)).collect()
    lists = spark.createDataFrame([(text,) for text in LISTS], "text string")
    listed = lists.select("text", first("$.list[1].a"), first("$.list[1][0]"), first("$.list[1]")).collect()

    assert {row[0]: row[1] for row in found} == ITEMS
    assert [row[2] for row in found] == [row[1] for row in found]
    assert {row[3:] for row in found} == {(None, None)}
    assert {row[0]: row[1:] for row in listed} == LISTS


def test_reports_need_a_lake_and_sound_parameters(spark: SparkSession, tmp_path: Path) -> None:
    """Without the table, the error says which job to run first; a pattern that Java refuses is a fault."""
    lake = Lake(spark, tmp_path)

    with pytest.raises(NotFound, match="run the job `lake` first"):
        lake.run()
    with pytest.raises(InvalidInput, match="item_rules: Java refuses"):
        lake.run(item_rules="(?P<x>a)=>b")
