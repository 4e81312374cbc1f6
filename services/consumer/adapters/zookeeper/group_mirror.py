"""What a member sees of its group, kept up to date with few reads: the view behind the coordinator.

Watches report which znodes may have changed, and only those are read again. A watch may get lost, so every
few seconds the lists and a slice of the rest are read anyway. Of the streams' own nodes only those of unowned
streams are read: only its owner writes the node of a claimed stream.
"""

from __future__ import annotations

import asyncio
from typing import Generic, NamedTuple, TypeVar

import msgspec

from services.consumer.adapters.zookeeper.marks import Marks
from services.consumer.adapters.zookeeper.reread import reread
from services.consumer.adapters.zookeeper.wishes import Wishes
from shared.errors import ZooKeeperUnavailable
from shared.model.cluster import (
    UNREADABLE_CLAIM,
    ClaimNode,
    MemberNode,
    StreamNode,
    View,
    is_member_id,
    stream_numbers,
)
from shared.model.names import Names
from shared.together import both, together
from shared.zookeeper.unreadable import UnreadableZnodes
from shared.zookeeper.znodes import Znodes

_member_of = msgspec.json.Decoder(MemberNode).decode
_claim_of = msgspec.json.Decoder(ClaimNode).decode
_stream_of = msgspec.json.Decoder(StreamNode).decode
T = TypeVar("T")


class _Made(NamedTuple, Generic[T]):
    """The data of an ephemeral znode, and the ZooKeeper session that made it."""

    node: T
    session_id: int


