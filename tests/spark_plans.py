"""What Spark has executed: the physical plans of its queries, for tests of what they shuffle."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

T = TypeVar("T")
_SHUFFLE = re.compile(r"(?m)^\(\d+\) Exchange\nInput \[\d+\]: \[(.*)\]\nArguments: (.*)$")
_INITIAL = re.compile(r"(?m)^\+- == Initial Plan ==$")
_IN_TREE = re.compile(r"(?m)^[ :+*-]*Exchange \(\d+\)$")
_OF_DELTA = "domainMetadata"
"""A column that only the queries have with which Delta reads its own log."""


def plans_of(spark: SparkSession, work: Callable[[], T]) -> tuple[T, list[str]]:
    """What the work returns, and the plans of its queries as Spark's UI shows them, without Delta's own."""
    store = spark._jsparkSession.sharedState().statusStore()
    bus = spark.sparkContext._jsc.sc().listenerBus()
    bus.waitUntilEmpty()
    before = {one.executionId() for one in _listed(store)}
    result = work()
    bus.waitUntilEmpty()
    new = [one for one in _listed(store) if one.executionId() not in before]
    plans = [str(one.physicalPlanDescription()) for one in new]
    return result, [plan for plan in plans if _OF_DELTA not in plan]


def shuffles(plan: str) -> int:
    """How many shuffles the plan has, as it was executed in the end."""
    return len(_IN_TREE.findall(_INITIAL.split(plan)[0]))


def shuffled(plan: str) -> list[tuple[set[str], str]]:
    """The columns of each shuffle, and how it divides the rows."""
    return [(set(re.findall(r"(\w+)#", columns)), how) for columns, how in _SHUFFLE.findall(plan)]


def _listed(store: Any) -> list[Any]:
    found = store.executionsList()
    return [found.apply(at) for at in range(found.size())]
