"""Files and folders of the lake, on a disk or in an object store, through Hadoop's file systems."""

from __future__ import annotations

from typing import Any

from pyspark.sql import SparkSession


def exists(spark: SparkSession, path: str) -> bool:
    """Whether there is such a file or folder."""
    system, at = _located(spark, path)
    found: bool = system.exists(at)
    return found


def read_text(spark: SparkSession, path: str) -> str:
    """The content of a small file. Raises FileNotFoundError."""
    system, at = _located(spark, path)
    if not system.exists(at):
        raise FileNotFoundError(path)
    stream = system.open(at)
    try:
        return bytes(stream.readAllBytes()).decode()
    finally:
        stream.close()


def folders(spark: SparkSession, path: str) -> list[str]:
    """The names of the folders in a folder, sorted; none if it is missing."""
    system, at = _located(spark, path)
    if not system.exists(at):
        return []
    return sorted(one.getPath().getName() for one in system.listStatus(at) if one.isDirectory())


def _located(spark: SparkSession, path: str) -> tuple[Any, Any]:
    at = spark._jvm.org.apache.hadoop.fs.Path(path)
    return at.getFileSystem(spark._jsparkSession.sessionState().newHadoopConf()), at
