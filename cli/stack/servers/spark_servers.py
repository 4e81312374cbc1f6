"""A Spark cluster of processes on this machine: the command lines of its master and its workers.

This is Spark's own standalone cluster, which comes with PySpark, so nothing is downloaded.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from cli.stack.jars.java import find_java, pyspark_jars
from cli.stack.servers.servers import LOOPBACK

_DAEMON: Final = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")


def spark_master_argv(port: int, locks: Path | None = None) -> list[str]:
    """The command line of a master on loopback; `locks`: the file that `write_spark_locks` has written."""
    return _argv("master.Master", port, locks)


def spark_worker_argv(
    port: int, master: str, folder: Path, memory: str, locks: Path | None = None
) -> list[str]:
    """The command line of a worker of one core; `memory` is what it gives its executors.

    `port` 0 takes a free one; the executors work in `folder`.
    """
    sizes = ("--cores", "1", "--memory", memory, "--work-dir", str(folder))
    return _argv("worker.Worker", port, locks, *sizes, master)


def spark_environment() -> dict[str, str]:
    """The variables that both need; a worker's environment is also that of its executors."""
    home = pyspark_jars().parent
    (core,) = (home / "jars").glob("spark-core_*.jar")
    return {
        "JAVA_HOME": str(Path(find_java()).resolve().parents[1]),
        "SPARK_HOME": str(home),
        "SPARK_LOCAL_IP": LOOPBACK,
        # otherwise a worker looks for Spark's sources when it starts an executor
        "SPARK_SCALA_VERSION": core.name.removeprefix("spark-core_").partition("-")[0],
    }


def _argv(program: str, port: int, locks: Path | None, *arguments: str) -> list[str]:
    classes = f"{pyspark_jars()}/*"
    where = ("--host", LOOPBACK, "--port", str(port), "--webui-port", "0")
    settings = ("--properties-file", str(locks)) if locks else ()
    run = (find_java(), *_DAEMON, "-cp", classes, f"org.apache.spark.deploy.{program}")
    return [*run, *where, *settings, *arguments]
