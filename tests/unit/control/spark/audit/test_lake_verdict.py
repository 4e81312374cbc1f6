"""The comparison of table and topic where one of them does not say everything."""

from __future__ import annotations

import pytest

from services.control.spark.audit.lake_verdict import LakeFacts, TableRow, TopicCopy, judge_lake
from services.control.spark.audit.verdict import Tally

FACTS = LakeFacts(start={0: 10, 1: 0}, end={0: 20, 1: 5}, position={0: 15})
"""Retention has removed a part of partition 0; the lake has not read partition 1 yet."""


def copy(partition: int, offset: int, fields: str = "f") -> TopicCopy:
    return TopicCopy("x", (partition, offset), fields, "d")


def row(place: tuple[int, int] | None, fields: str = "f", data: str = "d") -> TableRow:
    return TableRow("x", place, fields, data)


@pytest.mark.parametrize(
    ("copies", "rows", "found", "judged", "not_judged"),
    [
        # in both, wherever the row says that it comes from, unless that is another session's place
        ([copy(0, 12)], [row((0, 12))], [], 1, 0),
        ([copy(0, 12)], [row(None)], [], 1, 0),
        ([copy(0, 12)], [row((0, 13))], ["lake_different"], 1, 0),
        # only in the topic: due as far as the lake has read it
        ([copy(0, 14)], [], ["lake_missing"], 1, 0),
        ([copy(0, 15)], [], [], 0, 0),
        ([copy(1, 0)], [], [], 0, 0),
        # only in the table: extra where the topic was read
        ([], [row((0, 10))], ["lake_extra"], 1, 0),
        ([], [row((0, 9))], [], 0, 1),
        ([], [row((0, 20))], [], 0, 1),
        ([], [row(None)], [], 0, 1),
        # repeats of at_least_once: the row may be of any of them, also of one that was removed
        ([copy(0, 12, "g"), copy(0, 16)], [row((0, 16))], [], 1, 0),
        ([copy(0, 12)], [row((0, 9), "g")], [], 1, 1),
        ([copy(0, 12)], [row((0, 12), "g")], ["lake_different"], 1, 0),
        ([copy(0, 12)], [row((0, 12), data="e")], ["lake_different"], 1, 0),
        ([copy(0, 12)], [row((0, 12)), row((0, 12))], ["lake_duplicated"], 1, 0),
    ],
)
def test_only_what_both_say_is_judged(
    copies: list[TopicCopy], rows: list[TableRow], found: list[str], judged: int, not_judged: int
) -> None:
    """Retention, a table that is behind, and rows of another topic are no faults."""
    tally = Tally()

    findings = judge_lake(copies, rows, stream=0, key="k", facts=FACTS, tally=tally)

    assert [finding.kind for finding in findings] == found
    assert (tally.lake_judged, tally.lake_not_judged) == (judged, not_judged)


@pytest.mark.parametrize(("log", "found", "not_judged"), [(0, ["lake_missing"], 0), (5, [], 1)])
def test_sessions_of_an_earlier_log_may_be_deleted(log: int, found: list[str], not_judged: int) -> None:
    """After its stream was started over, the table need not hold what the topic still has of them."""
    tally = Tally()

    findings = judge_lake([copy(0, 12)], [], stream=0, key="k", facts=FACTS, tally=tally, log=log)

    assert [finding.kind for finding in findings] == found
    assert tally.lake_not_judged == not_judged


def test_a_row_in_the_partition_of_another_day_is_different() -> None:
    """Readers skip partitions by `day`, so they would miss it, though its columns are those of the topic."""
    astray = row((0, 12))._replace(has_own_day=False)

    findings = judge_lake([copy(0, 12)], [astray], stream=0, key="k", facts=FACTS, tally=Tally())

    assert [finding.kind for finding in findings] == ["lake_different"]
