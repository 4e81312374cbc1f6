"""Which files are new between two versions of a table, against a table that remembers its rows."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.control.spark.reports.commits import NewFiles, Rewritten, commit_id, new_files

GROUP = {"partitionValues": {"group": "g", "day": "2026-01-01"}}
OTHER = {"partitionValues": {"group": "other", "day": "2026-01-01"}}


def commit(*actions: dict[str, Any]) -> str:
    """The text of a commit."""
    return "\n".join(json.dumps(action) for action in ({"commitInfo": {"txnId": "t"}}, *actions))


def added(path: str, **more: Any) -> dict[str, Any]:
    return {"add": {"path": path, "dataChange": True, **GROUP, **more}}


def removed(path: str, **more: Any) -> dict[str, Any]:
    return {"remove": {"path": path, "dataChange": True, **GROUP, **more}}


def between(*texts: str, known: str | None = None) -> NewFiles:
    """What the commits after the first one have added to group g."""
    commits = dict(enumerate(texts, 7))
    return new_files(commits, after=7, until=6 + len(texts), known=known or commit_id(texts[0]), group="g")


@given(st.lists(st.sampled_from(["append", "append to another group", "compact", "metadata"]), max_size=12))
def test_every_appended_row_is_in_one_new_file(kinds: list[str]) -> None:
    """Compaction moves rows between files and adds none; other groups' files do not count."""
    texts, appended, live = [commit(added("before"))], [], ["before"]
    for number, kind in enumerate(kinds):
        name = f"file {number}"
        if kind == "append":
            appended.append(name)
            live.append(name)
            texts.append(commit(added(name.replace(" ", "%20"))))
        elif kind == "compact":
            gone = [removed(path.replace(" ", "%20"), dataChange=False) for path in live]
            texts.append(commit(added(name, dataChange=False), *gone))
            live = [name]
        else:
            texts.append(commit(added(name, **OTHER), removed("x", **OTHER)) if "group" in kind else commit())

    found = between(*texts)

    assert list(found.paths) == appended
    assert set(found.compacted) == set(appended) - set(live)


@pytest.mark.parametrize(
    "action",
    [removed("a"), removed("a", partitionValues=None), added("a", deletionVector={"storageType": "u"})],
)
def test_rows_that_went_make_all_sums_wrong(action: dict[str, Any]) -> None:
    """A deletion, a restore or a deletion vector. A removal that names no partition may be of any group."""
    with pytest.raises(Rewritten, match="version 8 of the table has deleted or changed rows"):
        between(commit(), commit(action))


def test_a_table_that_was_restored_from_a_copy_is_recognized() -> None:
    """Its versions have the same numbers and other content."""
    with pytest.raises(Rewritten, match="version 7 of the table is another than the one that was counted"):
        between(commit(added("b")), commit(added("c")), known=commit_id(commit(added("a"))))


def test_a_log_with_a_gap_is_not_read_over() -> None:
    """Log cleanup may have deleted the commits that the state has not read."""
    with pytest.raises(Rewritten, match="has lost version 3"):
        new_files({2: commit(), 4: commit()}, after=2, until=4, known=commit_id(commit()), group="g")
