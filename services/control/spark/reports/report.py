"""The figures of one report, computed once for its tables and for the result of the run.

Planning a query costs more than computing a small one. So one frame has the rows of all tables but `keys`
(one row for each key), and each table is a part of it.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator, Mapping

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from services.control.spark.reports.counting import steps_part
from services.control.spark.reports.figures import (
    PAIR,
    key_rows,
    list_rows,
    period_rows,
    retention_rows,
    visits_by_key,
)
from services.control.spark.reports.kept import Kept
from services.control.spark.reports.periods import Range, Wanted
from services.control.spark.reports.plan import ReportPlan
from services.control.spark.reports.state import State

TABLES = ("periods", "items", "transitions", "retention", "keys")
OF_LIST = ("path", "rules", "period", "period_start", "item")
OF_ITEM = (*OF_LIST, "position", "count", "sessions", "place")
OF_PAIR = (*OF_LIST, "next", "count", "place")


class Report:
    """`rows`: the figures of the kinds `periods`, `lists` and `retention`, named by the column `kind`.

    A row has the columns of all kinds; those of other kinds are null. `keys`: a row for each key.
    """

    def __init__(self, figures: Mapping[str, DataFrame], keys: DataFrame) -> None:
        self._columns = {kind: rows.columns for kind, rows in figures.items()}
        named = [rows.withColumn("kind", f.lit(kind)) for kind, rows in figures.items()]
        self.rows = functools.reduce(lambda a, b: a.unionByName(b, allowMissingColumns=True), named).persist()
        self.keys = keys

    def __repr__(self) -> str:
        return f"<Report with {', '.join(self._columns)}>"

    def of(self, kind: str) -> DataFrame:
        """The rows of a kind, with its columns."""
        return self.rows.where(f.col("kind") == kind).select(*self._columns[kind])

    def tables(self) -> dict[str, DataFrame]:
        """The rows of each table."""
        is_pair = f.col("position") == PAIR
        return {
            "periods": self.of("periods"),
            "items": self.of("lists").where(~is_pair).select(*OF_ITEM),
            "transitions": self.of("lists").where(is_pair).select(*OF_PAIR),
            "retention": self.of("retention"),
            "keys": self.keys,
        }


@contextlib.contextmanager
def computed(state: State, plan: ReportPlan, within: Range, kept: Kept | None) -> Iterator[Report]:
    """The report, whose rows Spark keeps within the block. `kept`: rows that need not be computed."""
    wanted = Wanted(within=within, periods=plan.periods, touched=kept.touched if kept else None)
    parts = [steps_part(path, plan.rules) for path in plan.paths]
    steps = functools.reduce(DataFrame.unionAll, map(state.rows, parts))
    visits_of_range = state.rows_of_range(["visits"], within)
    by_key = visits_by_key(
        state.rows("visits"), visits_of_range, state.rows("keys"), _of_keys(wanted)
    ).persist()
    figures = {
        "periods": period_rows(state.rows("quarters"), by_key, wanted),
        "lists": list_rows(steps, state.rows_of_range(parts, within), wanted, plan.top).withColumn(
            "rules", f.lit(plan.rules.text)
        ),
        "retention": retention_rows(by_key, within, kept.retention() if kept else None),
    }
    if kept:
        figures["periods"] = _with(figures["periods"], kept.periods())
        figures["lists"] = _with(figures["lists"], kept.lists())
    report = Report(figures, key_rows(by_key))
    try:
        yield report
    finally:
        for frame in (report.rows, by_key):
            frame.unpersist()


def _of_keys(wanted: Wanted) -> Wanted:
    """What is computed of each key: retention needs days, and all of them if a key has moved."""
    touched = wanted.touched
    return Wanted(
        within=wanted.within,
        periods=tuple(dict.fromkeys((*wanted.periods, "day"))),
        touched=None if touched is None or touched.is_moved else touched,
    )


def _with(rows: DataFrame, kept: DataFrame) -> DataFrame:
    """The rows, and those that were kept."""
    named = [name for name in rows.columns if name in kept.columns]
    return rows.unionByName(kept.select(*named), allowMissingColumns=True)
