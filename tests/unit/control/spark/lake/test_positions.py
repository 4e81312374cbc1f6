"""How far the lake has read, from the history of its table: what others do to the rows does not change it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any, cast

import pytest

from services.control.spark.delta import Commit
from services.control.spark.lake.plan import Note
from services.control.spark.lake.positions import (
    CREATED,
    MOST_COMMITS,
    NO_NUMBER,
    OLD_COMMITS,
    OLD_MS,
    newest_note,
)

OWN = Note(group="g", topics={"T": {0: 4}})
OTHER = Note(group="other", topics={"T": {0: 9}})
NEW = Note(group="g", number=NO_NUMBER)


class History:
    """A table's commits, oldest first; each an operation, or a note of the lake."""

    def __init__(self, *commits: str | Note, at_ms: int | None = None) -> None:
        self._commits = commits
        self.at_ms = time.time_ns() // 1_000_000 if at_ms is None else at_ms

    def commits(self, version: int) -> Iterator[Commit]:
        """As LakeTable."""
        for at in range(version, -1, -1):
            one = self._commits[at]
            operation, note = (one, None) if isinstance(one, str) else ("WRITE", one.encode())
            yield Commit(at, operation, note, self.at_ms)


@pytest.mark.parametrize(
    ("commits", "note", "is_changed"),
    [
        ([CREATED, OWN], OWN, False),
        ([CREATED, OWN, "OPTIMIZE", OTHER], OWN, False),
        # rows that were deleted or overwritten, all of them too
        *(([CREATED, OWN, edit], OWN, True) for edit in ("DELETE", "MERGE", "WRITE", "")),
        ([CREATED, "DELETE", OWN, OTHER], OWN, False),
        # an empty table has nothing to count; one that others filled has
        ([CREATED], NEW, False),
        ([CREATED, OTHER], NEW, False),
        ([CREATED, "MERGE"], None, True),
        # set back, made anew, or without its first commits
        ([CREATED, OWN, "RESTORE"], None, False),
        ([CREATED, OWN, "RESTORE", OWN], OWN, False),
        ([CREATED, OWN, "CREATE OR REPLACE TABLE AS SELECT"], None, False),
        (["WRITE"], None, True),
    ],
)
def test_the_newest_note_holds_until_the_table_is_set_back(
    commits: list[str | Note], note: Note | None, is_changed: bool
) -> None:
    """None: only the rows show how far the table has come."""
    table = cast(Any, History(*commits))

    found = newest_note(table, len(commits) - 1, "g")

    assert (found.note, found.is_changed) == (note, is_changed)


@pytest.mark.parametrize(
    ("others", "age_ms", "is_old"),
    [(0, 0, False), (OLD_COMMITS - 1, 0, False), (OLD_COMMITS, 0, True), (0, OLD_MS + 60_000, True)],
)
@pytest.mark.parametrize("first", [OWN, CREATED])
def test_a_note_is_old_before_others_commits_or_its_age_hide_it(
    first: str | Note, others: int, age_ms: int, is_old: bool
) -> None:
    """Then a run writes it anew. So does a group that has never had a session."""
    at_ms = time.time_ns() // 1_000_000 - age_ms
    table = cast(Any, History(CREATED, first, *[OTHER] * others, at_ms=at_ms))

    found = newest_note(table, others + 1, "g")

    assert found.note == (OWN if first is OWN else NEW)
    assert found.is_old is is_old
    assert OLD_COMMITS < MOST_COMMITS


def test_a_note_that_only_the_rows_give_is_old() -> None:
    """It is the first thing that the next run writes, so that later ones need not read the rows."""
    table = cast(Any, History("WRITE", *[OTHER] * MOST_COMMITS))

    assert newest_note(table, MOST_COMMITS, "g") == (None, False, True)
