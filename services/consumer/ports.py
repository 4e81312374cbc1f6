"""What the consumer's shell needs of the world: the log, the coordinator (who owns what), and peers.

The adapters implement these on Kafka, ZooKeeper and HTTP; the in-memory twins in `tests/fakes/` pass the same
contract tests. Every call ends in bounded time. From the log, `Unavailable` means that a call failed or that
its outcome is unknown: discard the reader or sink, read the claim afresh, open anew.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from typing import Literal, Protocol

from services.consumer.core.commits.checkpoint import Checkpoint
from services.consumer.core.commits.commit import Commit
from services.consumer.core.handover.rules import BundleRequest, Completion, Offer
from services.consumer.core.ownership.lease import Lease
from services.consumer.core.sessions.record import Record
from shared.errors import Conflict
from shared.model.cluster import ClaimNode, MemberNode, View
from shared.model.group import GroupSettings
from shared.model.head import Head
from shared.model.start import Cut, GroupStart


class Fenced(Conflict):
    """Another producer with the stream's transactional id has started: this one can no longer write."""


class FragmentReader(Protocol):
    """Reads one stream's fragments topic from an offset on."""

    async def bounds(self) -> tuple[int, int]:
        """The log's half-open offsets: first offset, next offset to be written. Raises Unavailable."""
        ...

    async def open(self, offset: int) -> None:
        """Starts to read at `offset`. Raises Unavailable."""
        ...

    async def fetch(self, timeout_s: float) -> Sequence[Record]:
        """The next records in offset order; none if there are none within `timeout_s`. May be cancelled.

        If the log may have changed since the last ones (another connection, another leader), it repeats the
        last record before them, so that the caller can recognize the log. Raises Unavailable.
        """
        ...

    @property
    def end(self) -> int:
        """The next offset to be written, by the broker's last answer; -1 if unknown."""
        ...

    async def close(self) -> None:
        """Closes the client; never raises, never hangs."""
        ...


class SessionSink(Protocol):
    """Writes one stream's commits under the stream's transactional id."""

    async def prepare(self) -> None:
        """Connects without any effect, so that `open` need not wait for that. Raises Unavailable."""
        ...

    async def open(self) -> None:
        """Fences every earlier owner's sink. Raises Unavailable, or Fenced if another one opens just now."""
        ...

    async def head(self) -> Head:
        """The stored head; if there is none, the head of a stream that was never owned. Only after `open`.

        Raises Unavailable, InvalidInput.
        """
        ...

    async def load(self, head: Head) -> Checkpoint:
        """The checkpoint that the stored head points to. Raises Unavailable, InvalidInput."""
        ...

    @property
    def records_read(self) -> int:
        """Checkpoint records read so far: grows while `head` or `load` gets ahead."""
        ...

    async def commit(self, commit: Commit) -> list[int]:
        """One transaction; the offsets of the commit's checkpoint records.

        Raises Fenced, or Unavailable when its outcome is unknown.
        """
        ...

    async def tick(self) -> None:
        """Appends a tick to the stream's fragments topic; a failure is not an error."""
        ...

    async def trim(self, below: int) -> None:
        """Deletes the stream's checkpoint records below an offset; a failure is not an error."""
        ...

    async def close(self) -> None:
        """Closes the clients; never raises, never hangs."""
        ...


class StreamLog(Protocol):
    """Makes the readers and sinks of streams."""

    def reader(self, stream: int) -> FragmentReader:
        """A reader of the stream's fragments, not opened yet."""
        ...

    def sink(self, stream: int) -> SessionSink:
        """A sink for the stream's commits, not opened yet."""
        ...

    def delivered(self, cut: Cut, stream: int, start: int) -> AsyncIterator[bytes]:
        """All sessions of a stream that the cut's group has delivered by now and that reach the offset
        `start`, as they are stored; others may be among them. Raises Unavailable.
        """
        ...

    async def ends(self, streams: Collection[int]) -> Mapping[int, int]:
        """The next offset to be written of these streams, read afresh; without those whose log is away.

        Raises Unavailable.
        """
        ...

    async def close(self) -> None:
        """Closes the shared clients; never raises, never hangs."""
        ...


