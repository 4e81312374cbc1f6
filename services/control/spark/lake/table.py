"""A Delta table of the lake: its description, its rows, its history."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec
from pyspark.sql import DataFrame, SparkSession

from services.control.spark.delta import (
    NO_TABLE,
    Commit,
    Overtaken,
    Transaction,
    commits,
    delta_log,
    files_of,
    newest_snapshot,
    raise_if_overtaken,
)

NO_VECTORS: Final = {"delta.enableDeletionVectors": "false"}
"""Property of every new table: without deletion vectors any reader of Delta can read it."""


class LakeTable:
    """The table at `path`."""

    def __init__(self, spark: SparkSession, path: str) -> None:
        self._spark = spark
        self.path = path
        self._log = delta_log(spark, path)

    def __repr__(self) -> str:
        return f"<LakeTable {self.path}>"

    @property
    def sql_name(self) -> str:
        """Its name in SQL."""
        return f"delta.`{self.path}`"

    def version(self) -> int:
        """The version of its last commit, or NO_TABLE."""
        version: int = self._snapshot().version()
        return version

    def exists(self) -> bool:
        """Whether there is such a table."""
        return self.version() != NO_TABLE

    def size(self) -> int:
        """Bytes of its files."""
        size: int = self._snapshot().sizeInBytes()
        return size

    def create(
        self,
        columns: Mapping[str, str],
        partitions: Iterable[str],
        properties: Mapping[str, str] = NO_VECTORS,
    ) -> None:
        """Creates it if it is missing; `columns`: SQL types by name."""
        listed = ", ".join(f"`{name}` {kind}" for name, kind in columns.items())
        by = ", ".join(f"`{name}`" for name in partitions)
        those = ", ".join(f"'{name}' = '{value}'" for name, value in properties.items())
        self._change(
            f"CREATE TABLE IF NOT EXISTS {self.sql_name} ({listed}) USING delta PARTITIONED BY ({by}) "
            f"TBLPROPERTIES ({those})"
        )

    def columns(self) -> dict[str, str]:
        """Its columns with their types; none if there is no table."""
        snapshot = self._snapshot()
        if snapshot.version() == NO_TABLE:
            return {}
        return {field.name(): field.dataType().simpleString() for field in snapshot.schema().fields()}

    def partitions(self) -> tuple[str, ...]:
        """The columns that it is partitioned by."""
        return tuple(self._snapshot().metadata().partitionSchema().fieldNames())

    def missing(self, columns: Mapping[str, str]) -> dict[str, str]:
        """Those of the columns that the table does not have."""
        present = {name.lower() for name in self._snapshot().schema().fieldNames()}
        return {name: kind for name, kind in columns.items() if name.lower() not in present}

    def add_columns(self, columns: Mapping[str, str]) -> None:
        """Adds columns, which are null in the rows that are there. Raises Overtaken, also if it has one."""
        listed = ", ".join(f"`{name}` {kind}" for name, kind in columns.items())
        try:
            self._change(f"ALTER TABLE {self.sql_name} ADD COLUMNS ({listed})")
        except Exception:
            if self.missing(columns) != dict(columns):
                raise Overtaken("another writer has added a column") from None
            raise

    def property(self, name: str, default: str) -> str:
        """A property of the table."""
        properties = self._snapshot().metadata().configuration()
        return str(properties.apply(name)) if properties.contains(name) else default

    def set_properties(self, properties: Mapping[str, str]) -> None:
        """Sets properties. The commit makes concurrent writers start over."""
        listed = ", ".join(f"'{name}' = '{value}'" for name, value in properties.items())
        self._change(f"ALTER TABLE {self.sql_name} SET TBLPROPERTIES ({listed})")

    def read(self, version: int) -> DataFrame:
        """Its rows at this version."""
        return self._spark.read.format("delta").option("versionAsOf", version).load(self.path)

    def files(self) -> DataFrame:
        """Its files, as Delta's log describes them: `path`, `partitionValues`, `size` (bytes), `stats`."""
        return files_of(self._spark, self._snapshot())

    def commits(self, version: int) -> Iterator[Commit]:
        """The commits from this version back, newest first, as far as the log reaches."""
        return commits(self._spark, self._log, version)

    def begin(self, application: str) -> Transaction:
        """A transaction on the table as it is now."""
        return Transaction(self._spark, self._log, application)

    def _change(self, statement: str) -> None:
        """Changes the table's description. Raises Overtaken if another writer was first."""
        try:
            self._spark.sql(statement)
        except Exception as error:
            raise_if_overtaken(error)
            raise

    def _snapshot(self) -> Any:
        return newest_snapshot(self._spark, self._log)


def note_text(content: object) -> str:
    """Any note as the text of a commit."""
    return msgspec.json.encode(content).decode()
