"""Where Spark runs and works, and the request of a run there."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from services.control.core.runs.run import Run, Submission
from services.control.spark.run.request import ClusterOptions, ZooKeeperPlace
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

    def request(self, run: Run, submission: Submission, driver: Path, *, idle_s: float) -> dict[str, Any]:
        """The content of the run's `request.json`; `driver`: the folder of a driver started for this run."""
        return asdict(self) | {
            "id": run.id,
            "job": run.job,
            "parameters": run.parameters,
            "group": run.group,
            "group_settings": submission.settings,
            "streams": submission.streams,
            "stream_table": submission.stream_table,
            "chain": submission.chain,
            "timeout_s": run.timeout_s,
            "driver": str(driver),
            "idle_s": idle_s,
        }
