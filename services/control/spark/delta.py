"""Delta's own classes, reached through Spark's JVM: all calls into them are here and in `lake/table.py`.

`DataFrameWriter` commits as soon as it has written. With one of Delta's own transactions a job can count what
was written and check its lock right before the commit, and it costs a third of an overwrite (docs/adr/0035,
0036). Reading the log directly saves the Spark job that SQL would start.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeVar

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from shared.errors import Conflict

NO_TABLE = -1
MOST_COMMITS: Final = 200
"""How many commits to search for a note; if none has it, the table's whole state is computed instead."""
MOST_OVERTAKEN: Final = 5
"""How often in a row another writer may commit first before the run fails."""
_DELTA: Final = "org.apache.spark.sql.delta"
T = TypeVar("T")
_OVERTAKEN: Final = ("Concurrent", "MetadataChanged", "ProtocolChanged")


class Overtaken(Conflict):
    """Another writer has committed since this transaction began: plan again."""


class Commit(NamedTuple):
    """One entry of a table's history. `at_ms`: when it was written (ms UTC), 0 if it does not say."""

    version: int
    operation: str
    note: str | None
    at_ms: int = 0


def java_class(spark: SparkSession, name: str) -> Any:
    """A class of Spark's JVM by its full name. `spark._jvm.org.apache…` asks Java about each part of it."""
    return getattr(spark._jvm, name)


def delta_log(spark: SparkSession, table: str) -> Any:
    """Delta's own object for the log of the table at this path."""
    return java_class(spark, f"{_DELTA}.DeltaLog").forTable(spark._jsparkSession, table)


def newest_snapshot(spark: SparkSession, log: Any) -> Any:
    """The table as of its last commit."""
    nothing = _option(spark).empty()
    # Java, and so py4j, does not see Scala's default arguments
    return log.update(False, nothing, nothing)


def files_of(spark: SparkSession, snapshot: Any) -> DataFrame:
    """Its files, as Delta's log describes them: `path`, `partitionValues`, `size` (bytes), `stats`."""
    return DataFrame(snapshot.allFiles().toDF(), spark)


def commits(spark: SparkSession, log: Any, version: int) -> Iterator[Commit]:
    """The commits from this version back, newest first, as far as the log reaches."""
    for at, actions in _changes(spark, log, version):
        infos = (_commit(at, action) for kind, action in actions if kind == "CommitInfo")
        # Spark writes CommitInfo first, other writers anywhere or not at all
        yield next(infos, Commit(at, "", None))


class Partition(NamedTuple):
    """The files that a partition has, as Delta's own objects.

    `note`: of the commit that wrote its rows, or None if any other has changed them since.
    """

    files: Sequence[Any]
    note: str | None


def partition_of(
    spark: SparkSession, log: Any, snapshot: Any, partition: Mapping[str, str], application: str
) -> Partition:
    """The partition, which only the application replaces, with notes that begin with its name and a space.

    Reads the log back to the last of these notes; only if there is none in MOST_COMMITS, all of the table's.
    """
    newest = snapshot.version()
    seen: set[str] = set()
    files: list[Any] = []
    is_changed = False
    for version, found in _changes(spark, log, newest):
        actions = list(found)
        notes = [_commit(version, action).note for kind, action in actions if kind == "CommitInfo"]
        note = next((one for one in notes if one and one.partition(" ")[0] == application), None)
        of_files = [(kind, action) for kind, action in actions if kind in ("AddFile", "RemoveFile")]
        here = [(kind, action) for kind, action in of_files if _may_be_in(action, partition)]
        for kind, action in here:
            path = str(action.path())
            if kind == "AddFile" and path not in seen:
                files.append(action)
            seen.add(path)
        if note is not None:
            return Partition(files, None if is_changed else note)
        is_changed |= any(action.dataChange() for _, action in here)
        if version == 0:
            return Partition(files, None)
        if newest - version == MOST_COMMITS:
            break
    return Partition([one for one in snapshot.allFiles().collect() if _may_be_in(one, partition)], None)


