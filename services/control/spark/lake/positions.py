"""Finds out up to where the table holds a group's sessions: from its commits, or if need be from its rows."""

from __future__ import annotations

import time
from datetime import date, timedelta
from itertools import islice
from typing import Final, NamedTuple

import msgspec
from pyspark.sql import functions as f

from services.control.spark.delta import Overtaken, Transaction
from services.control.spark.lake.checksums import day_sums
from services.control.spark.lake.plan import (
    Held,
    Note,
    carries_on,
    changes_rows,
    note_of,
    read_note,
)
from services.control.spark.lake.sums import Sums
from services.control.spark.lake.table import LakeTable

MOST_COMMITS: Final = 500
"""How many commits to look back at most: other groups may have committed in between."""
OLD_COMMITS: Final = 100
OLD_MS: Final = 7 * 86_400_000
"""How far back, and how old, a note may be: a run renews an older one. Delta removes it after 30 days."""
NO_NUMBER: Final = -1
"""The number of a group that has not committed yet."""
CREATED: Final = "CREATE TABLE"
"""The operation that makes an empty table."""


class Noted(NamedTuple):
    """`note`: the group's, or None if only the rows show it. `is_changed`: rows were changed since.

    `is_old`: the next search may not find it any more.
    """

    note: Note | None
    is_changed: bool
    is_old: bool = True


def newest_note(table: LakeTable, version: int, group: str) -> Noted:
    """The group's newest note that still holds at this version. Reads the commits since."""
    is_changed = False
    before_ms = time.time() * 1000 - OLD_MS
    for commit in islice(table.commits(version), MOST_COMMITS):
        is_old = version - commit.version >= OLD_COMMITS or commit.at_ms < before_ms
        if note := read_note(commit.note, group):
            return Noted(note, is_changed, is_old)
        if not carries_on(commit.operation):
            is_new = commit.operation == CREATED and not is_changed
            return Noted(Note(group=group, number=NO_NUMBER) if is_new else None, is_changed, is_old)
        is_changed = is_changed or changes_rows(commit.operation, commit.note)
    return Noted(None, is_changed)


def note_of_rows(table: LakeTable, version: int, group: str) -> Note:
    """The note that the places of the group's rows give."""
    return note_of(group, _held(table, version, group))


def current_note(table: LakeTable, version: int, group: str) -> tuple[Note, bool]:
    """The group's note as of this version, and whether a run writes it anew although nothing is to append.

    Reads the places of the group's rows only if they were changed, after a RESTORE or a loss of the log.
    """
    note, is_changed, is_old = newest_note(table, version, group)
    if note is not None and not is_changed:
        return note, is_old
    counted = note_of_rows(table, version, group)
    if note is None:
        return counted, True
    counts = {name: getattr(counted, name) for name in ("sessions", "fragments", "bytes")}
    # somebody may have added rows of sessions that the lake has not read yet
    return msgspec.structs.replace(note, unsure=True, **counts), True


def recounted(table: LakeTable, version: int, note: Note) -> Note:
    """The note with the sums of the rows that the table has. Reads all of the group's."""
    rows = table.read(version).where(f.col("group") == note.group)
    return msgspec.structs.replace(note, sums=Sums().plus(day_sums(rows)))


def begun_sums(table: LakeTable, note: Note) -> Sums:
    """Sums for a table that has none: of the days after the newest one that has rows already."""
    if note.number == NO_NUMBER:
        return Sums()
    value = f.col("partitionValues")
    newest = table.files().where(value["group"] == note.group).agg(f.max(value["day"])).first()
    if newest is None or newest[0] is None:
        return Sums()
    return Sums(since=(date.fromisoformat(newest[0]) + timedelta(days=1)).isoformat())


def still_holds(table: LakeTable, transaction: Transaction) -> None:
    """Raises Overtaken if since then the table was restored or made anew."""
    newest = table.version()
    if newest == transaction.version:
        return
    since = list(islice(table.commits(newest), newest - transaction.version))
    if len(since) < newest - transaction.version or not all(carries_on(commit.operation) for commit in since):
        raise Overtaken(f"the table has changed since version {transaction.version}")


def _held(table: LakeTable, version: int, group: str) -> list[Held]:
    rows = (
        table.read(version)
        .where(f.col("group") == group)
        .groupBy("topic_id", "topic_partition")
        .agg(
            f.max("topic_offset").alias("last_offset"),
            f.count("*").alias("sessions"),
            f.sum("fragments").alias("fragments"),
            f.sum("bytes").alias("bytes"),
        )
    )
    return [Held(**row.asDict()) for row in rows.collect()]
