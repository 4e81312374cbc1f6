"""How far the lake has read, from the history of its table: what others do to the rows does not change it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import pytest

from services.control.spark.delta import Commit
from services.control.spark.lake.plan import Note
from services.control.spark.lake.positions import CREATED, NO_NUMBER, newest_note

OWN = Note(group="g", topics={"T": {0: 4}})
OTHER = Note(group="other", topics={"T": {0: 9}})
NEW = Note(group="g", number=NO_NUMBER)


class History:
    """A table's commits, oldest first; each an operation, or a note of the lake."""

    def __init__(self, *commits: str | Note) -> None:
        self._commits = commits

    def commits(self, version: int) -> Iterator[Commit]:
        """As LakeTable."""
        for at in range(version, -1, -1):
            one = self._commits[at]
            yield Commit(at, one, None) if isinstance(one, str) else Commit(at, "WRITE", one.encode())


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

    assert newest_note(table, len(commits) - 1, "g") == (note, is_changed)