class Transaction:
    """A change of a table by `application`, which counts its commits there.

    Of two transactions of one application that began at the same version, the second fails to commit.
    """

    def __init__(self, spark: SparkSession, log: Any, application: str) -> None:
        java_class(spark, "org.apache.spark.sql.classic.SparkSession").setActiveSession(spark._jsparkSession)
        self._spark = spark
        self._log = log
        self._snapshot = newest_snapshot(spark, log)
        option = _option(spark)
        self._transaction = log.startTransaction(option.empty(), option.apply(self._snapshot))
        self._application = application
        self.version: int = self._transaction.readVersion()
        self._actions: Any = None
        self._mode = "Append"
        # makes Delta compare the application's number again at the commit
        self._transaction.readTxn().addOne(application)

    def __repr__(self) -> str:
        return f"<Transaction of {self._application} on version {self.version}>"

    def recorded(self) -> int:
        """The number of the application's last commit, or -1. Reads the state of the whole log."""
        number: int = self._transaction.txnVersion(self._application)
        return number

    def write(self, rows: DataFrame) -> None:
        """Writes the rows into files, which no reader sees before the commit."""
        self._actions = self._transaction.writeFiles(rows._jdf)

    def remove(self, partition: Mapping[str, str]) -> None:
        """Removes the files that the partition has now; call it after `write`.

        The application's commits must replace the partition, with notes that begin with the application.
        """
        now_ms = int(time.time() * 1000)
        for file in partition_of(self._spark, self._log, self._snapshot, partition, self._application).files:
            self._actions = getattr(self._actions, "$colon$plus")(file.removeWithTimestamp(now_ms, True))
        self._mode = "Overwrite"

    def commit(self, note: str, number: int) -> int:
        """Commits what was written, under a new number of the application; returns the version.

        Raises Overtaken.
        """
        option = _option(self._spark)
        nothing = option.empty()
        write = java_class(self._spark, f"{_DELTA}.DeltaOperations$Write")
        mode = getattr(java_class(self._spark, "org.apache.spark.sql.SaveMode"), self._mode)
        operation = write(mode, nothing, nothing, option.apply(note), *([nothing] * 5))
        self._transaction.updateSetTransaction(self._application, number, nothing)
        try:
            version: int = self._transaction.commit(self._actions, operation)
        except (Py4JJavaError, PySparkException) as error:
            raise_if_overtaken(error)
            raise
        return version


def raise_if_overtaken(error: Exception) -> None:
    """Raises Overtaken if the error means that another writer has committed."""
    if isinstance(error, Py4JJavaError):
        name = str(error.java_exception.getClass().getSimpleName())
        if name.startswith(_OVERTAKEN):
            raise Overtaken(f"another writer has committed to the table ({name})") from None


def retry_overtaken(work: Callable[[], T]) -> T:
    """Repeats the work until no other writer commits first; returns its result.

    Raises Overtaken after MOST_OVERTAKEN times.
    """
    for _ in range(MOST_OVERTAKEN - 1):
        with contextlib.suppress(Overtaken):
            return work()
    return work()


def quoted(text: str) -> str:
    """The text as a string literal of Spark's SQL.

    >>> quoted("it's")
    "'it\\\\'s'"
    """
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _option(spark: SparkSession) -> Any:
    return java_class(spark, "scala.Option")


def _changes(spark: SparkSession, log: Any, version: int) -> Iterator[tuple[int, Iterator[tuple[str, Any]]]]:
    """The versions from this one back, as far as the log reaches, each with its actions and their types.

    Delta lists the log's folder at each call, so calls ask for more and more versions at once.
    """
    nothing = _option(spark).empty()
    count = 4
    while version >= 0:
        first = max(0, version - count + 1)
        changes, found = log.getChanges(first, version, nothing, False), []
        while changes.hasNext():
            change = changes.next()
            found.append((int(change._1()), change._2()))
        for at, actions in reversed(found):
            if at != version:
                return
            yield at, _actions(actions.iterator())
            version -= 1
        if version >= first:
            return
        count = min(2 * count, 64)


def _actions(actions: Any) -> Iterator[tuple[str, Any]]:
    while actions.hasNext():
        action = actions.next()
        yield str(action.getClass().getSimpleName()), action


def _commit(version: int, info: Any) -> Commit:
    note, at = info.userMetadata(), info.timestamp()
    at_ms = 0 if at is None else int(at.getTime())
    return Commit(version, str(info.operation()), str(note.get()) if note.isDefined() else None, at_ms)


def _may_be_in(file: Any, partition: Mapping[str, str]) -> bool:
    """A file that is removed need not say where it was."""
    values = file.partitionValues()
    return values is None or all(
        not values.contains(column) or values.apply(column) == value for column, value in partition.items()
    )
