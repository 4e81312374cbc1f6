"""The request of a run: the file `request.json` that control writes for the driver.

`group_settings` come from the group's znode. The runner enforces `timeout_s`, not the driver.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from services.control.core.lake.paths import table_path
from shared.errors import InvalidInput
from shared.kafka.connect.access import Kafka
from shared.model.group import GroupSettings
from shared.model.names import Names
from shared.model.start import GroupStart
from shared.zookeeper.access import LOCKED

Result = dict[str, Any]
"""The result of a program: JSON, small enough to print."""


class ZooKeeperPlace(msgspec.Struct, frozen=True, kw_only=True):
    """Where ZooKeeper is, and how the driver logs in there (`BATON_ZOOKEEPER…`)."""

    servers: str
    timeout_s: float
    user: str = ""
    password_file: str = ""
    acl: str = LOCKED


class ClusterOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How drivers use Spark (`BATON_SPARK_…`). On a local master, only `options` counts.

    `driver_host`: where executors reach the driver. `python`: the executors' Python. `pack`: their archive;
    "": the driver makes one. `secret_file`: the file with the secret that the cluster's processes share, or
    "". `options`: Spark's options by name.
    """

    driver_host: str = ""
    python: str = "python3"
    pack: str = ""
    secret_file: str = ""
    options: dict[str, str] = {}


class RunRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One run of one job. `lake`: folder or URL of the Delta tables; `jars`: folders of Spark's jars.

    `chain`: the group's start, that of the group it follows, and so on.
    `stream_table`: the JSON of the stream table as ZooKeeper has it, or "" if control has not read one.
    Without `zookeeper` the run takes no lock. `driver`: the folder of the driver that is started for this
    run; after the run it waits `idle_s` for others. Without `driver` it works in the run's folder, and ends
    with the run.
    """

    id: str
    job: str
    kafka: Kafka
    lake: str
    jars: str
    group_settings: GroupSettings
    streams: int
    stream_table: str = ""
    chain: list[GroupStart] = []
    parameters: dict[str, Any] = {}
    namespace: str = ""
    master: str = "local[2]"
    group: str = "default"
    timeout_s: float | None = None
    zookeeper: ZooKeeperPlace | None = None
    cluster: ClusterOptions = ClusterOptions()
    driver: str = ""
    idle_s: float = 0.0

    @property
    def names(self) -> Names:
        """The names in the run's namespace."""
        return Names(self.namespace)

    @property
    def is_local(self) -> bool:
        """Whether the driver does all of Spark's work itself."""
        return self.master.startswith("local")

    @property
    def lock(self) -> str:
        """The znode of the run's lock.

        Each job of a group has one; `maintain` has one for all groups, because it works on their common
        tables. On an object store all runs that write share one, because the store cannot refuse the second
        of two commits.
        """
        if self.takes_turns:
            return self.names.lake_lock
        return self.names.upkeep_lock if self.job == "maintain" else self.names.run_lock(self.group, self.job)

    @property
    def takes_turns(self) -> bool:
        """Whether it shares its lock with the runs of other jobs and groups."""
        return "://" in self.lake and self.job != "audit"

    def table(self, *name: str) -> str:
        """The path of a table in the lake: `table("reports", "hours")`."""
        return table_path(self.lake, self.namespace, *name)


def read_request(run: Path) -> RunRequest:
    """The request in a run's folder. Raises InvalidInput."""
    try:
        return msgspec.json.decode((run / "request.json").read_bytes(), type=RunRequest)
    except (OSError, msgspec.DecodeError) as error:
        raise InvalidInput(f"the request in {run} cannot be read: {error}") from None
