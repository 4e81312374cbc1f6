"""SIGKILL to a driver, to executors or to control at any moment of a job: the tables come right.

The moments: the driver has the lock; Spark has begun its tasks (`batch`); files are written that no commit
names yet; a commit is made; some of a report's tables are published (`tables`, a random number of them); the
result is written, and control has not seen it.

`make kill-matrix` runs the matrix. Every CI has less: `test_spark_lake.py` kills a driver at one of three
moments, `test_spark_cluster.py` executors, and `test_control_process.py` a control. These combinations do not
exist:

* `audit` at `files` and `commit`: it writes no table. Only `reports` publishes several.
* A commit without its checkpoint: a table has no checkpoint beside it; a commit is both. What was deleted
  or restored instead is in `test_spark_lake_losses.py`.

A control that is killed is a real process, and so is the one that follows it. Executors are those of a
cluster of two workers; with a local master the driver is the only one.
"""

from __future__ import annotations

import datetime
import itertools
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from cli.stack.jars.downloads import fetch_jars
from services.control.adapters.runs import progress as spark_progress
from shared.model.names import DEFAULT_GROUP, Names
from shared.zookeeper.connection import ZooKeeper
from tests.e2e.fleet import new_seed
from tests.integration.spark_kill_ground import (
    MOMENTS,
    STEP_S,
    Ground,
    Moments,
    control_as_process,
    control_here,
    done,
    log_of,
)
from tests.lake import DAY_MS, NOON_MS, session_record
from tests.spark import Pipeline, closed_log
from tests.spark_cluster import SparkCluster, spark_cluster

pytestmark = pytest.mark.soak
KEYS = 7
FRAGMENTS = 350
DAYS = 3
MINUTE_MS = 60_000
JOBS = {"lake": "", "reports": "", "audit": "", "maintain": "OPTIMIZE"}
"""Each with the operation whose commit is the moment `commit`; "" for any."""
VICTIMS = ("driver", "control", "executors")


def exists(job: str, moment: str) -> bool:
    """Whether the job has this moment."""
    if moment == "tables":
        return job == "reports"
    return job != "audit" or moment not in ("files", "commit")


CELLS = [cell for cell in itertools.product(JOBS, MOMENTS, VICTIMS) if exists(*cell[:2])]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    """Two workers of one core, which share nothing with the driver but the folder of the lake."""
    fetch_jars("spark", quiet=True)
    with spark_cluster(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster


async def records_of_log(pipeline: Pipeline) -> list[tuple[bytes, bytes]]:
    """A log whose heads are at its end; the records of its sessions, which nobody has delivered."""
    await pipeline.send(closed_log(FRAGMENTS, KEYS, MINUTE_MS))
    sessions, positions = await pipeline.sessions()
    await pipeline.commit(positions)
    return [(session.key.encode(), value) for session, value in sessions]


def days_of_sessions() -> list[tuple[bytes, bytes]]:
    """Records of sessions that arrived on several days, long after they began."""
    return [
        session_record(f"k{n}", n, opened_at=NOON_MS + n % DAYS * DAY_MS, first_time=NOON_MS - 9 * DAY_MS)
        for n in range(DAYS * KEYS)
    ]


async def prepare(job: str, ground: Ground, pipeline: Pipeline) -> int:
    """Makes what the job works on; returns the number of the group's sessions."""
    records = days_of_sessions() if job == "maintain" else await records_of_log(pipeline)
    if job in ("lake", "audit"):
        await pipeline.deliver(records)
        return len(records)
    half = len(records) // 2
    for jobs, some in ((("lake", "reports"), records[:half]), (("lake",), records[half:])):
        await pipeline.deliver(some)
        for one in jobs:
            run = await done(ground, one)
            assert run.state == "succeeded", log_of(ground, run)
    return len(records)


@pytest.mark.parametrize(("job", "moment", "victim"), CELLS)
async def test_a_kill_at_any_moment_changes_nothing(
    job: str,
    moment: str,
    victim: str,
    request: pytest.FixtureRequest,
    kafka: str,
    zookeeper: str,
    namespace: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A killed driver's run fails, and the next does its work; other victims' runs go on."""
    pipeline = Pipeline(kafka=kafka, namespace=namespace)
    seed = new_seed()
    cluster = request.getfixturevalue("cluster") if victim == "executors" else None
    # its first answer takes a second, in which the moment would pass unseen
    monkeypatch.setattr(spark_progress, "ANSWER_TIMEOUT_S", STEP_S)
    await pipeline.create()
    async with (
        ZooKeeper(zookeeper, 10.0) as znodes,
        (
            control_as_process(tmp_path, pipeline, zookeeper, znodes)
            if victim == "control"
            else control_here(tmp_path, pipeline, zookeeper, cluster)
        ) as ground,
    ):
        expected = await prepare(job, ground, pipeline)
        names = Names(namespace)
        lock = names.upkeep_lock if job == "maintain" else names.run_lock(DEFAULT_GROUP, job)
        moments = Moments(ground, lock, JOBS[job], znodes, seed)
        run = await ground.begin(job)

        has_come = await moments.wait(moment, run)
        which = f" {moments.tables} (BATON_TEST_SEED={seed})" if moment == "tables" else ""
        print(f"\n{job}, {moment}{which}, {victim}: {'killed' if has_come else 'ended before'}")
        run = await ground.look(run)
        assert run.state != "failed", f"before the kill: {run.error}\n{log_of(ground, run)}"
        killed = await ground.kill(run)
        ended = await ground.ended(run)
        again = await done(ground, job)
        after = await done(ground, "lake") if job == "maintain" else again
        result = ground.store.result(after.id)

    assert result is not None, log_of(ground, after)
    assert again.state == after.state == "succeeded", log_of(ground, again)
    if victim != "driver":
        assert ended.state == "succeeded", log_of(ground, ended)
    if victim == "executors":
        assert killed
    assert counted(job, result) == expected
    assert has_come
    if job != "audit":
        check_tables(job, ground.lake / namespace, expected)
    if job == "maintain":
        assert result["added"] == 0


def counted(job: str, result: dict[str, Any]) -> int:
    """The sessions in the table or the report, or those that the audit found right."""
    if job == "reports":
        return sum(day["sessions"] for day in result["days"])
    return int(result["judged"] if result.get("verdict") == "exact" else result["sessions"])


def check_tables(job: str, lake: Path, expected: int) -> None:
    """Each session is there once, and reported once; what was maintained is one file for each day."""
    table = DeltaTable(lake / "sessions")
    rows = table.to_pyarrow_table(columns=["id", "group", "day", "opened_at"]).to_pylist()
    assert Counter(Counter(row["id"] for row in rows).values()) == {1: expected}
    if job == "reports":
        periods = DeltaTable(lake / "reports" / "periods").to_pyarrow_table(columns=["period", "sessions"])
        reported = [row["sessions"] for row in periods.to_pylist() if row["period"] == "range"]
        assert reported == [expected]
    if job == "maintain":
        for row in rows:
            opened = datetime.datetime.fromtimestamp(row["opened_at"] / 1000, datetime.UTC)
            assert row["day"] == opened.date()
        days = {(row["group"], row["day"]) for row in rows}
        assert len(days) == len(table.file_uris()) == DAYS
