"""Membership and ownership in one group, as one member reads and writes them in ZooKeeper (docs/protocol.md).

Every write is decided and sent within one ZooKeeper session. After a refused write, or one with an unknown
outcome, the znodes are read back. `GroupMirror` keeps what the view needs; this file writes.
"""

from __future__ import annotations

import asyncio
from typing import NamedTuple

import msgspec

from services.consumer.adapters.zookeeper.group_mirror import GroupMirror
from services.consumer.adapters.zookeeper.membership import Membership
from services.consumer.adapters.zookeeper.new_group import create_group
from services.consumer.core.ownership.lease import Lease
from shared.errors import ZooKeeperUnavailable
from shared.model.cluster import UNREADABLE_CLAIM, ClaimNode, MemberNode, StreamNode, View
from shared.model.group import GroupSettings
from shared.model.names import Names
from shared.model.start import GroupStart
from shared.together import both
from shared.zookeeper.znodes import Check, Create, Delete, Operation, Set, Znode, Znodes, ZooKeeperSession

_encode = msgspec.json.encode
_claim_of = msgspec.json.Decoder(ClaimNode).decode
_stream_of = msgspec.json.Decoder(StreamNode).decode


class _Written(NamedTuple):
    """This member's last write to a stream's node: the claim's epoch, the node's version, the ZooKeeper
    session.
    """

    epoch: int
    version: int
    session_id: int


