"""How far the lake has come in the sessions topics, without Spark: from the notes in the table's commits.

Each commit of the job `lake` notes up to where the table holds its group's sessions (`spark/lake/plan.py`).
Of groups whose newest note is not true any more, or is too far back, the rows say it, as they do for the job.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from deltalake import DeltaTable

from services.control.core.lake.freshness import Positions
from services.control.spark.lake.plan import Note, carries_on, changes_rows, parse_note
from services.control.tables.lake import Lake, quoted, reading, rows_of

TABLE: Final = "sessions"
NEEDED: Final = frozenset({"group", "topic_id", "topic_partition", "topic_offset"})
COMMITS: Final = (20, 500)
"""How many commits to look back, and how many if some groups have none among the first."""
_CREATED: Final = "CREATE TABLE"


class LakePositions:
    """Looks at each version of the table once."""

    def __init__(self, lake: Lake) -> None:
        self._lake = lake
        self._seen: object = None
        self._positions: Positions = {}

    def read(self, groups: Collection[str]) -> Positions:
        """Of these groups at least. Raises UnknownTable, LakeUnavailable."""
        table = self._lake.open(TABLE)
        with reading(TABLE):
            now = (table.metadata().id, table.version(), sorted(groups))
            if self._seen != now:
                self._positions = _positions(table, groups)
                self._seen = now
        return self._positions


def _positions(table: DeltaTable, groups: Collection[str]) -> Positions:
    notes, is_all = _notes(table, groups)
    found: dict[tuple[str, str], Mapping[int, int]] = {} if is_all else _in_rows(table, notes)
    for note in notes.values():
        found |= {(note.group, topic): offsets for topic, offsets in note.topics.items()}
    return found


def _notes(table: DeltaTable, groups: Collection[str]) -> tuple[dict[str, Note], bool]:
    """The newest note of each group as far back as notes are true, and whether no group can have others."""
    notes: dict[str, Note] = {}
    for most in COMMITS:
        is_changed = False
        for commit in table.history(most):
            operation, text = str(commit.get("operation")), commit.get("userMetadata")
            if note := parse_note(text):
                notes.setdefault(note.group, note)
            elif not carries_on(operation):
                is_empty = operation == _CREATED and not is_changed
                return notes, is_empty or notes.keys() >= set(groups)
            is_changed = is_changed or changes_rows(operation, text)
        if notes.keys() >= set(groups):
            return notes, True
    return notes, False


def _in_rows(table: DeltaTable, without: Collection[str]) -> dict[tuple[str, str], Mapping[int, int]]:
    """Of all other groups; costs four narrow columns of their rows."""
    others = "".join(f' AND "group" <> {quoted(group)}' for group in without)
    statement = (
        'SELECT "group", topic_id, topic_partition, max(topic_offset) AS last FROM sessions '
        f"WHERE topic_offset IS NOT NULL AND topic_id IS NOT NULL{others} "
        'GROUP BY "group", topic_id, topic_partition'
    )
    found: dict[tuple[str, str], dict[int, int]] = {}
    for row in rows_of(table, TABLE, statement):
        found.setdefault((row["group"], row["topic_id"]), {})[row["topic_partition"]] = row["last"] + 1
    return {**found}
