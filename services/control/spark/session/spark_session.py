"""Starts the Spark session of a run, on this machine or on the cluster that `master` names.

Everything that Spark writes besides its results is in one folder. So removing the folder removes it all,
however the run ended. Used by the driver and by the tests.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Mapping
from pathlib import Path

import msgspec
from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

from services.control.settings import is_on_this_machine
from services.control.spark.kafka.client import REDACTED
from services.control.spark.run.request import ClusterOptions
from services.control.spark.session.locks import write_spark_locks
from services.control.spark.session.pack import ensure_pack
from shared.class_archive import from_archive
from shared.errors import SparkUnavailable

DRIVER_MEMORY = "2g"
"""Heap of the driver, which on a local master also does all the work; SPARK_DRIVER_MEMORY overrides."""
ARROW_BATCH_BYTES = 16 * 1024 * 1024
"""Largest batch that goes to Python: records of the topic `sessions` may have 2 MB each."""
LOCAL_JAVA = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=256m"
"""No second compiler, and more room for compiled code. Without that compiler Java reserves only 48 MB, which
a warm driver fills in a few runs. Then Java stops compiling, and runs become several times slower."""
JAVA = ("spark.driver.extraJavaOptions", "spark.executor.extraJavaOptions")
UI_ANSWERS = "org.glassfish.jersey.server.ServerRuntime$Responder"
"""The logger that reports a client of Spark's UI who left before the answer."""
EXECUTOR_IDLE = "10s"
"""A driver gives an executor back after this time without a task. A new one takes some seconds to start."""
CLASSES = ("functions", "PythonUtils", "PythonSQLUtils", "org.apache.spark.sql.functions", "scala.Option")
"""Java's classes for which PySpark or we ask hundreds of times in a run. py4j asks Java each time, and Java
looks a short name up in every jar."""
UNPACKED = "baton"
"""The archive's folder in an executor's working folder."""
STANDARD = ClusterOptions()
PROJECT = Path(__file__).resolve().parents[4]


def start_spark(
    *,
    name: str,
    master: str,
    jars: str,
    work: Path,
    properties: Mapping[str, str] | None = None,
    cluster: ClusterOptions = STANDARD,
    nice: int = 0,
) -> SparkSession:
    """A Spark session whose temporary files are under `work`; takes 5–6 s.

    `properties`: Java's, for every JVM. `nice`: by how much Java has a lower priority than this process.
    `jars`: folders, separated by `:`. Raises SparkUnavailable if one of them has no jars, the archive for
    executors cannot be made, or the cluster's secret cannot be read.
    """
    found = _jars_in(jars)
    is_local = master.startswith("local")
    (work / "tmp").mkdir(parents=True, exist_ok=True)
    _prepare_environment(cluster, is_local=is_local)
    if not is_local:
        if cluster.secret_file:
            _keep_secret(work / "conf", Path(cluster.secret_file))
        if not cluster.pack:
            pack = ensure_pack(Path(found[0]).parents[1] / "packs")
            cluster = msgspec.structs.replace(cluster, pack=str(pack))
    options = spark_options(master, cluster, work, properties or {})
    conf = SparkConf().setAppName(name).setMaster(master).set("spark.jars", ",".join(found))
    conf.setAll(list(options.items()))
    if nice:
        SparkContext._ensure_initialized(conf=conf)
        _give_way(SparkContext._gateway.proc.pid, nice)
    spark = SparkSession.builder.config(conf=conf).getOrCreate()
    # a reader of progress that gives up is no error of the run, and not worth a stack trace in its log
    log4j = spark._jvm.org.apache.logging.log4j
    log4j.core.config.Configurator.setLevel(UI_ANSWERS, log4j.Level.OFF)
    for java_class in CLASSES:
        setattr(spark._jvm, java_class, getattr(spark._jvm, java_class))
    return spark


def _give_way(java: int, nice: int) -> None:
    """Lowers the priority of all threads of Java, which has just started. Those to come inherit it."""
    lowered = os.getpriority(os.PRIO_PROCESS, 0) + nice
    done: set[int] = set()
    # a thread that was still as before may have started another one meanwhile
    while left := _threads_of(java) - done:
        for thread in left:
            with contextlib.suppress(ProcessLookupError):  # it has ended
                os.setpriority(os.PRIO_PROCESS, thread, lowered)
        done |= left


def _threads_of(process: int) -> set[int]:
    with contextlib.suppress(FileNotFoundError):  # not Linux
        return {int(thread) for thread in os.listdir(f"/proc/{process}/task")}
    return set()


