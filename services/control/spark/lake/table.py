"""A Delta table of the lake, and transactions that begin at a snapshot and commit when the caller says so.

`DataFrameWriter` commits by itself. A transaction of Delta's own, which this file reaches through Spark's
JVM, lets the lake count what was written, set unreadable records aside and check its lock right before the
commit. It also fails if the same application has committed since the snapshot: of two writers that planned
from the same state one wins. All calls into Delta's classes stand here and in `delta.py` (docs/adr/0035).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

import msgspec
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from services.control.spark.delta import NO_TABLE, delta_log, newest_snapshot
from shared.errors import Conflict

LAYOUT: Final = "baton.layout"
"""Table property: `2` where `day` is the UTC day of `opened_at`. Missing in tables of earlier versions."""
LAYOUT_NOW: Final = "2"
PROPERTIES: Final = {LAYOUT: LAYOUT_NOW, "delta.enableDeletionVectors": "false"}
"""Properties of a new table; without deletion vectors any reader of Delta can read it."""
_OVERTAKEN: Final = ("Concurrent", "MetadataChanged", "ProtocolChanged")


class Overtaken(Conflict):
    """Another writer has committed since this transaction began: plan again."""


class Commit(NamedTuple):
    """One entry of the table's history."""

    version: int
    operation: str
    note: str | None


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

    def create(self, columns: Mapping[str, str], partitions: tuple[str, ...]) -> None:
        """Creates it if it is missing; `columns`: SQL types by name."""
        listed = ", ".join(f"`{name}` {kind}" for name, kind in columns.items())
        by = ", ".join(f"`{name}`" for name in partitions)
        properties = ", ".join(f"'{name}' = '{value}'" for name, value in PROPERTIES.items())
        self._change(
            f"CREATE TABLE IF NOT EXISTS {self.sql_name} ({listed}) USING delta PARTITIONED BY ({by}) "
            f"TBLPROPERTIES ({properties})"
        )

    def missing(self, columns: Mapping[str, str]) -> dict[str, str]:
        """Those of the columns that the table does not have."""
        present = {name.lower() for name in self._snapshot().schema().fieldNames()}
        return {name: kind for name, kind in columns.items() if name.lower() not in present}

    def add_columns(self, columns: Mapping[str, str]) -> None:
        """Adds columns, which are null in the rows that are there."""
        listed = ", ".join(f"`{name}` {kind}" for name, kind in columns.items())
        self._change(f"ALTER TABLE {self.sql_name} ADD COLUMNS ({listed})")

    def layout(self) -> int:
        """1 for a table of an earlier version, whose `day` is the day of `first_time`; else 2."""
        return int(self.property(LAYOUT, "1"))

    def property(self, name: str, default: str) -> str:
        """A property of the table."""
        properties = self._snapshot().metadata().configuration()
        return str(properties.apply(name)) if properties.contains(name) else default

    def set_properties(self, properties: Mapping[str, str]) -> None:
        """Sets properties, in a commit that makes writers who are under way begin again."""
        listed = ", ".join(f"'{name}' = '{value}'" for name, value in properties.items())
        self._change(f"ALTER TABLE {self.sql_name} SET TBLPROPERTIES ({listed})")

    def read(self, version: int) -> DataFrame:
        """Its rows at this version."""
        return self._spark.read.format("delta").option("versionAsOf", version).load(self.path)

    def files(self) -> DataFrame:
        """Its files, as Delta's log describes them: `path`, `partitionValues`, `size` (bytes), `stats`."""
        return DataFrame(self._snapshot().allFiles().toDF(), self._spark)

    def commits(self, version: int) -> Iterator[Commit]:
        """The commits from this version back, newest first, as far as the log reaches."""
        nothing = self._spark._jvm.scala.Option.empty()
        for at in range(version, -1, -1):
            changes = self._log.getChanges(at, at, nothing, False)
            if not changes.hasNext():
                return
            yield _commit(at, changes.next()._2().iterator())

    def begin(self, application: str) -> Transaction:
        """A transaction on the table as it is now."""
        nothing = self._spark._jvm.scala.Option.empty()
        self._spark._jvm.org.apache.spark.sql.classic.SparkSession.setActiveSession(
            self._spark._jsparkSession
        )
        snapshot = self._snapshot()
        some = self._spark._jvm.scala.Option.apply(snapshot)
        return Transaction(self._spark, self._log.startTransaction(nothing, some), application)

    def _change(self, statement: str) -> None:
        """Changes the table's description. Raises Overtaken if another writer was first."""
        try:
            self._spark.sql(statement)
        except Exception as error:
            raise_if_overtaken(error)
            raise

    def _snapshot(self) -> Any:
        return newest_snapshot(self._spark, self._log)


class Transaction:
    """An append by `application`, which counts its commits in the table."""

    def __init__(self, spark: SparkSession, transaction: Any, application: str) -> None:
        self._spark = spark
        self._transaction = transaction
        self._application = application
        self.version: int = transaction.readVersion()
        self._files: Any = None
        # makes Delta compare the application's number again at the commit
        transaction.readTxn().addOne(application)

    def __repr__(self) -> str:
        return f"<Transaction of {self._application} on version {self.version}>"

    def recorded(self) -> int:
        """The number of the application's last commit, or -1. Costs a look at the whole log."""
        number: int = self._transaction.txnVersion(self._application)
        return number

    def write(self, rows: DataFrame) -> None:
        """Writes the rows into files, which no reader sees before the commit."""
        self._files = self._transaction.writeFiles(rows._jdf)

    def commit(self, note: str, number: int) -> int:
        """Commits what was written, under the application's next number; returns the new version.

        Raises Overtaken.
        """
        scala = self._spark._jvm.scala
        nothing = scala.Option.empty()
        write = getattr(self._spark._jvm.org.apache.spark.sql.delta, "DeltaOperations$Write")
        operation = write(
            *(
                self._spark._jvm.org.apache.spark.sql.SaveMode.Append,
                nothing,
                nothing,
                scala.Option.apply(note),
            ),
            *(nothing, nothing, nothing, nothing, nothing),
        )
        self._transaction.updateSetTransaction(self._application, number, nothing)
        try:
            version: int = self._transaction.commit(self._files, operation)
        except (Py4JJavaError, PySparkException) as error:
            raise_if_overtaken(error)
            raise
        return version


def _commit(version: int, actions: Any) -> Commit:
    while actions.hasNext():  # Spark writes it first, other writers elsewhere
        action = actions.next()
        if action.getClass().getSimpleName() == "CommitInfo":
            note = action.userMetadata()
            return Commit(version, str(action.operation()), str(note.get()) if note.isDefined() else None)
    return Commit(version, "", None)


def raise_if_overtaken(error: Exception) -> None:
    """Raises Overtaken if the error means that another writer has committed."""
    if isinstance(error, Py4JJavaError):
        name = str(error.java_exception.getClass().getSimpleName())
        if name.startswith(_OVERTAKEN):
            raise Overtaken(f"another writer has committed to the table ({name})") from None


def note_text(content: object) -> str:
    """Any note as text."""
    return msgspec.json.encode(content).decode()
