"""What the processes of a local stack run, where they log, and how to find out that they are ready.

Used by `cli/stack/local/stack.py`, which starts and supervises them.
"""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path

from cli.stack.jars.java import find_java, pyspark_jars
from cli.stack.jars.lock import cache_folder, class_path, jar_folder, read_lock
from cli.stack.options import StackOptions, environment_of, lake_of, own_environment
from cli.stack.processes.probes import is_ready, kafka_answers, listens, zookeeper_answers
from cli.stack.processes.supervisor import ProcessSpec
from cli.stack.secured.locks import LOCK_VARIABLES, StackLocks
from cli.stack.servers.formatting import format_storage
from cli.stack.servers.servers import (
    LOOPBACK,
    kafka_argv,
    kafka_format_argv,
    new_cluster_id,
    prepare_kafka,
    prepare_zookeeper,
    zookeeper_argv,
)
from cli.stack.servers.spark_servers import spark_environment, spark_master_argv, spark_worker_argv
from services.control.spark.session.locks import write_spark_locks

WORKER_MEMORY = "1g"
"""What a Spark worker may give its executors; Spark asks for 1 GB for each."""
_CHECKOUT = Path(__file__).parents[3]


class StackProcesses:
    """The processes of a stack; with `locks` they demand and show them."""

    def __init__(self, options: StackOptions, locks: StackLocks | None = None) -> None:
        self._options = options
        self._locks = locks

    def zookeeper(self) -> ProcessSpec:
        """The stack's own ZooKeeper; writes its configuration."""
        options = replace(self._options.zookeeper_options, demands_user=self._locks is not None)
        prepare_zookeeper(options)
        return ProcessSpec(
            name="zookeeper",
            # ZooKeeper itself comes with PySpark, so it needs no download
            argv=zookeeper_argv(options, find_java(), pyspark_jars()),
            log=self._log("zookeeper"),
            is_ready=lambda: zookeeper_answers(options.address),
            address=options.address,
            environment=own_environment(os.environ),
        )

    async def kafka(self) -> ProcessSpec:
        """The stack's own broker; writes its configuration and formats its storage, once. Raises NotReady."""
        locks = self._locks
        options = replace(self._options.kafka_options, locks=locks.kafka if locks else None)
        prepare_kafka(options)
        jars = class_path(jar_folder("kafka"), read_lock("kafka"))
        # Kafka refuses to start on a storage that is not formatted
        if not options.is_formatted:
            await format_storage(kafka_format_argv(options, find_java(), jars, new_cluster_id()))
        return ProcessSpec(
            name="kafka",
            argv=kafka_argv(options, find_java(), jars),
            log=self._log("kafka"),
            is_ready=lambda: kafka_answers(locks.admin if locks else options.address),
            address=options.address,
            environment=own_environment(os.environ),
            ready_timeout_s=120.0,
        )

    def spark_master(self) -> ProcessSpec:
        """The master of the stack's own Spark cluster."""
        port = self._options.spark_master_port
        return self._spark("spark-master", port, spark_master_argv(port, self._spark_locks()))

    def spark_worker(self, index: int) -> ProcessSpec:
        """Worker `index` (0 …) of that cluster, with one core and its own folder."""
        name, port = f"spark-worker-{index}", self._options.spark_worker_port(index)
        folder = self._options.home / "spark" / name
        folder.mkdir(parents=True, exist_ok=True)
        argv = spark_worker_argv(port, self._options.spark_master, folder, WORKER_MEMORY, self._spark_locks())
        return self._spark(name, port, argv)

    def _spark_locks(self) -> Path | None:
        if self._locks is None:
            return None
        secret = self._locks.spark_secret.read_text().strip()
        return write_spark_locks(self._locks.folder / "spark.conf", secret)

    def _spark(self, name: str, port: int, argv: list[str]) -> ProcessSpec:
        return ProcessSpec(
            name=name,
            argv=argv,
            log=self._log(name),
            is_ready=lambda: listens(LOOPBACK, port),
            address=f"{LOOPBACK}:{port}",
            environment={**own_environment(os.environ), **spark_environment()},
        )

    def producer(self) -> ProcessSpec:
        """The producer."""
        return self._service("producer", "producer", self._options.producer_port)

    def queue(self) -> ProcessSpec:
        """A worker of all queues."""
        return self._service("queue", "queue", self._options.queue_port)

    def consumer(self, index: int) -> ProcessSpec:
        """Consumer `index` (0 …)."""
        name = f"consumer-{index}"
        return self._service(name, "consumer", self._options.consumer_port(index), member=name)

    def control(self) -> ProcessSpec:
        """Control, whose runs are in the home; so is the lake, unless BATON_LAKE is set."""
        options = self._options
        # absolute, because control works in the home
        folders = {"runs": str(options.home / "runs"), "lake": lake_of(options, os.environ)}
        folders["cache"] = str(cache_folder())
        own = {"queue_url": options.queue_url}
        if options.spark_workers:
            own["spark_master"] = options.spark_master
        if options.control_tokens is not None:
            own["control_tokens_file"] = str(options.control_tokens.absolute())
        # no driver outlives the stack
        return self._service("control", "control", options.control_port, runs_at_stop="end", **folders, **own)

    def _service(self, name: str, service: str, port: int, **own: str) -> ProcessSpec:
        # -P and the working folder: a package `shared` in the current folder must not hide ours
        path = os.pathsep.join(filter(None, (str(_CHECKOUT), os.environ.get("PYTHONPATH"))))
        locks = self._locks.service_environment(service) if self._locks else {}
        tls = self._locks.tls if self._locks else None
        own_shell = {name: value for name, value in os.environ.items() if name not in LOCK_VARIABLES}
        base = {**own_shell, "PYTHONPATH": path, **locks}
        return ProcessSpec(
            name=name,
            argv=[sys.executable, "-P", "-m", f"services.{service}"],
            log=self._log(name),
            is_ready=lambda: is_ready(LOOPBACK, port, tls),
            address=self._options.url_of(port),
            environment=own_environment(environment_of(self._options, port, base, **own), service),
            folder=self._options.home,
        )

    def _log(self, name: str) -> Path:
        return self._options.home / "logs" / f"{name}.log"
