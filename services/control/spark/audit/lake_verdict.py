"""Compares rows of the table `sessions` with sessions of the topic that begin at the same fragment.

Pure. The table must hold each readable session once, with equal columns, as far as the lake has read the
topic, and nothing else. Checksums of 32 bytes stand for the columns and for the fragments. A row whose
session is not in the topic is judged only if it names a place in the topic that the audit has read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from services.control.spark.audit.verdict import Finding, Tally

Place = tuple[int, int]
"""Partition and offset in the sessions topic."""


class TopicCopy(NamedTuple):
    """A session in the topic: its place, and the checksums (hex) of its fields and of its fragments.

    `log`: number of the stream's log that it comes from.
    """

    id: str
    place: Place
    fields: str
    data: str
    log: int = 0


class TableRow(NamedTuple):
    """A session in the table; `place` is None if the row has none, or one in another topic.

    `has_own_day`: whether it is in the partition of the day on which it opened.
    """

    id: str
    place: Place | None
    fields: str
    data: str
    has_own_day: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class LakeFacts:
    """By partition of the topic: the half-open range that was read, and how far the lake has come in it."""

    start: Mapping[int, int]
    end: Mapping[int, int]
    position: Mapping[int, int]

    def has(self, place: Place) -> bool:
        """Whether the audit has read this place."""
        partition, offset = place
        return self.start.get(partition, 0) <= offset < self.end.get(partition, 0)

    def is_due(self, place: Place) -> bool:
        """Whether the table must hold what is there."""
        partition, offset = place
        return self.start.get(partition, 0) <= offset < self.position.get(partition, 0)


def judge_lake(
    copies: Sequence[TopicCopy],
    rows: Sequence[TableRow],
    *,
    stream: int,
    key: str,
    facts: LakeFacts,
    tally: Tally,
    log: int = 0,
) -> list[Finding]:
    """The differences between what topic and table hold of one key at one first offset.

    `log`: the stream's present one. Sessions of an earlier one may be deleted from the table (docs/lake.md).
    """
    findings = []

    def find(kind: str, name: str, detail: str, n: int = 1) -> None:
        findings.append(Finding(kind, name, stream, key, detail, n))

    by_id: dict[str, tuple[list[TopicCopy], list[TableRow]]] = {}
    for copy in copies:
        if facts.has(copy.place):
            by_id.setdefault(copy.id, ([], []))[0].append(copy)
    for row in rows:
        by_id.setdefault(row.id, ([], []))[1].append(row)
    for name, (in_topic, in_table) in by_id.items():
        if not in_topic:
            places = [row.place for row in in_table]
            judged = [place for place in places if place is not None and facts.has(place)]
            tally.lake_judged += len(judged)
            tally.lake_not_judged += len(places) - len(judged)
            for partition, offset in judged:
                find("lake_extra", name, f"the topic has no such session at {partition}/{offset}")
        elif not in_table:
            due = [copy for copy in in_topic if facts.is_due(copy.place)]
            if any(copy.log < log for copy in due):
                tally.lake_not_judged += 1
            elif due:
                tally.lake_judged += 1
                find("lake_missing", name, "in the topic at {}/{}".format(*due[0].place))
        else:
            tally.lake_judged += 1
            if len(in_table) > 1:
                find("lake_duplicated", name, f"{len(in_table)} rows", len(in_table) - 1)
            for row in in_table:
                faults = _differences(row, in_topic, facts)
                if faults and _may_be_of_another(row, facts):
                    tally.lake_not_judged += 1
                elif faults:
                    find("lake_different", name, "; ".join(faults))
    return findings


def _may_be_of_another(row: TableRow, facts: LakeFacts) -> bool:
    """Whether the row may come from a copy that was not read: at_least_once may deliver several copies."""
    if row.place is not None:
        return not facts.has(row.place)
    return any(facts.start.values())


def _differences(row: TableRow, copies: Sequence[TopicCopy], facts: LakeFacts) -> list[str]:
    """What differs between the row and each copy of its session."""
    if not row.has_own_day:
        return ["its day is not that of `opened_at`"]
    if any(row.fields == copy.fields and row.data == copy.data for copy in copies):
        is_elsewhere = row.place is not None and facts.has(row.place)
        if is_elsewhere and row.place not in [copy.place for copy in copies]:
            return ["its place in the topic belongs to another session"]
        return []
    faults = []
    if all(row.fields != copy.fields for copy in copies):
        faults.append("its columns differ from the topic's")
    if all(row.data != copy.data for copy in copies):
        faults.append("its fragments differ from the topic's")
    return faults or ["its columns match one copy and its fragments another"]
