"""What control needs: sources for its view, effects, a store of operations, a runner of jobs, tables, topics.

The adapters implement these on ZooKeeper, Kafka, HTTP and processes; tests use in-memory twins.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Protocol

from services.control.core.found import Place, RecordPage, SessionRow
from services.control.core.groups.rewinds import StreamFacts
from services.control.core.lake.freshness import Positions, TopicState
from services.control.core.lake.tables import TableRow
from services.control.core.operations.operation import Operation, OperationNode
from services.control.core.queues import Act, DeadLetter, QueueRow
from services.control.core.report.observed import Answers, Cluster, Offsets
from services.control.core.report.producer_rates import ProducerCounts
from services.control.core.runs.run import LogPart, Run, Submission
from shared.model.cluster import MemberNode, PauseNode, ProducerNode
from shared.model.group import GroupSettings
from shared.model.open_sessions import HeldKey, HeldStream
from shared.model.start import Cut, GroupStart


class ClusterSource(Protocol):
    """Reads ZooKeeper."""

    async def read(self) -> Cluster:
        """The cluster as it is now. Raises Unavailable."""


class OffsetSource(Protocol):
    """Reads Kafka's offsets."""

    async def read(self, count: int, groups: Iterable[str]) -> Offsets:
        """Offsets of streams 0 … count - 1, and their heads in each group. Raises Unavailable."""


class MemberSource(Protocol):
    """Asks the members."""

    async def read(self, members: Mapping[tuple[str, str], MemberNode]) -> Answers:
        """The members' statuses, a plan per group, and which members are silent."""


class ProducerSource(Protocol):
    """Asks the producers."""

    async def read(self, producers: Mapping[str, ProducerNode]) -> dict[str, ProducerCounts]:
        """What each of those that answer has counted, by id."""


class QueueSource(Protocol):
    """Asks a worker of the queue service; any of them knows all. Everything raises QueuesUnavailable."""

    async def read(self) -> Sequence[QueueRow]:
        """All queues, without those of dead letters."""

    async def show(self, queue: str) -> QueueRow:
        """The queue as it is now. Raises UnknownQueue."""

    async def letters(self, queue: str, limit: int) -> Sequence[DeadLetter]:
        """The oldest dead letters of the queue. Raises UnknownQueue."""

    async def act(self, queue: str, act: Act, *, dry_run: bool) -> int:
        """Purges or redrives the queue, or says what that would give.

        Raises UnknownQueue, QueueConflict, QueueOutcomeUnknown. Returns what the worker counts: the items
        that are ready then; of a purge's dry run, what it would drop.
        """


class OwnerSource(Protocol):
    """Asks the owners of streams what they hold in memory."""

    async def key(self, group: str, member: str, address: str, stream: int, key: str) -> HeldKey:
        """What the member holds of the key. Raises PeerUnavailable."""

    async def stream(self, group: str, member: str, address: str, stream: int) -> HeldStream:
        """What the member holds of the stream. Raises PeerUnavailable."""


class RecordSource(Protocol):
    """Reads the logs of streams."""

    async def newest(self, stream: int, limit: int, before: int | None) -> RecordPage:
        """The last `limit` records below offset `before` (None: the end). Raises Unavailable."""


class SessionSource(Protocol):
    """Reads finished sessions."""

    async def newest(
        self, sought: Mapping[str, str], *, limit: int, after: Place | None = None, with_data: bool = False
    ) -> tuple[list[SessionRow], Place | None]:
        """A page of the sessions with these values, newest first, and where it ends if more follow.

        `sought`: values of `group`, `key`, `day` or `id`. `with_data`: with the fragments. Raises NotFound
        while there are no sessions at all, and Unavailable.
        """


class PinStore(Protocol):
    """Writes the pins of a group."""

    async def change(self, group: str, change: Callable[[Mapping[int, str]], dict[int, str]]) -> None:
        """Replaces the group's pins by what `change` returns for them. Raises Unavailable, Conflict."""


