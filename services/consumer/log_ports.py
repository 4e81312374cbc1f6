"""What a stream worker needs of the log: a reader of fragments, a sink of commits.

Ports: the Kafka adapters and the in-memory twins (tests/fakes) implement them under the same
contract tests. Every call ends in bounded time. `Unavailable` means: it did not work, or its outcome is
unknown; throw the reader or sink away, read the claim afresh, open anew.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from services.consumer.core.checkpoint import Checkpoint, Commit
from services.consumer.core.record import Record
from shared.errors import Conflict
from shared.heads import Head


class Fenced(Conflict):
    """Another producer with the stream's transactional id has started: this one can write no more."""


class FragmentReader(Protocol):
    """Reads one stream's fragments topic from an offset on."""

    async def bounds(self) -> tuple[int, int]:
        """The log's half-open offsets: first offset, next offset to be written. Raises Unavailable."""
        ...

    async def open(self, offset: int) -> None:
        """Reading begins at `offset`. Raises Unavailable."""
        ...

    async def fetch(self, timeout_s: float) -> Sequence[Record]:
        """The next records in offset order, none after `timeout_s` without any. May be cancelled.

        Raises Unavailable.
        """
        ...

    @property
    def end(self) -> int:
        """The next offset to be written, as far as the last answer of the broker told; -1 unknown."""
        ...

    async def close(self) -> None:
        """Lets go of the client; never raises, never hangs."""
        ...


class SessionSink(Protocol):
    """Writes one stream's commits under the stream's transactional id."""

    async def prepare(self) -> None:
        """Connects, and touches nothing: what `open` will not have to wait for. Raises Unavailable."""
        ...

    async def open(self) -> None:
        """Fences every earlier owner's sink. Raises Unavailable."""
        ...

    async def head(self) -> Head:
        """The stored head; that of a stream which nobody ever owned where there is none. Only after `open`.

        Raises Unavailable, InvalidInput.
        """
        ...

    async def load(self, head: Head) -> Checkpoint:
        """The checkpoint that the stored head points to. Raises Unavailable, InvalidInput."""
        ...

    async def commit(self, commit: Commit) -> list[int]:
        """One transaction; the offsets of the commit's checkpoint records.

        Raises Fenced, or Unavailable when its outcome is unknown.
        """
        ...

    async def tick(self) -> None:
        """Appends a tick to the stream's fragments topic; failing to is not an error."""
        ...

    async def trim(self, below: int) -> None:
        """Deletes the stream's checkpoint records below an offset; failing to is not an error."""
        ...

    async def close(self) -> None:
        """Lets go of the clients; never raises, never hangs."""
        ...


class StreamLog(Protocol):
    """Makes the readers and sinks of streams."""

    def reader(self, stream: int) -> FragmentReader:
        """A reader of the stream's fragments, not opened yet."""
        ...

    def sink(self, stream: int) -> SessionSink:
        """A sink for the stream's commits, not opened yet."""
        ...

    async def ends(self, count: int) -> Mapping[int, int]:
        """The next offset to be written of streams 0 … count - 1, asked afresh. Raises Unavailable."""
        ...

    async def close(self) -> None:
        """Lets go of the shared clients; never raises, never hangs."""
        ...
