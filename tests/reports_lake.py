"""Random sessions, a lake that has them, and the reports of it against plain Python."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable, Iterable
from datetime import UTC, date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deltalake import DeltaTable

from cli.stack.jars.lock import jar_folder
from services.control.spark.reports.job import reports
from services.control.spark.reports.state import State
from services.control.spark.run.lock import unlocked
from services.control.spark.run.request import RunRequest
from shared.model.group import GroupSettings
from tests.reports_reference import Reference, Row, Rows
from tests.tables import write_sessions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SPRING = 1_774_652_400_000
"""2026-03-27T23:00:00Z: two days before the clocks of Europe are set forward."""
DAY = 86_400_000


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

    def copy(self, folder: Path, *reports: str) -> Lake:
        """The same lake in another folder, which has no tables; of those of the reports, only these."""

        def others(at: str, names: list[str]) -> set[str]:
            return set(names).difference(reports) if Path(at) == self.folder / "reports" else set()

        shutil.copytree(self.folder, folder, ignore=others, dirs_exist_ok=True)
        copied = Lake(self._spark, folder)
        copied.sessions = list(self.sessions)
        return copied

    def append(self, rows: Rows) -> None:
        """Adds the sessions in one commit."""
        self.sessions += [row for row in rows if row["group"] == "default"]
        # a commit without Spark takes milliseconds; what counts is what the job makes of it
        write_sessions(
            self.folder, [{"stream": 0, "epoch": 0, "log": 0, "day": _day(row)} | row for row in rows]
        )

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

    def state(self) -> State:
        """What the runs have counted."""
        return State(self._spark, f"{self.folder}/reports/_partials", "default", unlocked)

    def table(self, name: str) -> Rows:
        """The rows of a report, with times as UTC."""
        rows: Rows = DeltaTable(self.folder / "reports" / name).to_pyarrow_table().to_pylist()
        return [
            {
                column: value.astimezone(UTC) if isinstance(value, datetime) else value
                for column, value in row.items()
            }
            for row in rows
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


def _day(row: Row) -> date:
    return datetime.fromtimestamp(row["first_time"] / 1000, UTC).date()


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