def spark_options(
    master: str, cluster: ClusterOptions, work: Path, properties: Mapping[str, str]
) -> dict[str, str]:
    """Spark's options, except for its jars; on a cluster, `cluster.pack` is the executors' archive.

    A user's options for Java are added to ours. Any other option of a user replaces ours.
    """
    options = _common_options(work)
    options |= _local_options(work) if master.startswith("local") else _cluster_options(master, cluster)
    for option, value in cluster.options.items():
        options[option] = f"{options.get(option, '')} {value}".strip() if option in JAVA else value
    java = " ".join(f"-D{name}={value}" for name, value in properties.items())
    for option in JAVA:
        options[option] = f"{options.get(option, '')} {java}".strip()
    return options


def _jars_in(folders: str) -> list[str]:
    found: list[str] = []
    for folder in folders.split(os.pathsep):
        jars = sorted(str(path) for path in Path(folder).expanduser().glob("*.jar"))
        if not jars:
            more = " --with s3" if Path(folder).name == "s3" else ""
            raise SparkUnavailable(
                f"there are no jars for Spark in {folder}: `baton jars{more}` fetches them"
            )
        found += jars
    return found


def _prepare_environment(cluster: ClusterOptions, *, is_local: bool) -> None:
    """Sets what Spark reads from the environment: its Python, our modules for its workers, loopback."""
    if not is_local:
        os.environ["PYSPARK_PYTHON"] = cluster.python
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    if str(PROJECT) not in paths:
        os.environ["PYTHONPATH"] = os.pathsep.join([str(PROJECT), *filter(None, paths)])
    if is_local or cluster.driver_host:
        # Spark's pages listen here: only control reads them
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")


def _keep_secret(folder: Path, secret_file: Path) -> None:
    """Gives Spark the cluster's secret in a file: options are process arguments, which any user can see."""
    try:
        secret = secret_file.read_text().strip()
    except OSError as error:
        raise SparkUnavailable(f"the secret of Spark's cluster cannot be read: {error}") from None
    write_spark_locks(folder / "spark-defaults.conf", secret)
    os.environ["SPARK_CONF_DIR"] = str(folder)


def driver_java(work: Path) -> str:
    """The options of every driver's Java."""
    return " ".join((f"-Djava.io.tmpdir={work / 'tmp'}", *from_archive("spark")))


def _common_options(work: Path) -> dict[str, str]:
    return {
        "spark.driver.memory": os.environ.get("SPARK_DRIVER_MEMORY", DRIVER_MEMORY),
        "spark.driver.extraJavaOptions": driver_java(work),
        "spark.local.dir": str(work / "local"),
        "spark.sql.warehouse.dir": str(work / "warehouse"),
        "spark.log.level": "WARN",
        "spark.ui.enabled": "true",
        "spark.ui.port": "0",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.execution.arrow.maxBytesPerBatch": str(ARROW_BATCH_BYTES),
        # a run of `reports` compiles 180 classes; with Spark's 100 the next run would compile them all again
        "spark.sql.codegen.cache.maxEntries": "2000",
        # else every call of ours notes its line for error messages: 0.3 s in each run of `reports`
        "spark.python.sql.dataFrameDebugging.enabled": "false",
        **REDACTED,
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    }


def _cluster_options(master: str, cluster: ClusterOptions) -> dict[str, str]:
    options = {
        "spark.archives": f"{cluster.pack}#{UNPACKED}",
        # relative to the executor's working folder
        "spark.executorEnv.PYTHONPATH": UNPACKED,
        # with the defaults, 50 and 200, a small run spends its time on starting tasks
        "spark.databricks.delta.snapshotPartitions": "8",
        "spark.sql.shuffle.partitions": "16",
        "spark.sql.sources.parallelPartitionDiscovery.parallelism": "64",
        # else the first driver takes every core, and keeps them while it waits for another run
        "spark.dynamicAllocation.enabled": "true",
        "spark.dynamicAllocation.executorIdleTimeout": EXECUTOR_IDLE,
        # by what other executors still hold, because no cluster needs to have a shuffle service for us
        "spark.dynamicAllocation.shuffleTracking.enabled": "true",
        "spark.dynamicAllocation.shuffleTracking.timeout": EXECUTOR_IDLE,
    }
    host = cluster.driver_host or ("127.0.0.1" if is_on_this_machine(master) else "")
    if host:
        options["spark.driver.host"] = host
        # the name may belong to a service or a forwarded port, which this machine cannot bind
        options["spark.driver.bindAddress"] = "127.0.0.1" if host == "127.0.0.1" else "0.0.0.0"
    return options


def _local_options(work: Path) -> dict[str, str]:
    # With the defaults (200 and 50 tasks) a small table takes 15 s. Most of a short run's CPU is Java's
    # second compiler: without it a run of `lake` over 200 sessions takes 35 CPU seconds instead of 65.
    return {
        "spark.driver.extraJavaOptions": f"{driver_java(work)} {LOCAL_JAVA}",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.shuffle.partitions": "4",
        "spark.databricks.delta.snapshotPartitions": "2",
        "spark.sql.sources.parallelPartitionDiscovery.parallelism": "8",
    }
