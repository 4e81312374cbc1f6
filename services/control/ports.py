"""What control needs of the world: three sources for its view, two effects, and something that runs jobs.

The adapters implement these on ZooKeeper, Kafka, HTTP and processes; tests with in-memory twins.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

from services.control.core.jobs import Job
from services.control.core.observed import Answers, Cluster, Offsets
from services.control.core.runs import Run
from shared.model.cluster import MemberNode
from shared.model.group import GroupSettings


class ClusterSource(Protocol):
    """What stands in ZooKeeper."""

    async def read(self) -> Cluster:
        """All of it, as it stands now. Raises Unavailable."""


class OffsetSource(Protocol):
    """What Kafka says of the streams."""

    async def read(self, count: int, groups: Iterable[str]) -> Offsets:
        """Offsets of streams 0 … count - 1, and their heads in each group. Raises Unavailable."""


class MemberSource(Protocol):
    """What the members say of themselves."""

    async def read(self, members: Mapping[tuple[str, str], MemberNode]) -> Answers:
        """The statuses of the members (by group and id), and a plan per group. A mute one is told as such."""


class PinStore(Protocol):
    """Writes which streams are pinned to whom."""

    async def change(self, group: str, change: Callable[[Mapping[int, str]], dict[int, str]]) -> None:
        """Makes the pins of the group what `change` says of them. Raises Unavailable, Conflict."""


class MemberDrain(Protocol):
    """Speaks to members."""

    async def drain(self, member: str, address: str, why: str) -> None:
        """Returns once the member has begun to drain (or had before). Raises PeerUnavailable."""


class JobRunner(Protocol):
    """Runs jobs, and remembers their runs."""

    async def start(
        self,
        job: Job,
        *,
        group: str,
        parameters: Mapping[str, str | int],
        settings: GroupSettings,
        streams: int,
        timeout_s: float | None,
    ) -> Run:
        """A new run. Raises JobAlreadyRunning, SparkUnavailable."""

    def runs(self) -> Sequence[Run]:
        """All runs that are remembered, the newest first."""

    def run_of(self, run_id: str) -> Run:
        """The run. Raises UnknownRun."""

    def result_of(self, run_id: str) -> Any:
        """The result that the run has published, None without one. Raises UnknownRun."""

    async def cancel(self, run_id: str) -> Run:
        """The run, ended, and no process of it left; one that has ended before stays as it is.

        Raises UnknownRun.
        """
