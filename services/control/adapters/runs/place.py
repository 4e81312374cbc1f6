"""Where Spark runs and works, and the request of a run there."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from services.control.core.runs.run import Run, Submission
from services.control.spark.run.request import ClusterOptions, RunRequest, ZooKeeperPlace
from shared.kafka.connect.access import Kafka


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkPlace:
    """Where Spark runs and works: the part of a request that all runs share."""

    kafka: Kafka
    namespace: str
    lake: str
    jars: str
    master: str
    zookeeper: ZooKeeperPlace | None = None
    cluster: ClusterOptions = field(default_factory=ClusterOptions)

    def request(self, run: Run, submission: Submission, driver: Path, *, idle_s: float) -> RunRequest:
        """The request of a run; `driver`: the folder of a driver started for this run."""
        return RunRequest(
            id=run.id,
            job=run.job,
            kafka=self.kafka,
            lake=self.lake,
            jars=self.jars,
            group_settings=submission.settings,
            streams=submission.streams,
            stream_table=submission.stream_table,
            chain=submission.chain,
            parameters=run.parameters,
            namespace=self.namespace,
            master=self.master,
            group=run.group,
            timeout_s=run.timeout_s,
            zookeeper=self.zookeeper,
            cluster=self.cluster,
            driver=str(driver),
            idle_s=idle_s,
        )
