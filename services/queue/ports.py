"""What a worker needs from outside for one queue: its log of commands, and its items.

`kafka/` implements both on Kafka, `tests/fakes/queues.py` in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Protocol

from services.queue.core.items import ItemRecord
from services.queue.core.open_items import Place
from services.queue.core.replica import LogRecord


class CommandLog(Protocol):
    """The log of one queue: one partition, read from an offset on. All of it may raise KafkaUnavailable.

    What is read is one topic, by its id; what is appended goes to whatever topic has its name by then.
    """

    async def bounds(self) -> tuple[int, int]:
        """The first offset, and the next one to be written."""
        ...

    def seek(self, offset: int) -> None:
        """Reads on from there."""
        ...

    async def read(self, timeout_s: float) -> Sequence[LogRecord]:
        """The next records; none after the time-out."""
        ...

    async def append(self, value: bytes) -> None:
        """Returns once the record is stored. After KafkaUnavailable it may be stored all the same."""
        ...

    async def check(self) -> None:
        """Raises LogMoved if another topic has the name by now: what is to be deleted is gone."""
        ...

    async def trim(self, below: int) -> None:
        """Deletes the records below the offset. Raises LogMoved as `check`."""
        ...

    def close(self) -> None:
        """Ends the reading; never raises."""
        ...


@dataclass(frozen=True, slots=True)
class Unstored:
    """Indexes of items that an append has not stored, or not surely; it may be repeated for the `unsure`.

    Kafka will never take the `refused` ones: they are too large for the topic, or against its rules.
    """

    unsure: Sequence[int] = ()
    refused: Sequence[int] = ()

    @property
    def indexes(self) -> Set[int]:
        """Both."""
        return {*self.unsure, *self.refused}


class ItemLog(Protocol):
    """The items of one queue, by partition. All of it may raise KafkaUnavailable."""

    @property
    def ends(self) -> Sequence[int]:
        """Through where each partition has been read: items below may be leased."""
        ...

    @property
    def starts(self) -> Sequence[int]:
        """Where each partition begins."""
        ...

    @property
    def backlog_ends(self) -> Sequence[int]:
        """Where each partition ends, as far as known."""
        ...

    @property
    def fault(self) -> str:
        """Why nothing may be leased or added: the topic is not the one whose items were leased. Else ""."""
        ...

    async def check(self, frontier: Sequence[int]) -> None:
        """Finds out whether the partitions reach the frontier; else there is a fault, until they do again."""
        ...

    async def first(self, place: Place, end: int) -> ItemRecord | None:
        """The first item of the partition at or behind the place, and before offset `end`."""
        ...

    def follow(self, frontier: Sequence[int]) -> None:
        """Reads ahead from there; at once if it is not where it has been reading."""
        ...

    async def run(self, changed: Callable[[], None]) -> None:
        """Reads ahead until it is cancelled; calls `changed` after each step."""
        ...

    async def catch_up(self) -> None:
        """Returns once all that is stored now has been read, as far as there is room for it."""
        ...

    async def get(self, places: Collection[Place]) -> Mapping[Place, ItemRecord]:
        """The items at these places; without those that do not exist (any more)."""
        ...

    async def append(self, items: Sequence[ItemRecord]) -> Unstored:
        """Stores the items, each by itself: what becomes of one is no matter of the others."""
        ...

    async def find(self, to: int | str) -> list[int]:
        """Of each partition, the first offset (`earliest`), the end (`latest`), or that of a time in ms."""
        ...

    async def settle(self, lowest: Sequence[int], before_ms: int | None) -> None:
        """Commits the lowest offsets that are not done; of those below, deletes what was put before that.

        Raises LogMoved if another topic has the name by now.
        """
        ...

    def close(self) -> None:
        """Ends the reading; never raises."""
        ...


class QueueStore(Protocol):
    """Where queues are: creates them, lists them, and opens what one consists of."""

    async def list(self) -> list[str]:
        """The names of all queues."""
        ...

    async def create(self, name: str, *, over: str, partitions: int) -> None:
        """Creates the topics of a queue and of its dead letters that do not exist yet, or none of them.

        Raises InvalidInput if the name is too like another one, Conflict if the items have other partitions.
        """
        ...

    async def delete(self, name: str, *, over: str, log: CommandLog) -> None:
        """Deletes the topics of a queue, except the one that it is over.

        Raises LogMoved if `log` is another one by now: then so is the queue.
        """
        ...

    async def count_partitions(self, over: str) -> int:
        """The partitions of a topic that a queue shall be over. Raises InvalidInput if there is none."""
        ...

    def open_log(self, name: str) -> CommandLog:
        """The log of a queue that exists."""
        ...

    async def open_items(self, name: str, *, over: str, partitions: int, frontier: Sequence[int]) -> ItemLog:
        """The items of a queue that exists, checked against its frontier.

        Raises NotFound if the topic that it is over does not.
        """
        ...
