"""`maintain` beside `reports`, in both orders, and beside the tables of another namespace."""

from __future__ import annotations

import json
import os
import shutil
import time
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from services.control.core.lake.paths import TABLES, NamespaceTaken
from services.control.spark.delta import MOST_OVERTAKEN, Overtaken
from services.control.spark.lake import maintain as upkeep
from services.control.spark.lake.maintain import maintain
from services.control.spark.lake.table import LakeTable
from services.control.spark.reports import batches
from services.control.spark.reports.job import reports
from services.control.spark.reports.state import State
from tests.held_commit import HeldCommit
from tests.reports_lake import Lake, same_as_python, sessions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def _in_a_thread(threads: ThreadPoolExecutor, job: Any, spark: SparkSession, *arguments: Any) -> Future[Any]:
    return threads.submit(job, spark.newSession(), *arguments)


@pytest.fixture(scope="module")
def prepared(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """A lake of this version of Baton with a few sessions and their reports. Tests work on copies of it."""
    lake = Lake(spark, tmp_path_factory.mktemp("prepared"))
    lake.append(sessions(1, 12, days=1))
    lake.run()
    return lake


def _spread(spark: SparkSession, table: Path) -> None:
    """Writes the table's rows again, as several files of each partition."""
    frame = spark.read.format("delta").load(str(table))
    frame.repartition(3).write.format("delta").mode("overwrite").save(str(table))


def test_reports_that_replace_what_is_being_compacted_do_not_end_the_upkeep(
    spark: SparkSession, prepared: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Delta refuses the compacted files. So the table is compacted as it is now, and so are the others."""
    lake = prepared.copy(tmp_path, "_partials", "keys")
    keys = tmp_path / "reports" / "keys"
    _spread(spark, keys)
    lake.append(sessions(2, 12, days=1))
    held = HeldCommit(spark)
    choose = upkeep.partitions_to_compact

    def hold_keys(parts: list[upkeep.Part]) -> list[upkeep.Part]:
        chosen = choose(parts)
        if any("report" in part.values for part in chosen):
            held.hold_next()
        return chosen

    monkeypatch.setattr(upkeep, "partitions_to_compact", hold_keys)
    with ThreadPoolExecutor(1) as threads:
        upkept = _in_a_thread(threads, maintain, spark, lake.request())
        with held.reached(upkept):
            reported = lake.run()
        kept = upkept.result()["tables"]

    same_as_python(lake, reported, top=20)
    # the report has replaced them by one file
    assert kept["reports/keys"]["compacted"] == 0
    assert kept.keys() == {"sessions", "reports/_partials", "reports/keys"}


def test_an_upkeep_that_commits_first_does_not_end_reports(
    spark: SparkSession, prepared: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reports have summed up their batches when a table's properties change; they commit them again.

    `maintain` leaves the files of the state alone: the order of their rows is worth more than fewer files.
    """
    monkeypatch.setattr(batches, "FAN", 2)
    lake = prepared.copy(tmp_path, "_partials")
    lake.append(sessions(2, 12, days=1))
    held = HeldCommit(spark)
    merge = State.merge
    merging: list[bool] = []

    def begin(self: State, *arguments: Any) -> None:
        merging.append(True)
        merge(self, *arguments)

    def check_lock() -> None:
        if merging:
            held.hold_next()

    monkeypatch.setattr(State, "merge", begin)
    with ThreadPoolExecutor(1) as threads:
        reported = _in_a_thread(threads, reports, spark, lake.request(), check_lock)
        with held.reached(reported):
            state = LakeTable(spark, str(tmp_path / "reports" / "_partials"))
            before = state.version()
            for published in (tmp_path / "reports").glob("[!_]*"):
                shutil.rmtree(published)  # so `maintain` takes less time; the next run makes them again
            kept = maintain(spark, msgspec.structs.replace(lake.request(), parameters={"keep_days": 2}))
            spark.sql(f"OPTIMIZE {state.sql_name}")
        result = reported.result()
    lake.append(sessions(3, 12, days=1))

    assert kept["tables"]["reports/_partials"]["compacted"] == 0
    operations = {commit.operation for commit in state.commits(state.version()) if commit.version > before}
    assert operations >= {"SET TBLPROPERTIES", "OPTIMIZE", "WRITE"}
    assert result["counted"] == "new"
    assert max(len(found) for found in lake.state().batches().values()) <= 2
    same_as_python(lake, lake.run(), top=20)


def test_a_table_that_others_keep_changing_does_not_keep_the_upkeep_from_the_rest(
    spark: SparkSession, prepared: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All others are maintained, and the run fails and names it."""
    lake = prepared.copy(tmp_path, "keys", "retention")
    left = [_left_by_a_killed_run(table) for table in (tmp_path / "reports").iterdir()]
    compact = upkeep._compact
    tried: list[str] = []

    def refuse_first(spark: SparkSession, table: LakeTable, *arguments: Any) -> int:
        if table.path.endswith("/sessions"):
            tried.append(table.path)
            raise Overtaken
        return compact(spark, table, *arguments)

    monkeypatch.setattr(upkeep, "_compact", refuse_first)

    with pytest.raises(Overtaken, match=r"committing first to sessions; the rest is maintained"):
        maintain(spark, lake.request())

    assert len(tried) == MOST_OVERTAKEN
    assert [file.exists() for file in left] == [False, False]


def _left_by_a_killed_run(table: Path) -> Path:
    """An old file that no version of the table has."""
    left = table / "part-left.parquet"
    left.write_bytes(b"left by a run that was killed")
    long_ago_s = time.time() - 30 * 86_400
    os.utime(left, (long_ago_s, long_ago_s))
    return left


def _reverse_newest(log: Path) -> None:
    """Lets the newest commit list the values of partitions in another order than the first one does."""
    first, *_, newest = sorted(log.glob("*.json"))
    found = [[json.loads(line) for line in path.read_text().splitlines()] for path in (first, newest)]
    known, again = ([one["add"] for one in actions if "add" in one] for actions in found)
    for add in again:
        values = add["partitionValues"]
        same = next(one["partitionValues"] for one in known if one["partitionValues"] == values)
        add["partitionValues"] = {name: values[name] for name in reversed(same)}
    newest.write_text("".join(f"{json.dumps(action)}\n" for action in found[1]))


def test_upkeep_leaves_the_tables_of_other_namespaces_alone(
    spark: SparkSession, prepared: Lake, tmp_path: Path
) -> None:
    """Of a lake that several share, it compacts and cleans up only its own tables.

    The two files of a day list its partition's values in different orders, as writers other than Spark do.
    """
    lakes = {"": prepared.copy(tmp_path), "shop": prepared.copy(tmp_path / "shop")}
    for lake in lakes.values():
        lake.append(sessions(2, 6, days=1))
        _reverse_newest(lake.folder / "sessions" / "_delta_log")
        _left_by_a_killed_run(lake.folder / "sessions")

    def files(lake: Lake) -> set[Path]:
        found = {path for path in lake.folder.rglob("*") if path.is_file()}
        return found - set((tmp_path / "shop").rglob("*")) if lake.folder == tmp_path else found

    for namespace, other in (("", "shop"), ("shop", "")):
        before = files(lakes[other])
        request = msgspec.structs.replace(lakes[namespace].request(), namespace=namespace, lake=str(tmp_path))

        kept = maintain(spark, request)

        assert kept["tables"]["sessions"]["compacted"] > 0
        assert not (lakes[namespace].folder / "sessions" / "part-left.parquet").exists()
        assert files(lakes[other]) == before


@pytest.mark.parametrize("namespace", sorted(TABLES))
def test_a_namespace_of_the_name_of_a_table_has_no_lake(
    spark: SparkSession, tmp_path: Path, namespace: str
) -> None:
    """Its tables would be inside the other one's, whose VACUUM removes what it does not know."""
    request = msgspec.structs.replace(Lake(spark, tmp_path).request(), namespace=namespace)

    for job in (maintain, reports):
        with pytest.raises(NamespaceTaken, match=f"the namespace '{namespace}' can have no lake"):
            job(spark, request)
    assert list(tmp_path.iterdir()) == []
