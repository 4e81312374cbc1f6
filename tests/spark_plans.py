"""What Spark has executed: the physical plans of its queries, for tests of their shuffles."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EXCHANGE = re.compile(r"(?m)^[ :+*-]*Exchange\b")
"""A shuffle in the tree of a plan."""


def plans_of(spark: SparkSession, work: Callable[[], object]) -> list[str]:
    """The plans of the queries that the work executes, as Spark's UI shows them."""
    store = spark._jsparkSession.sharedState().statusStore()
    bus = spark.sparkContext._jsc.sc().listenerBus()
    bus.waitUntilEmpty()
    before = {one.executionId() for one in _listed(store)}
    work()
    bus.waitUntilEmpty()
    return [str(one.physicalPlanDescription()) for one in _listed(store) if one.executionId() not in before]


def _listed(store: Any) -> list[Any]:
    found = store.executionsList()
    return [found.apply(at) for at in range(found.size())]
