"""Which files of a Delta table are new between two of its versions, from the text of its commits.

Pure. A commit is a file of JSON lines, one action each (Delta's protocol). A table to which rows are only
appended has commits that add files with `dataChange`; compaction adds and removes files without it. Whatever
else changes rows makes sums of the earlier rows wrong: that is `Rewritten`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import unquote

import msgspec


class Rewritten(Exception):
    """The rows that were counted are not all of the table's earlier rows any more; the message says why."""


class NewFiles(msgspec.Struct, frozen=True, kw_only=True):
    """Paths of data files, as they stand in the table's folder.

    `compacted`: those of `paths` that a later commit has compacted, so VACUUM may have deleted them.
    """

    paths: tuple[str, ...]
    compacted: tuple[str, ...]


def commit_name(version: int) -> str:
    """The file of a commit in the table's folder.

    >>> commit_name(12)
    '_delta_log/00000000000000000012.json'
    """
    return f"_delta_log/{version:020d}.json"


def commit_id(text: str) -> str:
    """Recognizes a commit: a table that was restored from a copy has other commits under the same numbers."""
    return hashlib.blake2b(text.encode(), digest_size=12).hexdigest()


def new_files(commits: Mapping[int, str], *, after: int, until: int, known: str, group: str) -> NewFiles:
    """The files of the group with the rows that the versions after `after`, up to `until`, have added.

    `commits`: the text of each commit from `after` on. `known`: `commit_id` of the version `after`.
    Raises Rewritten.
    """
    if missing := [version for version in range(after, until + 1) if version not in commits]:
        raise Rewritten(f"the log of the table has lost version {missing[0]}")
    if commit_id(commits[after]) != known:
        raise Rewritten(f"version {after} of the table is another than the one that was counted")
    added: dict[str, None] = {}
    compacted = set()
    for version in range(after + 1, until + 1):
        for kind, action in _file_actions(commits[version]):
            # a removal need not say of which partition
            if (action.get("partitionValues") or {}).get("group", group) != group:
                continue
            path = unquote(action["path"])
            if not action.get("dataChange", True):
                if kind == "remove":
                    compacted.add(path)
            elif kind == "remove" or action.get("deletionVector"):
                raise Rewritten(f"version {version} of the table has deleted or changed rows")
            else:
                added[path] = None
    return NewFiles(paths=tuple(added), compacted=tuple(path for path in added if path in compacted))


def _file_actions(text: str) -> Iterator[tuple[str, dict[str, Any]]]:
    for line in text.splitlines():
        for kind, action in msgspec.json.decode(line).items():
            if kind in ("add", "remove"):
                yield kind, action
