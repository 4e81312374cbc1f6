"""The request of a run: the file `request.json` that control writes for the driver.

`group_settings` come from the group's znode. The runner enforces `timeout_s`, not the driver.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from shared.errors import InvalidInput
from shared.kafka.access import Kafka
from shared.model.group import GroupSettings
from shared.model.names import Names

Result = dict[str, Any]
"""The result of a program: JSON, small enough to print."""


class RunRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One run of one job. `lake`: folder or URL of the Delta tables; `jars`: folder of Spark's jars."""

    id: str
    job: str
    kafka: Kafka
    lake: str
    jars: str
    group_settings: GroupSettings
    streams: int
    parameters: dict[str, Any] = {}
    namespace: str = ""
    master: str = "local[2]"
    group: str = "default"
    timeout_s: float | None = None

    @property
    def names(self) -> Names:
        """The names in the run's namespace."""
        return Names(self.namespace)

    def table(self, *name: str) -> str:
        """The path of a table in the lake: `table("reports", "hours")`."""
        return "/".join((self.lake.rstrip("/"), *name))


def read_request(run: Path) -> RunRequest:
    """The request in a run's folder. Raises InvalidInput."""
    try:
        return msgspec.json.decode((run / "request.json").read_bytes(), type=RunRequest)
    except (OSError, msgspec.DecodeError) as error:
        raise InvalidInput(f"the request in {run} cannot be read: {error}") from None