class ZooKeeperCoordinator:
    """The `Coordinator` of member `member` of `group`; `count` streams, `address` its base URL.

    `is_fenced`: once a stream is claimed, its earlier owners can deliver nothing more, so a suspicion may be
    wrong.
    """

    def __init__(
        self,
        zookeeper: Znodes,
        names: Names,
        group: str,
        member: str,
        *,
        count: int,
        address: str,
        is_fenced: bool = True,
    ) -> None:
        self.member = member
        self.group = group
        self._zookeeper = zookeeper
        self._names = names
        self._address = address
        self._is_fenced = is_fenced
        self._mirror = GroupMirror(zookeeper, names, group, member, count, is_fenced=is_fenced)
        self._membership = Membership(zookeeper, names, group, member, self._mirror)
        self._written: dict[int, _Written] = {}

    def __repr__(self) -> str:
        return f"<ZooKeeperCoordinator {self.member} of {self.group}>"

    @property
    def changed(self) -> asyncio.Event:
        """Set when a new `view` may differ; cleared by `view`."""
        return self._mirror.changed

    @property
    def session_id(self) -> int | None:
        """The current ZooKeeper session (while disconnected, the last one); None before the first."""
        session = self._zookeeper.session
        return session.id if session is not None else None

    @property
    def session_age_ms(self) -> int:
        """For how long this member has been joined in that ZooKeeper session; 0 before."""
        return self._membership.age_ms

    @property
    def lease(self) -> Lease | None:
        """How long this member may act; None before the first ZooKeeper session."""
        session = self._zookeeper.session
        if session is None:
            return None
        return Lease(answered_s=self._zookeeper.answered_s, timeout_s=session.timeout_s)

    def lease_of(self, stream: int, epoch: int) -> Lease | None:
        """How long this member may act on its claim of that epoch; None if its session does not hold it."""
        written = self._written.get(stream)
        held = (written.epoch, written.session_id) if written is not None else None
        return self.lease if held == (epoch, self.session_id) else None

    def now_s(self) -> float:
        """The clock of the lease."""
        return self._zookeeper.now_s()

    @property
    def unreadable_znodes(self) -> int:
        """How many znodes of the group could not be decoded when they were last read."""
        return len(self._mirror.unreadable)

    async def ensure_group(self, settings: GroupSettings, start: GroupStart | None = None) -> GroupSettings:
        """Creates the group's znodes where they are missing; returns its settings. Raises InvalidInput,
        ZooKeeperUnavailable.
        """
        return await create_group(self._zookeeper, self._names, self.group, settings, start)

    async def join(self, node: MemberNode) -> None:
        """Creates this member's node in the present ZooKeeper session, or updates its data."""
        await self._membership.join(node, self._session())

    @property
    def is_suspected(self) -> bool:
        """Whether this member's node was deleted in its present ZooKeeper session."""
        return self._is_fenced and self._membership.is_suspected

    async def end_process(self, member: str, process: MemberNode) -> bool:
        """Deletes the node of a process that has ended; whether it was there."""
        return await self._membership.end(member, process, self._session())

    async def predecessor(self) -> MemberNode | None:
        """What an earlier ZooKeeper session has left under this member's id, if anything."""
        return await self._membership.predecessor(self._session())

    async def leave(self) -> None:
        """Ends the ZooKeeper session, and with it this member's node and claims."""
        self._membership.leave()
        await self._zookeeper.close()

    async def view(self) -> View:
        """The group as it stands."""
        return await self._mirror.view()

    async def claim(self, stream: int) -> int | None:
        """The epoch in which the stream is now this member's, or None."""
        session = self._session()
        known = self._mirror.unowned(stream)
        if known is not None:  # usually nothing has changed since the view: one round trip instead of two
            node, version = known
            if await self._transact(self._to_claim(stream, node.epoch + 1, version), session):
                self._note(stream, node.epoch + 1, version + 1, session)
                return node.epoch + 1
        return await self._claim_afresh(stream, session)

    async def _claim_afresh(self, stream: int, session: ZooKeeperSession) -> int | None:
        node, claim = await self._read(stream, session)
        operations: list[Operation] = []
        if claim is not None:
            if claim.ephemeral_of == session.id:  # an earlier claim of ours whose answer was lost
                return await self.adopt(stream)
            holder = self._claim_in(stream, claim).member
            if holder != self.member and not (
                self._is_fenced and await self._membership.has_left(holder, claim, session)
            ):
                return None
            # of our former session or an ended process: replace it, do not wait for that session's time-out
            operations.append(Delete(self._names.claim(self.group, stream), claim.version))
        epoch = self._node_in(stream, node).epoch + 1
        operations += self._to_claim(stream, epoch, node.version if node is not None else None)
        if await self._transact(operations, session):
            self._note(stream, epoch, node.version + 1 if node is not None else 0, session)
            return epoch
        return await self.adopt(stream)  # unknown or refused: it is ours if the claim says so

    def _to_claim(self, stream: int, epoch: int, version: int | None) -> list[Operation]:
        """The operations that claim a stream whose node has this version (None: it has no node)."""
        path = self._names.stream(self.group, stream)
        mine = _encode(StreamNode(epoch=epoch, owner=self.member, address=self._address))
        return [
            Set(path, mine, version) if version is not None else Create(path, mine),
            Create(
                self._names.claim(self.group, stream),
                _encode(ClaimNode(member=self.member, epoch=epoch)),
                ephemeral=True,
            ),
        ]

    async def adopt(self, stream: int) -> int | None:
        """The epoch of a claim that this ZooKeeper session already holds, or None."""
        return await self._rewrite(stream, None)

    async def raise_epoch(self, stream: int, above: int) -> int | None:
        """The new epoch, `above` + 1, of a claim that this ZooKeeper session holds; else None."""
        return await self._rewrite(stream, above + 1)

    async def release(self, stream: int, epoch: int, seq: int | None, target: str | None) -> bool:
        """Releases the claim and stores the final seq and the target in the stream's node; whether it did."""
        session = self._session()
        written = self._written.get(stream)
        # a release names the version of our own last write, so that it fails if anything was written since
        if written is None or written.epoch != epoch:
            if await self.adopt(stream) != epoch:
                return False
            written = self._written[stream]
        final = StreamNode(epoch=epoch, owner=self.member, address=self._address, seq=seq, target=target)
        done = await self._transact(
            [
                Set(self._names.stream(self.group, stream), _encode(final), written.version),
                Delete(self._names.claim(self.group, stream)),
            ],
            session,
        )
        if not done:  # or unknown: the znodes decide
            self._mirror.doubt(stream)
            node, znode = await self._read(stream, session)
            done = znode is None and self._node_in(stream, node) == final
        if done:
            self._written.pop(stream, None)
            self._mirror.note_release(stream, final)
        return done

    async def read_claim(self, stream: int) -> ClaimNode | None:
        """The claim as it stands, read afresh."""
        session = self._session()
        node, znode = await self._read(stream, session)
        if znode is None:
            return None
        if znode.ephemeral_of == session.id:
            return ClaimNode(member=self.member, epoch=self._held_epoch(stream, node, znode))
        claim = self._claim_in(stream, znode)
        return claim if claim.member != self.member else None

    def _session(self) -> ZooKeeperSession:
        session = self._zookeeper.session
        if session is None:
            raise ZooKeeperUnavailable("not connected to ZooKeeper")
        return session

    async def _read(self, stream: int, session: ZooKeeperSession) -> tuple[Znode | None, Znode | None]:
        """The stream's node and its claim; ZooKeeper answers in this order."""
        return await both(
            self._zookeeper.get(self._names.stream(self.group, stream), within=session.id),
            self._zookeeper.get(self._names.claim(self.group, stream), within=session.id),
        )

    def _claim_in(self, stream: int, znode: Znode) -> ClaimNode:
        """The claim in its znode; an unreadable one is somebody's."""
        path = self._names.claim(self.group, stream)
        return self._mirror.unreadable.decode(path, znode.data, _claim_of) or UNREADABLE_CLAIM

    def _node_in(self, stream: int, znode: Znode | None) -> StreamNode:
        """The stream's node in its znode; a missing or unreadable one is that of a stream never owned."""
        path = self._names.stream(self.group, stream)
        found = self._mirror.unreadable.decode(path, znode.data, _stream_of) if znode is not None else None
        return found or StreamNode()

    def _held_epoch(self, stream: int, node: Znode | None, claim: Znode) -> int:
        """The epoch of a claim of this session; the stream's node has it too, if the claim is unreadable."""
        held = self._claim_in(stream, claim)
        return held.epoch if held is not UNREADABLE_CLAIM else self._node_in(stream, node).epoch

    async def _transact(self, operations: list[Operation], session: ZooKeeperSession) -> bool:
        """Whether the transaction is known to have succeeded; after False the caller has to read."""
        try:
            return await self._zookeeper.transact(operations, within=session.id)
        except ZooKeeperUnavailable:
            return False

    async def _rewrite(self, stream: int, epoch: int | None) -> int | None:
        """Writes the node of a stream that this session holds, and returns the claim's epoch; else None.

        The node's version rises, so every write that was sent before and is still on its way fails. `epoch`:
        the claim's new one; None keeps it.
        """
        session = self._session()
        node, claim = await self._read(stream, session)
        if node is None or claim is None or claim.ephemeral_of != session.id:
            return None
        held = self._held_epoch(stream, node, claim)
        new = epoch if epoch is not None else held
        mine = StreamNode(epoch=new, owner=self.member, address=self._address)
        claim_path = self._names.claim(self.group, stream)
        same, other = Check(claim_path, claim.version), ClaimNode(member=self.member, epoch=new)
        operations: list[Operation] = [
            Set(self._names.stream(self.group, stream), _encode(mine), node.version),
            same if _encode(other) == claim.data else Set(claim_path, _encode(other), claim.version),
        ]
        if not await self._transact(operations, session):
            self._mirror.doubt(stream)
            raise ZooKeeperUnavailable(f"the claim of stream {stream} could not be confirmed")
        self._note(stream, new, node.version + 1, session)
        return new

    def _note(self, stream: int, epoch: int, version: int, session: ZooKeeperSession) -> None:
        self._written[stream] = _Written(epoch, version, session.id)
        self._mirror.note_claim(stream, ClaimNode(member=self.member, epoch=epoch))