class Coordinator(Protocol):
    """One member's hold on one group. Losing a race is None or False.

    Every call may raise ZooKeeperUnavailable. From a write it means that the outcome is unknown and could not
    be read back either; a claim that was won nevertheless shows in a later view.
    """

    @property
    def member(self) -> str:
        """The id of this member."""

    @property
    def changed(self) -> asyncio.Event:
        """Set when the next `view` may differ; cleared by `view`. Look every second or so anyway."""

    @property
    def session_id(self) -> int | None:
        """The present ZooKeeper session (the last one while disconnected); None before the first."""

    @property
    def session_age_ms(self) -> int:
        """For how long this member has been joined in that ZooKeeper session; 0 before."""

    @property
    def lease(self) -> Lease | None:
        """How long this member may act, by the clock of `now_s`; None before the first ZooKeeper session."""

    @property
    def unreadable_znodes(self) -> int:
        """How many znodes of the group could not be decoded when they were last read."""

    def lease_of(self, stream: int, epoch: int) -> Lease | None:
        """How long this member may act on its claim of that epoch; None if it must not.

        A claim ends with the ZooKeeper session in which it was made, so no later session's lease covers it.
        """

    def now_s(self) -> float:
        """The clock of the lease: seconds, monotonic, counting suspension."""

    async def ensure_group(self, settings: GroupSettings, start: GroupStart | None = None) -> GroupSettings:
        """Creates the group's znodes where they are missing, with these settings; returns the group's.

        `start`: the group's own, if this member knows one from before ZooKeeper was reset.
        They differ only in a group that follows another one, and only where these are the defaults. Raises
        InvalidInput, naming each other difference.
        """

    async def join(self, node: MemberNode) -> None:
        """Creates this member's node in the present ZooKeeper session; free if that has been done.

        Call it before every `view`, so that a member joins again after it lost its ZooKeeper session. Raises
        Conflict if another live process has taken this member's id meanwhile.
        """

    async def leave(self) -> None:
        """Ends this member's ZooKeeper session: its node and every claim that it still holds vanish.

        At once if ZooKeeper answers, else with the session's time-out. Never raises; afterwards every other
        call raises ZooKeeperUnavailable.
        """

    @property
    def is_suspected(self) -> bool:
        """Whether another member has deleted this member's node in its present ZooKeeper session, by the last
        view; until it joins again. False in a group in which nobody acts on suspicions.
        """

    async def end_process(self, member: str, process: MemberNode) -> bool:
        """Deletes another member's node, if it is still this process's; whether it did.

        From then on the others may claim the streams that it holds.
        """

    async def view(self) -> View:
        """The present group, without this member's claims of earlier ZooKeeper sessions.

        In a group whose earlier owners are fenced, it is also without the claims of members that have no
        node: those streams count as unowned.

        `nodes` holds the nodes of unowned streams; those of claimed streams are missing or old.
        """

    async def claim(self, stream: int) -> int | None:
        """The epoch in which this member now owns the stream; None if another member does.

        It replaces a claim of this id's earlier session, and, as `view` says, of a member without a node.
        """

    async def adopt(self, stream: int) -> int | None:
        """The epoch of a claim that this ZooKeeper session already holds; None if it holds none.

        Afterwards an earlier release that is still on its way can no longer take effect.
        """

    async def release(self, stream: int, epoch: int, seq: int | None, target: str | None) -> bool:
        """Releases the claim, leaving the final seq and the target at the stream's node.

        False if it did not: the claim of that epoch is not (or no longer) this member's, or another member
        has written the node.
        """

    async def read_claim(self, stream: int) -> ClaimNode | None:
        """The present claim, read afresh; None if there is none, or one of this id's earlier sessions."""

    async def raise_epoch(self, stream: int, above: int) -> int | None:
        """The new epoch, `above` + 1, of a claim that this ZooKeeper session holds; else None.

        Needed after ZooKeeper was reset and Kafka was not: the stored head has a higher epoch than the claim.
        """


class Peers(Protocol):
    """The other members of the group; `address` is always that of a registered one.

    Every call ends in bounded time. Raises HandoverRefused with the peer's reason, HandoverUnreadable if it
    would never accept the message, or PeerUnavailable if it did not answer: then it is unknown whether the
    message took effect there.
    """

    async def offer(self, address: str, offer: Offer, body: bytes) -> None:
        """Sends the first copy of a stream's open sessions; the recipient holds it."""

    async def complete(self, address: str, completion: Completion, body: bytes) -> None:
        """Sends the delta on a first copy; the recipient then expects the release."""

    async def fetch(self, address: str, request: BundleRequest) -> bytes:
        """Asks a former owner for its frozen bundle."""


Ending = Literal["refused", "broke", "failed"]
"""How a connection ended: nothing listens there; it stood for a while; it could not be made otherwise."""


class Listeners(Protocol):
    """Connections that show whether processes listen at members' addresses. No call ever raises."""

    async def hold(self, address: str, connected: Callable[[], None]) -> Ending:
        """Connects, calls `connected`, and returns how the connection has ended. May be cancelled."""
        ...

    async def is_open(self, address: str) -> bool | None:
        """Whether a process listens there; None if that cannot be found out now. Bounded."""
        ...
