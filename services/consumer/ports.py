"""What the consumer's shell asks of the world: the log, the coordinator (who is there, who owns what), peers.

The adapters implement these on Kafka, ZooKeeper and HTTP, and the in-memory twins in `tests/fakes/` do so
under the same contract tests. Every call ends in bounded time. From the log, `Unavailable` means that a call
did not work, or that its outcome is unknown: throw the reader or sink away, read the claim afresh, open anew.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Protocol

from services.consumer.core.commits.checkpoint import Checkpoint, Commit
from services.consumer.core.handover.rules import BundleRequest, Completion, Offer
from services.consumer.core.ownership.lease import Lease
from services.consumer.core.sessions.record import Record
from shared.errors import Conflict
from shared.model.cluster import ClaimNode, MemberNode, StreamNode, View
from shared.model.group import GroupSettings
from shared.model.head import Head


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


class Coordinator(Protocol):
    """One member's hold on one group. Losing a race is None or False.

    Every call may raise ZooKeeperUnavailable; from a write it means that the outcome is unknown, and that
    it could not be read back either: a claim that was won all the same shows in a later view.
    """

    @property
    def member(self) -> str:
        """The id of this member."""

    @property
    def changed(self) -> asyncio.Event:
        """Set when a new `view` may differ; cleared by `view`. Also look every second or so."""

    @property
    def session_id(self) -> int | None:
        """The present ZooKeeper session (the last one while disconnected); None before the first."""

    @property
    def session_age_ms(self) -> int:
        """For how long this member has been joined in that ZooKeeper session; 0 before."""

    @property
    def lease(self) -> Lease | None:
        """How long this member may act, on the clock of `now_s`; None before the first ZooKeeper session."""

    def now_s(self) -> float:
        """The clock of the lease: seconds, monotonic, counting suspension."""

    async def ensure_group(self, settings: GroupSettings) -> None:
        """Makes the group's znodes where they are missing; the first one's settings are the group's.

        Raises InvalidInput, naming each difference, when the group has other settings.
        """

    async def join(self, node: MemberNode) -> None:
        """Makes this member's node, in the present ZooKeeper session; costs nothing when it stands so.

        To be called before every `view`: so a member joins again after its ZooKeeper session was lost.
        Raises Conflict when another live process has taken this member's id in the meantime.
        """

    async def leave(self) -> None:
        """Deletes this member's node; its claims stay until they are released or the session ends."""

    async def view(self) -> View:
        """The group as it stands. Own claims of another ZooKeeper session are left out: not this one's.

        `nodes` holds the nodes of unowned streams; those of claimed ones are missing or old.
        """

    async def claim(self, stream: int) -> int | None:
        """The epoch in which the stream is now this member's, or None: another one has it or was faster."""

    async def adopt(self, stream: int) -> int | None:
        """The epoch of a claim that this ZooKeeper session already holds, or None when it holds none.

        Afterwards a release of before, still on its way, can no longer take effect.
        """

    async def release(self, stream: int, epoch: int, seq: int | None, target: str | None) -> bool:
        """Gives the claim up, leaving the final seq and the target at the stream's node.

        False: not done, since the claim of that epoch is (no longer) this member's, or the node was written
        by somebody else.
        """

    def version_after_release(self, stream: int, epoch: int) -> int:
        """The version that the stream's node will have when this member has released it; -1: not known."""

    def expect(self, stream: int, node: StreamNode, version: int) -> None:
        """The stream's owner is about to release it and to leave its node like this, in this version.

        So it need not be read before it is claimed. An expectation holds for a few seconds; one that proves
        false costs a claim that is lost, or an epoch that nobody uses.
        """

    async def read_claim(self, stream: int) -> ClaimNode | None:
        """The claim as it stands, read afresh; None where there is none, or an old session's of this id."""

    async def raise_epoch(self, stream: int, above: int) -> int | None:
        """The new epoch, `above` + 1, of a claim that this ZooKeeper session holds; else None.

        For when ZooKeeper was reset and Kafka kept: the stored head has a higher epoch than the claim.
        """


class Peers(Protocol):
    """The other members of the group; `address` is always that of a registered one.

    Every call ends in bounded time. Raises HandoverRefused with the peer's reason (whatever it refused),
    PeerUnavailable when it did not answer: then nobody knows whether it took effect there.
    """

    async def offer(self, address: str, offer: Offer, body: bytes) -> None:
        """Sends the first copy of a stream's open sessions; the recipient holds it."""

    async def complete(self, address: str, completion: Completion, body: bytes) -> None:
        """Sends what has changed since the first copy; the recipient expects the release."""

    async def fetch(self, address: str, request: BundleRequest) -> bytes:
        """Asks a former owner for its frozen bundle."""
