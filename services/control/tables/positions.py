"""How far the lake has come in the sessions topics, from its own rows and without Spark.

Each row of `sessions` and `unreadable` says where its record is. Files that are new since the last look are
found by their statistics, so a look costs what has been added. Blocks: call it in a thread.
"""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder

from services.control.core.freshness import Positions
from services.control.tables.lake import Lake, UnknownTable, columns_of, reading

TABLES = ("sessions", "unreadable")
NEEDED = frozenset({"group", "topic_id", "topic_partition", "topic_offset"})


class LakePositions:
    """Remembers what it has seen of each table, so that only new files are read."""

    def __init__(self, lake: Lake) -> None:
        self._lake = lake
        self._seen: dict[str, _Seen] = {}

    def read(self) -> Positions | None:
        """The positions; None without a table of sessions that has them. Raises LakeUnavailable."""
        merged: dict[tuple[str, str], dict[int, int]] = {}
        for name in TABLES:
            try:
                table = self._lake.open(name)
            except UnknownTable:
                self._seen.pop(name, None)
                if name == TABLES[0]:
                    return None
                continue
            with reading(name):
                if not {column.name for column in columns_of(table)} >= NEEDED:
                    if name == TABLES[0]:
                        return None  # of an older layout
                    continue
                for place, offsets in self._of_table(name, table).items():
                    _raise(merged.setdefault(place, {}), offsets)
        return merged

    def _of_table(self, name: str, table: DeltaTable) -> dict[tuple[str, str], dict[int, int]]:
        seen = self._seen.get(name) or _Seen()
        version = (str(table.metadata().id), table.version())
        if seen.version != version:
            files = pa.table(table.get_add_actions(flatten=True))
            paths = frozenset(files.column("path").to_pylist())
            # a restored or compacted table has lost files, and with them perhaps positions
            is_grown = seen.version is not None and seen.version[0] == version[0] and seen.paths <= paths
            from_offset = _least_of_new(files, seen.paths) if is_grown else None
            positions = _read(table, from_offset)
            if is_grown:
                for place, offsets in seen.positions.items():
                    _raise(positions.setdefault(place, {}), offsets)
            seen = _Seen(version, paths, positions)
            self._seen[name] = seen
        return seen.positions


class _Seen:
    """What was read of one version of a table."""

    def __init__(
        self,
        version: tuple[str, int] | None = None,
        paths: frozenset[str] = frozenset(),
        positions: dict[tuple[str, str], dict[int, int]] | None = None,
    ) -> None:
        self.version = version
        self.paths = paths
        self.positions = positions or {}


def _raise(positions: dict[int, int], others: Mapping[int, int]) -> None:
    for partition, offset in others.items():
        positions[partition] = max(offset, positions.get(partition, 0))


def _least_of_new(files: pa.Table, seen: frozenset[str]) -> int | None:
    """The least offset in files that are new; None if they do not all say."""
    if "min.topic_offset" not in files.column_names:
        return None
    pairs = zip(files.column("path").to_pylist(), files.column("min.topic_offset").to_pylist(), strict=True)
    least = [offset for path, offset in pairs if path not in seen]
    return None if None in least else min(least, default=2**63 - 1)


def _read(table: DeltaTable, from_offset: int | None) -> dict[tuple[str, str], dict[int, int]]:
    where = "topic_offset IS NOT NULL" if from_offset is None else f"topic_offset >= {from_offset}"
    statement = (
        'SELECT "group", topic_id, topic_partition, max(topic_offset) AS last FROM positions '
        f'WHERE {where} AND topic_id IS NOT NULL GROUP BY "group", topic_id, topic_partition'
    )
    engine = QueryBuilder().register("positions", table)
    rows = pa.RecordBatchReader.from_stream(engine.execute(statement)).read_all().to_pylist()
    found: dict[tuple[str, str], dict[int, int]] = {}
    for row in rows:
        found.setdefault((row["group"], row["topic_id"]), {})[row["topic_partition"]] = row["last"] + 1
    return found
