"""What the consumer's shell asks of the world: the coordinator (who is there, who owns what), and peers.

`adapters/coordinator.py` is the coordinator on ZooKeeper, `adapters/http_peers.py` the peers over HTTP;
`tests/fakes/` holds both in memory. The ports of the log stand in `log_ports.py`.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

from services.consumer.core.handover import Completion, Offer, Wanted
from services.consumer.core.lease import Lease
from shared.cluster import ClaimNode, MemberNode, StreamNode, View
from shared.group import GroupSettings


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

    async def fetch(self, address: str, wanted: Wanted) -> bytes:
        """Asks a former owner for its frozen bundle."""
