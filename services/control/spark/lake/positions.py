"""Finds out up to where the table holds a group's sessions: from its commits, or if need be from its rows."""

from __future__ import annotations

from itertools import islice
from typing import Final

import msgspec
from pyspark.sql import functions as f

from services.control.spark.delta import Commit, Overtaken, Transaction
from services.control.spark.lake.plan import (
    Held,
    Note,
    carries_on,
    note_of,
    read_note,
    with_counts,
)
from services.control.spark.lake.table import LakeTable

MOST_COMMITS: Final = 500
"""How many commits to look back at most: other groups may have committed in between."""
NO_NUMBER: Final = -1
"""The number of a group that has not committed yet."""
EDITS: Final = frozenset({"DELETE", "UPDATE"})
_CREATED: Final = "CREATE TABLE"


def current_note(table: LakeTable, version: int, group: str) -> Note:
    """The group's note as of this version.

    Reads the commits since the group's last one. It reads the places of the group's rows only after a
    RESTORE, a write by another program, or a loss of the log.
    """
    edited = False
    for commit in islice(table.commits(version), MOST_COMMITS):
        note = read_note(commit.note, group)
        if note is not None:
            return _recounted(table, version, note) if edited else note
        if commit.operation == _CREATED:
            return Note(group=group, number=NO_NUMBER)
        if not _is_passed(commit):
            break
        edited = edited or commit.operation in EDITS
    return note_of(group, _held(table, version, group))


def still_holds(table: LakeTable, transaction: Transaction) -> None:
    """Raises Overtaken if since then the table was restored, or written by a program other than Baton."""
    newest = table.version()
    if newest == transaction.version:
        return
    since = list(islice(table.commits(newest), newest - transaction.version))
    if len(since) < newest - transaction.version or not all(_is_passed(commit) for commit in since):
        raise Overtaken(f"the table has changed since version {transaction.version}")


def _is_passed(commit: Commit) -> bool:
    """Whether the group's note still holds after this commit, which is not the group's own."""
    return carries_on(commit.operation, commit.note)


def _recounted(table: LakeTable, version: int, note: Note) -> Note:
    counts = note_of(note.group, _held(table, version, note.group))
    return with_counts(
        msgspec.structs.replace(note, sessions=0, fragments=0, bytes=0),
        *(counts.sessions, counts.fragments, counts.bytes),
    )


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