class MemberDrain(Protocol):
    """Makes members drain, and take streams again."""

    async def drain(self, group: str, member: str, address: str, why: str) -> None:
        """Returns once the member is draining. Raises PeerUnavailable."""

    async def undrain(self, group: str, member: str, address: str, why: str) -> None:
        """Returns once the member takes streams again. Raises PeerUnavailable, also if it cannot."""


class PauseStore(Protocol):
    """Pauses groups."""

    async def pause(self, group: str, pause: PauseNode) -> None:
        """Pauses the group, if it is not paused yet. Raises Unavailable."""

    async def resume(self, group: str) -> None:
        """Ends the group's pause, if it is paused. Raises Unavailable."""


class OperationStore(Protocol):
    """Keeps the operations where every control finds them."""

    async def read(self) -> Mapping[str, OperationNode]:
        """All stored operations, by id. Raises Unavailable."""

    async def create(self, node: OperationNode) -> bool:
        """Stores an operation that begins; False if there is one of this id. Raises Unavailable."""

    async def end(self, operation: Operation) -> Operation:
        """Stores the operation's end; returns it as it has ended: another control may have been first.

        Raises Unavailable.
        """

    async def forget(self, operation_id: str) -> None:
        """Removes the operation, if it is there. Raises Unavailable."""


class GroupStore(Protocol):
    """Makes, names and deletes groups. All raise GroupChanged and Unavailable."""

    async def create(self, group: str, settings: GroupSettings, start: GroupStart, followed: str) -> None:
        """Makes a group, unless it exists; `followed` must exist."""

    async def name(self, alias: str, group: str) -> None:
        """Makes the alias name the group."""

    async def delete(self, group: str) -> None:
        """Deletes the group. Raises GroupInUse."""


class RewindSource(Protocol):
    """Reads what a rewind depends on. All raise Unavailable."""

    async def facts(
        self, group: str, before: Mapping[int, int | None], time_ms: int | None
    ) -> Mapping[int, StreamFacts]:
        """The facts of each stream; `before`: where the group starts itself (None: the log's start)."""

    async def has_sessions_since(self, cut: Cut, stream: int, offset: int) -> bool:
        """Whether the sessions of the cut's group that reach this offset are still in their topic."""

    async def appended(self, starts: Mapping[int, int]) -> Mapping[int, int]:
        """By stream, the append time (ms) of the record before its start, where there is one."""

    async def is_unused(self, group: str) -> bool:
        """Whether no group of this name has ever run."""


class JobRunner(Protocol):
    """Runs jobs, and remembers their runs."""

    async def start(self, submission: Submission) -> Run:
        """A new run. Raises JobAlreadyRunning, SparkUnavailable."""

    def runs(self) -> Sequence[Run]:
        """All remembered runs, newest first."""

    def run_of(self, run_id: str) -> Run:
        """The run. Raises UnknownRun."""

    def result_of(self, run_id: str) -> Any:
        """The result of a run that has succeeded, else None. Raises UnknownRun."""

    def log_of(self, run_id: str, after: int | None) -> LogPart:
        """A part of the run's log: from byte `after` on, or (None) its end. Raises UnknownRun."""

    async def cancel(self, run_id: str) -> Run:
        """Ends the run and all its processes; a run that has already ended is returned unchanged.

        Raises UnknownRun.
        """


class TableSource(Protocol):
    """Reads the tables of the lake."""

    async def tables(self) -> Sequence[TableRow]:
        """The tables, by name. Raises Unavailable."""


class HeldPositions(Protocol):
    """Reads up to where the lake holds the sessions topics."""

    def read(self, groups: Collection[str]) -> Positions:
        """The positions of at least these groups. Blocks.

        Raises NotFound if there is no table `sessions`, Unavailable.
        """


class SessionsTopics(Protocol):
    """Reads what Kafka knows of the sessions topics."""

    async def describe(self, group: str) -> TopicState | None:
        """The group's topic, with `oldest` still empty; None if it does not exist. Raises Unavailable."""

    async def with_oldest(self, group: str, state: TopicState, held: Mapping[int, int]) -> TopicState:
        """`state` with the oldest record that the lake lacks of each partition. Raises Unavailable."""