class GroupMirror:
    """Members, claims, operators' wishes and unowned streams' nodes of one group, as `member` sees them.

    Invariant: whatever is stored here is either still true, or marked as old (`_marks`), or has a watch that
    will mark it. For that a mark is removed *before* its znode is read, and the read leaves a watch: a change
    during the read marks the znode again. A read that fails puts its mark back.

    The member's own writes are noted at once (`note_…`). They win over lists that were requested before; a
    single znode that was requested before is read again, because its watch reports the write.
    """

    def __init__(
        self,
        zookeeper: Znodes,
        names: Names,
        group: str,
        member: str,
        count: int,
        *,
        is_fenced: bool = False,
    ) -> None:
        self._marks = Marks()
        self.changed = self._marks.changed
        self.is_displaced = False
        """Whether this member's node was last seen otherwise than this process wrote it, or missing."""
        self.is_missing = False
        """Whether it was last seen missing."""
        self.unreadable = UnreadableZnodes()
        self._is_fenced = is_fenced
        self._zookeeper = zookeeper
        self._members_path = names.members(group)
        self._claims_path = names.claims(group)
        self._streams_path = names.streams(group)
        self._wishes = Wishes(zookeeper, names, group, self.unreadable)
        self._member = member
        self._count = count
        self._reading = asyncio.Lock()
        self._session_id = 0
        self._writes = 0
        self._written: dict[int, int] = {}
        """Stream → number of this member's last write about it."""
        self._own: MemberNode | None = None  # as this process wrote it last
        self._forget()

    def _forget(self) -> None:
        self.unreadable.clear()
        self._members: dict[str, _Made[MemberNode | None]] = {}
        """None: an unreadable member, which counts for nothing."""
        self._claims: dict[int, _Made[ClaimNode]] = {}
        self._nodes: dict[int, StreamNode] = {}
        self._wishes.forget()
        self._versions: dict[int, int] = {}
        """The nodes' versions, except where this member wrote the node itself."""
        self._existing: set[int] = set()
        """Streams that have a node: they were owned at some time."""
        self._left: set[int] = set()
        """Streams whose claims count for nothing: their holders left them with an earlier session."""
        self._marks.renew()

    def note_member(self, node: MemberNode) -> None:
        """This member has written its node."""
        self._own = node
        self._members[self._member] = _Made(node, self._session_id)
        if self.is_missing:
            self._doubt_own()
        self.is_displaced = self.is_missing = False

    def note_claim(self, stream: int, claim: ClaimNode) -> None:
        """This member has won the claim."""
        self._note(stream)
        self.unreadable.forget(f"{self._claims_path}/{stream}")
        self._existing.add(stream)
        self._set_claim(stream, _Made(claim, self._session_id))

    def note_release(self, stream: int, node: StreamNode) -> None:
        """This member has released the claim and left the node like this."""
        self._note(stream)
        self._claims.pop(stream, None)
        self._nodes[stream] = node
        # the next claim names the node's version, which only a read returns
        self._versions.pop(stream, None)
        self._marks.nodes.add(stream)

    def doubt(self, stream: int) -> None:
        """A write to a claim that this member holds has an unknown outcome.

        A member does not watch its own claims. Reading this one again leaves a watch, in case the write takes
        effect late.
        """
        self._marks.claims.add(stream)

    def _doubt_own(self) -> None:
        """Others may claim what a member without a node holds, so it watches its own claims from now on."""
        self._marks.claims |= {n for n, claim in self._claims.items() if claim.node.member == self._member}

    def _note(self, stream: int) -> None:
        self._writes += 1
        self._written[stream] = self._writes

    def unowned(self, stream: int) -> tuple[StreamNode, int] | None:
        """The node of a stream that was last seen without a claim, and its version; None if not known."""
        node, version = self._nodes.get(stream), self._versions.get(stream)
        if node is None or version is None or stream in self._claims:
            return None
        return node, version

    async def view(self) -> View:
        """The group as it stands. Raises ZooKeeperUnavailable."""
        async with self._reading:
            session = self._zookeeper.session
            if session is None:
                raise ZooKeeperUnavailable("not connected to ZooKeeper")
            # own claims ended with the old session, and so may have everything else that was read in it
            if session.id != self._session_id:
                self._forget()
                self._session_id = session.id
            self.changed.clear()  # before the reads: a change during one of them sets it again
            self._marks.age(self._zookeeper.now_s(), self._members, self._claims, self._nodes)
            await self._refresh()
            claims = {n: claim.node for n, claim in self._claims.items() if n not in self._left}
            return View(
                count=self._count,
                members={name: one.node for name, one in self._members.items() if one.node is not None},
                claims=claims,
                nodes={n: node for n, node in self._nodes.items() if n not in claims},
                pins=self._wishes.pins,
                pause=self._wishes.pause,
            )

    async def _refresh(self) -> None:
        for part, read in (("lists", self._read_lists), ("wishes", self._read_wishes)):
            # once, not until nothing is old: while many members claim, lists change faster than they are read
            if part in self._marks.parts:
                self._marks.parts.discard(part)
                try:
                    await read()
                except BaseException:
                    self._marks.parts.add(part)
                    raise
        await reread(self._marks.members, self._read_member)
        if self.is_missing:
            self._doubt_own()
        await reread(self._marks.claims, self._read_claim)
        await self._find_left()
        # a stream that has just lost its claim has a node that was not needed before
        self._marks.nodes |= self._existing - self._nodes.keys()
        self._marks.nodes -= self._claims.keys() - self._left
        await reread(self._marks.nodes, self._read_node)

    async def _read_lists(self) -> None:
        within, writes = self._session_id, self._writes
        lists = (self._members_path, self._claims_path)
        (members, claims), existing = await both(
            together(
                self._zookeeper.children(path, watch=self._marks.on_lists, within=within) for path in lists
            ),
            self._read_existing(),
        )
        for gone in self._members.keys() - set(members):
            self._members.pop(gone)
            self.unreadable.forget(f"{self._members_path}/{gone}")
        self._marks.members &= set(members)
        self._marks.members |= set(members) - self._members.keys()
        self.is_missing = self._member not in members
        self.is_displaced |= self.is_missing
        # these lists were requested before this member's newest writes, and may or may not show them
        own = {n for n, number in self._written.items() if number > writes}
        claimed = stream_numbers(claims, self._count)
        for stream in self._claims.keys() - claimed - own:
            self._unclaim(stream)
        self._marks.claims |= claimed - self._claims.keys() - own
        self._existing |= existing

    async def _find_left(self) -> None:
        """Finds the claims whose holders were suspected, or have begun anew in another ZooKeeper session."""
        # the node may have been read before the claim; members join before they claim, so a read now decides
        for name in {*self._holders_of_left().values()} - {self._member}:
            await self._read_member(name)
        left = {*self._holders_of_left()}
        self._marks.nodes |= left - self._left
        self._left = left

    def _holders_of_left(self) -> dict[int, str]:
        return {n: claim.node.member for n, claim in self._claims.items() if self._is_left(claim)}

    def _is_left(self, claim: _Made[ClaimNode]) -> bool:
        """Whether its holder has no node, as far as is known, in the ZooKeeper session that made it."""
        name = claim.node.member
        if name == self._member:
            return claim.session_id != self._session_id
        if not self._is_fenced or not is_member_id(name):
            return False
        holder = self._members.get(name)
        return holder is None or holder.session_id != claim.session_id

    async def _read_existing(self) -> set[int]:
        # nodes are never deleted, so once all exist there is nothing left to ask
        if len(self._existing) == self._count:
            return self._existing
        existing = await self._zookeeper.children(self._streams_path, within=self._session_id)
        return stream_numbers(existing, self._count)

    def _set_claim(self, stream: int, claim: _Made[ClaimNode]) -> None:
        self._claims[stream] = claim
        self._nodes.pop(stream, None)
        self.unreadable.forget(f"{self._streams_path}/{stream}")

    def _unclaim(self, stream: int) -> None:
        self.unreadable.forget(f"{self._claims_path}/{stream}")
        self._claims.pop(stream, None)
        self._marks.claims.discard(stream)
        self._existing.add(stream)
        self._marks.nodes.add(stream)

    async def _read_member(self, name: str) -> None:
        path = f"{self._members_path}/{name}"
        znode = await self._zookeeper.get(
            path, watch=self._marks.on_member, within=self._session_id, awaits_creation=False
        )
        if name == self._member:
            self.is_missing = znode is None
        if znode is None:
            self._members.pop(name, None)
            self.unreadable.forget(path)
        else:
            node = self.unreadable.decode(path, znode.data, _member_of)
            self._members[name] = _Made(node, znode.ephemeral_of)
        if name == self._member and self._members.get(name) != (own := _Made(self._own, self._session_id)):
            self.is_displaced = True
            if znode is not None and znode.ephemeral_of == self._session_id:
                self._members[name] = own  # not what a late write of the process before has left there

    async def _read_claim(self, stream: int) -> None:
        path = f"{self._claims_path}/{stream}"
        znode = await self._zookeeper.get(path, watch=self._marks.on_claim, within=self._session_id)
        if znode is None:
            self._unclaim(stream)
            return
        is_mine = znode.ephemeral_of == self._session_id
        claim = self.unreadable.decode(path, znode.data, _claim_of)
        if claim is None and is_mine and stream in self._claims:
            claim = self._claims[stream].node  # this member need not read its own claim to keep it
        self._existing.add(stream)
        self._set_claim(stream, _Made(claim or UNREADABLE_CLAIM, znode.ephemeral_of))

    async def _read_node(self, stream: int) -> None:
        path = f"{self._streams_path}/{stream}"
        znode = await self._zookeeper.get(path, watch=self._marks.on_node, within=self._session_id)
        if znode is None:
            self._nodes.pop(stream, None)
            self._versions.pop(stream, None)
            self._existing.discard(stream)
            self.unreadable.forget(path)
        else:
            # if unreadable, as if never owned: a claim writes it anew, and the stored head raises the epoch
            self._nodes[stream] = self.unreadable.decode(path, znode.data, _stream_of) or StreamNode()
            self._versions[stream] = znode.version

    async def _read_wishes(self) -> None:
        await self._wishes.read(self._session_id, self._marks.on_wishes)
