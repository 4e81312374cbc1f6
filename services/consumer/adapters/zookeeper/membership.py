"""The members' nodes of one group, as one member writes them: its own, and that of a process which has ended.

A node is written in one ZooKeeper session and ends with it. Another member deletes the node of a process that
it believes has ended; `GroupMirror` shows that. Used by `coordinator.py`, which writes the claims.
"""

from __future__ import annotations

import msgspec

from services.consumer.adapters.zookeeper.group_mirror import GroupMirror
from services.consumer.core.ownership.watching import is_same_process
from shared.errors import Conflict, ZooKeeperUnavailable
from shared.model.cluster import MemberNode, is_member_id
from shared.model.names import Names
from shared.zookeeper.znodes import Create, Delete, Znode, Znodes, ZooKeeperSession

_encode = msgspec.json.encode
_member_of = msgspec.json.Decoder(MemberNode).decode


class Membership:
    """The node of member `member` in `group`, and what it does to others' nodes."""

    def __init__(self, zookeeper: Znodes, names: Names, group: str, member: str, mirror: GroupMirror) -> None:
        self._zookeeper = zookeeper
        self._names = names
        self._group = group
        self._member = member
        self._mirror = mirror
        self._joined: tuple[int, MemberNode] | None = None
        self._joined_s = 0.0

    def __repr__(self) -> str:
        return f"<Membership of {self._member} in {self._group}: {self._joined}>"

    @property
    def is_suspected(self) -> bool:
        """Whether another member has deleted the node in the present ZooKeeper session."""
        session = self._zookeeper.session
        return session is not None and self._is_joined_in(session) and self._mirror.is_missing

    @property
    def age_ms(self) -> int:
        """For how long this member has been joined in the present ZooKeeper session; 0 before."""
        session = self._zookeeper.session
        if session is None or not self._is_joined_in(session):
            return 0
        return int((self._zookeeper.now_s() - self._joined_s) * 1000)

    async def join(self, node: MemberNode, session: ZooKeeperSession) -> None:
        """Creates this member's node in the ZooKeeper session, or updates its data."""
        path = self._path(self._member)
        if self._joined == (session.id, node) and not self._mirror.is_displaced:
            return
        znode = await self._zookeeper.get(path, within=session.id)
        data, mine = _encode(node), znode is not None and znode.ephemeral_of == session.id
        if znode is not None and mine:
            done = znode.data == data or await self._zookeeper.set(path, data, within=session.id)
        elif znode is not None and self._is_joined_in(session):
            raise Conflict(f"another process has joined group {self._group!r} as {self._member!r}")
        else:
            # a node of an earlier session would vanish with that session: replace it, never take it over
            stale = [Delete(path, znode.version)] if znode is not None else []
            done = await self._zookeeper.transact(
                [*stale, Create(path, data, ephemeral=True)], within=session.id
            )
        if not done:
            raise ZooKeeperUnavailable("this member's node changed while it was being written")
        if not self._is_joined_in(session):
            self._joined_s = self._zookeeper.now_s()
        self._joined = session.id, node
        self._mirror.note_member(node)

    def leave(self) -> None:
        """The ZooKeeper session is about to end."""
        self._joined = None

    async def end(self, member: str, process: MemberNode, session: ZooKeeperSession) -> bool:
        """Deletes the node of a process that has ended; whether it was there."""
        path = self._path(member)
        znode = await self._zookeeper.get(path, within=session.id)
        found = self._mirror.unreadable.decode(path, znode.data, _member_of) if znode is not None else None
        if znode is None or found is None or not is_same_process(found, process):
            return False
        # a successor may replace the node just now; it then finds itself suspected, and joins once more
        return await self._zookeeper.delete(path, znode.version, within=session.id)

    async def has_left(self, holder: str, claim: Znode, session: ZooKeeperSession) -> bool:
        """Whether the holder has no node in the ZooKeeper session that made the claim.

        The claim must have been read before: its holder joined before it claimed.
        """
        if not is_member_id(holder):
            return False
        node = await self._zookeeper.get(self._path(holder), within=session.id)
        return node is None or node.ephemeral_of != claim.ephemeral_of

    async def predecessor(self, session: ZooKeeperSession) -> MemberNode | None:
        """What an earlier ZooKeeper session has left under this id; None if there is nothing readable."""
        path = self._path(self._member)
        znode = await self._zookeeper.get(path, within=session.id)
        if znode is None or znode.ephemeral_of == session.id:
            return None
        return self._mirror.unreadable.decode(path, znode.data, _member_of)

    def _is_joined_in(self, session: ZooKeeperSession) -> bool:
        return self._joined is not None and self._joined[0] == session.id

    def _path(self, member: str) -> str:
        return self._names.member(self._group, member)
