"""The table `sessions` at the version that a run reads, and which of its rows are new since another one."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from services.control.spark.delta import NO_TABLE, delta_log, newest_snapshot
from services.control.spark.files import exists, read_text
from services.control.spark.reports.commits import NewFiles, Rewritten, commit_id, commit_name, new_files
from services.control.spark.reports.counting import READ
from shared.errors import NotFound


class SessionsTable:
    """One group's sessions in the Delta table `path`, at its newest version. Raises NotFound without one.

    `size`: bytes of the files of all groups.
    """

    def __init__(self, spark: SparkSession, path: str, group: str) -> None:
        self._spark = spark
        self._path = path
        self._group = group
        snapshot = newest_snapshot(spark, delta_log(spark, path))
        self.version: int = snapshot.version()
        if self.version == NO_TABLE:
            raise NotFound(f"there are no sessions in {path} yet: run the job `lake` first")
        self.table_id = str(snapshot.metadata().id())
        self.size: int = snapshot.sizeInBytes()
        self._commits: dict[int, str] = {}

    def __repr__(self) -> str:
        return f"<SessionsTable {self._path} at version {self.version}>"

    def all(self) -> DataFrame:
        """All sessions of the group."""
        table = self._spark.read.format("delta").option("versionAsOf", self.version).load(self._path)
        return table.where(f.col("group") == self._group).select(*READ)

    def added(self, after: int, known: str) -> NewFiles:
        """What the versions after `after` have added. `known`: the `commit_id` of that one.

        Raises Rewritten, also if compacted files are gone.
        """
        found = new_files(
            self._read_commits(after), after=after, until=self.version, known=known, group=self._group
        )
        for path in found.compacted:
            if not exists(self._spark, self._whole(path)):
                raise Rewritten("VACUUM has deleted files that were not counted yet")
        return found

    def read(self, files: NewFiles) -> DataFrame:
        """The sessions in these files."""
        schema = self._spark.read.format("delta").load(self._path).select(*READ).schema
        return self._spark.read.schema(schema).parquet(*(self._whole(path) for path in files.paths))

    def commit(self) -> str:
        """The `commit_id` of the version that is read."""
        return commit_id(self._read_commits(self.version)[self.version])

    def _read_commits(self, first: int) -> dict[int, str]:
        """The text of each commit from `first` on. Raises Rewritten if the log was cleaned up."""
        for version in range(first, self.version + 1):
            if version not in self._commits:
                try:
                    text = read_text(self._spark, f"{self._path}/{commit_name(version)}")
                except FileNotFoundError:
                    raise Rewritten(
                        "the log of the table no longer has all commits since the last run"
                    ) from None
                self._commits[version] = text
        return self._commits

    def _whole(self, path: str) -> str:
        return path if "://" in path else f"{self._path}/{path}"
