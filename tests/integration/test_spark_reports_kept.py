"""Published rows that a run keeps: those of periods that did not change, as long as they are right."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from services.control.spark.reports import batches, job, kept
from services.control.spark.reports.counting import steps_part
from services.control.spark.reports.periods import Touched
from services.control.spark.reports.plan import parse_plan
from tests.reports_lake import DAY, SPRING, Lake, same_as_python, sessions
from tests.reports_reference import Row

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HOUR = 3_600_000
BERLIN: dict[str, Any] = {"zone": "Europe/Berlin", "period": "hour,week", "top": 2}
STEPS = steps_part("$.data.path", parse_plan({}).rules)


class Watched:
    """A lake, and what each of its runs has computed: the touched periods, or None for all."""

    def __init__(self, spark: SparkSession, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.lake = Lake(spark, folder)
        self.computed: list[Touched | None] = []
        real = kept.kept_rows

        def kept_rows(*arguments: Any) -> kept.Kept | None:
            found = real(*arguments)
            self.computed.append(found.touched if found else None)
            return found

        monkeypatch.setattr(job, "kept_rows", kept_rows)
        monkeypatch.setattr(kept, "SMALL_BYTES", 0)

    def run(self, *rows: Row, **parameters: Any) -> Touched | None:
        """Appends the sessions, and runs."""
        if rows:
            self.lake.append(list(rows))
        self._result = self.lake.run(**BERLIN, **parameters)
        return self.computed[-1]

    def check(self) -> None:
        """Compares every table with plain Python. A wrong row that is kept stays wrong, so few checks do."""
        same_as_python(self.lake, self._result, top=BERLIN["top"])


def session(number: int, at_ms: int, key: str = "k0") -> Row:
    """A session that begins so many ms after the first day's midnight in Berlin."""
    one = sessions(number, 1)[0]
    return {**one, "key": key, "first_time": SPRING + at_ms, "last_time": SPRING + at_ms + 1}


def starts(touched: Touched | None) -> dict[str, set[int]]:
    """The touched periods of each kind, in ms after that midnight."""
    assert touched is not None
    found: dict[str, set[int]] = {}
    for name, start in touched.starts:
        found.setdefault(name, set()).add(start - SPRING)
    return found


def test_a_run_computes_the_periods_that_changed_and_keeps_the_others(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those with new sessions, in which a key was new and is not any more, or which the range cuts.

    What another report's run has counted is new to this one. Days count for retention, also where the report
    has none. The days here have 24 hours except the second, on which the clocks are set forward.
    """
    monkeypatch.setattr(job, "NEWEST_DAYS", 5)
    watched = Watched(spark, tmp_path, monkeypatch)
    known = [session(n, 0, key=f"k{n}") for n in range(15)]
    friday, saturday, sunday = (n * DAY - HOUR for n in (6, 7, 8))
    monday = 2 * DAY - HOUR

    assert watched.run(*sessions(1, 60, days=2), session(30, monday), *known) is None
    in_order = watched.run(session(20, friday), session(21, friday + HOUR // 2, key="k3"))
    watched.run(session(22, saturday + HOUR, key="late"), report="other")
    of_other = watched.run(session(23, saturday + 2 * HOUR))
    late = watched.run(session(24, DAY, key="late"))
    watched.check()
    next_day = watched.run(session(25, sunday))
    watched.check()

    assert starts(in_order) == {"hour": {friday}, "day": {friday}, "week": {monday}}
    hours = {saturday + HOUR, saturday + 2 * HOUR}
    assert starts(of_other) == {"hour": hours, "day": {saturday}, "week": {monday}}
    assert starts(late) == {
        "hour": {DAY, saturday + HOUR},
        "day": {DAY, saturday},
        "week": {monday, monday - 7 * DAY + HOUR},
    }
    assert [one.is_moved for one in (in_order, of_other, late, next_day) if one] == [
        False,
        False,
        True,
        False,
    ]
    assert starts(next_day) == {
        "hour": {DAY, sunday},
        "day": {DAY, sunday},
        "week": {monday, monday - 7 * DAY + HOUR},
    }


def test_published_rows_are_kept_only_if_they_are_what_the_last_run_wrote(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Compacted ones still are. After rows, sessions or tables went, or much has changed, all is computed.

    The range is added up from blocks of days as soon as batches were merged.
    """
    monkeypatch.setattr(kept, "MOST_TOUCHED", 20)
    monkeypatch.setattr(batches, "FAN", 2)
    watched = Watched(spark, tmp_path, monkeypatch)
    watched.run(*sessions(1, 30, days=3))
    watched.run(session(20, 4 * DAY))

    spark.sql(f"OPTIMIZE delta.`{tmp_path}/reports/items`")
    assert starts(watched.run(session(21, 5 * DAY)))["hour"] == {5 * DAY}
    watched.check()
    assert {"visits.blocks", f"{STEPS}.blocks"} <= watched.lake.state().batches().keys()
    spark.sql(f"DELETE FROM delta.`{tmp_path}/reports/items` WHERE place = 1")
    assert watched.run() is None
    watched.check()
    assert watched.run() == Touched(starts=frozenset())
    assert watched.run(*sessions(2, 30, days=3)) is None
    watched.lake.sql("DELETE FROM {} WHERE key = 'k3'")
    watched.lake.sessions = [one for one in watched.lake.sessions if one["key"] != "k3"]
    assert watched.run() is None
    watched.check()
    shutil.rmtree(tmp_path / "reports" / "_partials")
    assert watched.run() is None
    watched.check()
